package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// retryLooks is after how many looks what is configured and cannot be used is
// tried again.
const retryLooks = 15

// reloader is the component that follows the configuration: when the content of
// its file, or of a file it names, changes, what it decides is put into effect.
// One that cannot be read or had is refused as a whole, with the reasons in the
// log, and the one before stays.
//
// Contents are compared, not times or names, so that a ConfigMap's or Secret's
// exchanged link is noticed. A change counts once two looks saw the same: a
// file that is just being written is left alone.
type reloader struct {
	path  string // of the configuration
	every time.Duration
	ask   <-chan os.Signal // asks for a reload at once
	store *store.Store
	live  *live
	kinds config.Kinds
	now   func() time.Time
	log   *slog.Logger

	started *config.Piped // what of it only a restart changes is still in effect
	files   []string      // that the last configuration names
	seen    [sha256.Size]byte
	done    [sha256.Size]byte // what was put into effect or refused
	said    map[string]string // what was logged last, by its kind
}

func newReloader(path string, started *config.Piped, live *live, st *store.Store, o Options) *reloader {
	_, warnings, _ := o.kinds().LoadPiped(path) // said at the start already; errors are those of the first look
	return &reloader{
		path: path, every: o.ReloadEvery, ask: o.Reload, store: st, live: live, kinds: o.kinds(), now: o.Now, log: o.Logger.With("component", "configuration"),
		started: started, files: started.Files(), said: map[string]string{"warning": strings.Join(warnings, "; ")},
	}
}

// Run follows the configuration until ctx ends.
func (r *reloader) Run(ctx context.Context) error {
	poll := time.NewTicker(r.every)
	defer poll.Stop()
	for looks := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			r.look(ctx)
			if looks++; looks%retryLooks == 0 && r.live.unusable() {
				r.reload(ctx)
			}
		case <-r.ask:
			r.log.Info("told to reload the configuration")
			r.reload(ctx)
		}
		if err := r.dropRemoved(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("cannot see what runs on platform providers that were removed; trying again", "error", err)
		}
	}
}

// look reloads what has changed and come to rest. At the first look that is
// everything: it may have changed since it was read.
func (r *reloader) look(ctx context.Context) {
	digest := r.digest()
	settled := digest == r.seen
	r.seen = digest
	if settled && digest != r.done {
		r.reload(ctx)
	}
}

// digest is that of all files the configuration consists of.
func (r *reloader) digest() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, path := range append([]string{r.path}, r.files...) {
		data, err := os.ReadFile(path)
		fmt.Fprintf(h, "%q %d %v\n", path, len(data), err)
		h.Write(data)
	}
	h.Sum(sum[:0])
	return sum
}

// reload reads the configuration and puts it into effect, or refuses it.
func (r *reloader) reload(ctx context.Context) {
	r.done = r.digest() // read before the files are: what changes meanwhile is seen by the next look
	cfg, warnings, err := r.kinds.LoadPiped(r.path)
	var next setup
	if err == nil {
		r.files = cfg.Files()
		var problems error
		next, problems, err = r.live.plan(cfg)
		err = errors.Join(err, problems)
	}
	if err != nil {
		r.live.configuration.refuse(err)
		r.say(slog.LevelError, "the changed configuration is refused, the one before stays; mend it, no restart is needed", "error", err.Error())
		return
	}
	r.say(slog.LevelWarn, "changes that take effect only after a restart of the agent", "fields", strings.Join(needRestart(r.started, cfg), ", "))
	r.say(slog.LevelWarn, "configuration", "warning", strings.Join(warnings, "; "))
	changed := r.live.use(ctx, next)
	r.live.configuration.load(r.now())
	if len(changed) > 0 {
		r.log.Info("the changed configuration is in effect", "changed", strings.Join(changed, ", "))
	} else if r.said["error"] != "" {
		r.log.Info("the configuration is again the one in effect")
	}
	r.said["error"] = ""
}

// say logs what is to be said under a key, once until it changes; "" is nothing.
func (r *reloader) say(level slog.Level, message, key, text string) {
	if text != "" && r.said[key] != text {
		r.log.Log(context.Background(), level, message, key, text)
	}
	r.said[key] = text
}

// dropRemoved ends the connections to removed providers on which nothing runs.
func (r *reloader) dropRemoved(ctx context.Context) error {
	if !r.live.clusters.anyRemoved() {
		return nil
	}
	running, err := r.store.DeploymentsIn(ctx, deploy.Running, deploy.RollingBack)
	if err != nil {
		return err
	}
	busy := map[string]bool{}
	for _, d := range running {
		busy[d.Provider] = true
	}
	removals, err := r.store.OpenCommands(ctx, deploy.CommandDeleteApplication)
	if err != nil {
		return err
	}
	for _, c := range removals {
		items, err := r.store.Inventory(ctx, c.ApplicationID)
		if err != nil {
			return err
		}
		for _, item := range items {
			busy[item.Cluster] = true
		}
	}
	r.live.clusters.dropRemoved(busy)
	return nil
}

// needRestart names the fields that differ and that a running agent cannot change.
func needRestart(was, now *config.Piped) []string {
	differs := map[string]bool{
		"dataDir":       was.DataDir != now.DataDir,
		"store.dsn":     !was.Store.DSN.Equal(now.Store.DSN),
		"api.address":   was.API.Address != now.API.Address,
		"api.auditFile": was.API.AuditFile != now.API.AuditFile,
		"web.address":   was.Web.Address != now.Web.Address,
		"projectID":     was.ProjectID != now.ProjectID,
		"pipedID":       was.PipedID != now.PipedID,
		"planPreview":   was.PlanPreview != now.PlanPreview,
		"telemetry":     !was.Telemetry.Same(now.Telemetry),
		"debug":         was.Debug != now.Debug,
		"scripts":       !reflect.DeepEqual(was.Scripts, now.Scripts),
		"api.tlsCertFile and api.tlsKeyFile (TLS on or off)": (was.API.TLSCertFile == "") != (now.API.TLSCertFile == ""),
		"web.tlsCertFile and web.tlsKeyFile (TLS on or off)": (was.Web.TLSCertFile == "") != (now.Web.TLSCertFile == ""),
	}
	var out []string
	for field, changed := range differs {
		if changed {
			out = append(out, field)
		}
	}
	slices.Sort(out)
	return out
}
