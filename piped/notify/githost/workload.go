package githost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/store"
)

// workloads sets the statuses of commits that workloads name as their source, by annotations or by
// their images, whatever tool deployed them.
//
// Anyone who may write a workload can name any repository and commit. Therefore calls go to the
// configured host only, and only for repositories that the configuration allows.
type workloads struct{ Config }

// Name returns the name of the host and "workloads".
func (w workloads) Name() string { return w.name("workloads") }

// Wants accepts the start, the end and the late completion of rollouts to a commit of this host. Previews of pull
// requests have a status of their own.
func (w workloads) Wants(_ context.Context, n notify.Notice) bool {
	return oneOf(n, deploy.EventRolloutStarted, deploy.EventRolloutEnded, deploy.EventRolloutRecovered) && n.Details.Rollout != nil && !n.IsPreview() && len(w.sources(*n.Details.Rollout)) > 0
}

// Order returns the workload.
func (w workloads) Order(n notify.Notice) string {
	r := n.Details.Rollout
	return r.Cluster + "/" + r.Workload.Key()
}

// source is a commit of a repository on the host.
type source struct {
	path   string // of the repository
	commit string // its hash, or the first characters of it; in lower case
}

// commitHash matches a SHA-1 or SHA-256 hash, or as much of it as images are usually tagged with.
var commitHash = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// sources returns the commits that a workload was made of. Its annotations go before its images.
func (w workloads) sources(r deploy.RolloutEnd) (out []source) {
	add := func(path, commit string) {
		s := source{path, strings.ToLower(commit)}
		if commitHash.MatchString(s.commit) && w.Host.Workloads.Allows(path) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if r.SourceRepository != "" && r.SourceCommit != "" {
		if path, ok := w.API.Repository(r.SourceRepository); ok {
			add(path, r.SourceCommit)
		}
		return out
	}
	for _, image := range r.Images {
		name, commit, ok := w.Host.Workloads.Source(image)
		if !ok {
			continue
		}
		if path, ok := w.API.Repository(w.API.Remote(name)); ok {
			add(path, commit)
		}
	}
	return out
}

// Deliver sets the current status of each commit. If several calls fail, it returns first an error
// after which a retry may succeed.
func (w workloads) Deliver(ctx context.Context, n notify.Notice) error {
	var errs []error
	for _, s := range w.sources(*n.Details.Rollout) {
		err := w.set(ctx, *n.Details.Rollout, s)
		switch {
		case err == nil:
		case deploy.IsKind(err, deploy.Invalid):
			errs = append(errs, err)
		default:
			errs = slices.Insert(errs, 0, err)
		}
	}
	return errors.Join(errs...)
}

// set sets the status of one commit: that of the workload's newest rollout to it, which may have
// begun after r.
func (w workloads) set(ctx context.Context, r deploy.RolloutEnd, s source) error {
	found, err := w.Store.Rollouts(ctx, store.RolloutQuery{Cluster: r.Cluster, Workload: r.Workload, Limit: newestRollouts})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(found, func(rec deploy.Rollout) bool { return slices.Contains(w.sources(rec.Ended()), s) }); i >= 0 {
		r = found[i].Ended()
	}
	status := workloadStatus(r)
	status.Context = w.context(r)
	status.TargetURL = cmp.Or(w.Page.Deployment(r.DeploymentID), w.Page.Rollouts(r.Workload.Namespace))
	remote, hash := w.API.Remote(s.path), s.commit
	if len(hash) != sha1Length && len(hash) != sha256Length {
		if hash, err = w.API.Commit(ctx, remote, hash); err != nil {
			return err
		}
	}
	return w.API.SetStatus(ctx, remote, hash, status)
}

// newestRollouts is how many rollouts of a workload are searched for the newest to a commit.
const newestRollouts = 40

// Lengths of full hashes.
const (
	sha1Length   = 40
	sha256Length = 64
)

// maxContext is the length of a context that every host accepts, in characters.
const maxContext = 255

// context returns the name of a workload's status, which is the same for each of its rollouts.
// Workloads of different kinds can share a name.
func (w workloads) context(r deploy.RolloutEnd) string {
	text := w.Host.ContextPrefix + "/" + r.Cluster + "/" + r.Workload.Namespace + "/" + r.Workload.Name
	if r.Workload.Kind != "Deployment" {
		text += " (" + r.Workload.Kind + ")"
	}
	if utf8.RuneCountInString(text) <= maxContext {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return string([]rune(text)[:maxContext-17]) + "-" + hex.EncodeToString(sum[:8])
}

// workloadStatus returns the status for a rollout, without its context. A rollout that another one
// interrupts, or whose workload is deleted, has neither succeeded nor failed.
func workloadStatus(r deploy.RolloutEnd) githost.Status {
	switch r.Phase {
	case deploy.RolloutComplete:
		return githost.Status{State: githost.StateSuccess, Description: "live: rollout took " + duration(r.Took())}
	case deploy.RolloutNoRollout:
		return githost.Status{State: githost.StateSuccess, Description: "live: no pod had to be replaced"}
	case deploy.RolloutFailed, deploy.RolloutTimedOut:
		if r.RecoveredAt > 0 {
			return githost.Status{State: githost.StateSuccess, Description: "live: the rollout had failed, and completed later"}
		}
		return githost.Status{State: githost.StateFailure, Description: causeFirst(r.Reason)}
	case deploy.RolloutSuperseded, deploy.RolloutGone:
		return githost.Status{State: githost.StateCancelled, Description: r.Reason}
	case deploy.RolloutHeld:
		return githost.Status{State: githost.StateRunning, Description: "paused: " + r.Reason}
	}
	return githost.Status{State: githost.StateRunning, Description: "rolling out: " + r.Reason}
}
