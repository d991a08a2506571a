package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// maxChangesBackoff bounds the backoff for an unavailable repository, which starts at
// one second and doubles. After that the stage runs as if skipOn did not apply.
const maxChangesBackoff = 4 * time.Second

// evaluateSkipOn returns why a stage's skipOn skips it, "" if it does not. If skipOn cannot
// be evaluated the stage runs, since an unneeded wait or approval is the safe choice; the
// stage's log explains that. The error is one of the store.
func (r *run) evaluateSkipOn(ctx context.Context, stage deploy.Stage) (string, error) {
	if len(stage.SkipOn) == 0 {
		return "", nil
	}
	log, err := r.s.logs.open(context.WithoutCancel(ctx), r.id, stage.ID, r.s.Now)
	if err != nil {
		return "", err
	}
	reason, doubt := r.matchSkipOn(ctx, stage.SkipOn)
	switch {
	case ctx.Err() != nil:
		return "", nil
	case reason != "":
		log.Infof("The stage is %s", reason)
	case doubt != "":
		log.Infof("%s; the stage is not skipped", doubt)
	}
	return reason, r.s.logs.flush(context.WithoutCancel(ctx))
}

// matchSkipOn returns why skipOn applies, or why it could not be evaluated. Both are ""
// if it does not apply.
func (r *run) matchSkipOn(ctx context.Context, skipOn json.RawMessage) (reason, doubt string) {
	var o config.SkipOptions
	if err := json.Unmarshal(skipOn, &o); err != nil {
		return "", fmt.Sprintf("skipOn cannot be read: %v", err)
	}
	for _, prefix := range o.CommitMessagePrefixes {
		if strings.HasPrefix(r.d.Trigger.Commit.Message, prefix) {
			return fmt.Sprintf("skipped: the commit's message begins with %q (skipOn.commitMessagePrefixes)", prefix), ""
		}
	}
	switch {
	case len(o.Paths) == 0:
		return "", ""
	case r.d.RunningCommit == "":
		return "", "skipOn.paths has nothing to compare with: the application has no running commit"
	}
	files, err := r.changed(ctx)
	if err != nil {
		return "", fmt.Sprintf("skipOn.paths cannot be evaluated: what changed since the running commit %s is unknown: %v", deploy.ShortHash(r.d.RunningCommit), err)
	}
	for _, file := range files {
		if !o.Paths.MatchCombined(file) {
			return "", ""
		}
	}
	if len(files) == 0 {
		return fmt.Sprintf("skipped: nothing changed since the running commit %s (skipOn.paths)", deploy.ShortHash(r.d.RunningCommit)), ""
	}
	return fmt.Sprintf("skipped: every file changed since the running commit %s matches skipOn.paths", deploy.ShortHash(r.d.RunningCommit)), ""
}

// changed returns the paths that differ between the running and the target commit. It
// retries while the repository is unavailable.
func (r *run) changed(ctx context.Context) ([]string, error) {
	for rest := time.Second; ; rest *= 2 {
		files, err := r.s.Changes.Changed(ctx, r.d.Git, r.d.RunningCommit, r.d.Trigger.Commit.Hash)
		if !deploy.IsKind(err, deploy.Unavailable) || rest > maxChangesBackoff {
			return files, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(rest):
		}
	}
}
