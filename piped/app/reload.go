package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// retryPolls is the number of polls after which unusable providers and repositories are
// retried.
const retryPolls = 15

// reloader is the component that reloads the configuration when the content of its file,
// or of a file that it names, changes. A configuration that is invalid, or names something
// unusable, is rejected as a whole; the reasons are logged and the former one stays in
// effect.
//
// Contents are compared, not times or names, so that the replaced link of a ConfigMap or
// Secret is detected. A change counts when two consecutive polls read the same, so that
// incomplete writes are ignored.
type reloader struct {
	path  string // of the configuration
	every time.Duration
	ask   <-chan os.Signal // each signal reloads at once
	store *store.Store
	live  *live
	kinds config.Kinds
	now   func() time.Time
	log   *slog.Logger

	started *config.Piped // settings that need a restart are those of this one
	files   []string      // named by the last configuration
	seen    [sha256.Size]byte
	done    [sha256.Size]byte // of the last applied or rejected configuration
	said    map[string]string // the last logged text by key
}

func newReloader(path string, started *config.Piped, live *live, st *store.Store, o Options) *reloader {
	_, warnings, _ := o.kinds().LoadPiped(path) // logged at the start already; errors are found by the first poll
	return &reloader{
		path: path, every: o.ReloadEvery, ask: o.Reload, store: st, live: live, kinds: o.kinds(), now: o.Now, log: o.Logger.With("component", "configuration"),
		started: started, files: started.Files(), said: map[string]string{"warning": strings.Join(warnings, "; ")},
	}
}

// Run reloads the configuration until ctx ends.
func (r *reloader) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for polls := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.poll(ctx)
			if polls++; polls%retryPolls == 0 && r.live.unusable() {
				r.reload(ctx)
			}
		case <-r.ask:
			r.log.Info("reloading the configuration after a signal")
			r.reload(ctx)
		}
		if err := r.dropRemoved(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("cannot list the deployments on removed platform providers; trying again", "error", err)
		}
	}
}

// poll reloads a change that two consecutive polls have read. The first configuration is
// reloaded, too: it may have changed since it was read.
func (r *reloader) poll(ctx context.Context) {
	digest := r.digest()
	stable := digest == r.seen
	r.seen = digest
	if stable && digest != r.done {
		r.reload(ctx)
	}
}

func (r *reloader) digest() [sha256.Size]byte { return digestOf(r.path, r.files) }

// digestOf returns the digest of a configuration and the files that it names.
func digestOf(configuration string, files []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, path := range append([]string{configuration}, files...) {
		data, err := os.ReadFile(path)
		fmt.Fprintf(h, "%q %d %v\n", path, len(data), err)
		h.Write(data)
	}
	h.Sum(sum[:0])
	return sum
}

// reload reads the configuration and applies or rejects it.
func (r *reloader) reload(ctx context.Context) {
	r.done = r.digest() // before the files are read: later changes are found by the next poll
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
		r.say(slog.LevelError, "the changed configuration is rejected, the former one stays in effect; fix it, no restart is needed", "error", err.Error())
		return
	}
	r.say(slog.LevelWarn, "changes that take effect only after a restart of the agent", "fields", strings.Join(needRestart(r.started, cfg), ", "))
	r.say(slog.LevelWarn, "configuration", "warning", strings.Join(warnings, "; "))
	changed := r.live.use(ctx, next)
	r.live.configuration.load(r.now())
	if len(changed) > 0 {
		r.log.Info("the changed configuration is in effect", "changed", strings.Join(changed, ", "))
	} else if r.said["error"] != "" {
		r.log.Info("the configuration is the one in effect again")
	}
	r.said["error"] = ""
}

// say logs a text under a key, once until it changes; "" logs nothing.
func (r *reloader) say(level slog.Level, message, key, text string) {
	if text != "" && r.said[key] != text {
		r.log.Log(context.Background(), level, message, key, text)
	}
	r.said[key] = text
}

// dropRemoved ends the connections to removed providers without running deployments.
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
