package trigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// answer answers the commands of users and chains: with a deployment of the head, or of the
// commit that the command names, or with the reason for the rejection. It also applies
// decisions about adoptions.
//
// lookup is the error of refresh. If it is set, users' commands are rejected, because an older
// commit must not be deployed in place of a head that could not be read. An oversized head
// is no such error: then head is the last good commit.
func (w *watcher) answer(ctx context.Context, head deploy.Commit, commands []deploy.Command, lookup error) {
	var rs []request
	for _, c := range commands {
		if c.Type == deploy.CommandDecideAdoption {
			w.unanswered(ctx, c, w.decideAdoption(ctx, head, c, lookup))
			continue
		}
		if (lookup != nil || w.paused) && c.Type == deploy.CommandChainSync {
			continue // stays open until the outage ends: only the chain waits for it
		}
		r, refusal, err := w.commandRequest(ctx, head, c, lookup)
		switch {
		case err == nil && refusal != "":
			err = w.refuse(ctx, c, refusal)
		case err == nil:
			rs = append(rs, r)
		}
		w.unanswered(ctx, c, err)
	}
	for i, err := range w.create(ctx, rs) {
		w.unanswered(ctx, deploy.Command{ID: rs[i].CommandID}, err)
	}
}

// unanswered handles the error of answering c; nil is ignored. A *background.Running puts c
// back into the inbox, for the pass that begins when the background work ends. Other errors
// are logged, except a Conflict.
func (w *watcher) unanswered(ctx context.Context, c deploy.Command, err error) {
	var running *background.Running
	switch {
	case errors.As(err, &running):
		w.fill(func(in *inbox) { in.add(c) })
	case err != nil && !ownership.Over(ctx, err) && !deploy.IsKind(err, deploy.Conflict): // a conflict: an earlier pass has answered it
		w.log.Error("cannot answer a sync command; trying again", "command", c.ID, "error", err)
	}
}

// commandRequest returns the deployment that a command requests, or the reason for its
// rejection.
func (w *watcher) commandRequest(ctx context.Context, head deploy.Commit, c deploy.Command, lookup error) (r request, refusal string, err error) {
	switch {
	case lookup != nil:
		return r, "the repository cannot be read: " + lookup.Error(), nil
	case w.paused:
		return r, "the agent is disabled: enable it first", nil
	}
	app, err := w.Store.Application(ctx, c.ApplicationID)
	if err != nil {
		return r, "", err
	}
	wanted := c.Commit
	if c.Type == deploy.CommandChainSync && wanted == "" {
		wanted = app.HeldAt() // a chain does not end a hold
	}
	commit, e, refusal, err := w.entryFor(ctx, app, wanted)
	if err != nil || refusal != "" {
		return r, refusal, err
	}
	provider, problem := e.problem(w.Trigger, app)
	switch {
	case app.Deleted:
		return r, deleted(app.ID), nil
	case app.Disabled:
		return r, disabled(app), nil
	case problem != nil:
		return r, problem.Error(), nil
	}
	if refusal = forbidden(c, e); refusal != "" {
		return r, refusal, nil
	}
	if refusal, err = w.unreviewed(ctx, commit, subject{app, e, provider}, c.ID); refusal != "" || err != nil {
		return r, refusal, err
	}
	refused, err := w.headRefusal(ctx, app, app.Git, head.Hash)
	if err != nil {
		return r, "", err
	}
	r, err = w.newRequest(ctx, app, e, provider, commandTrigger(c, commit))
	r.CommandID, r.Evaluated, r.reason = c.ID, head.Hash, r.Deployment.Trigger.StrategySummary
	r.KeepEvaluated = refused != nil // the head was not evaluated
	if c.Type == deploy.CommandChainSync {
		held := app.HeldAt()
		r.Deployment.ChainID, r.Deployment.ChainBlock, r.Held = c.ChainID, c.ChainBlock, &held
		return r, "", err
	}
	if err == nil {
		r.Hold, err = w.holdFor(ctx, app, c, commit, refused != nil)
	}
	r.First = c.IsRollback() && !c.WaitForRunning
	return r, "", err
}

// entryFor returns the application's configuration at the commit with the hash, or at the
// head if hash is "". refusal explains why there is none.
func (w *watcher) entryFor(ctx context.Context, app deploy.Application, hash string) (commit deploy.Commit, e entry, refusal string, err error) {
	commit = w.catalog.commit
	if hash != "" {
		commit, err = w.repo.Git.Commit(ctx, hash)
		switch {
		case deploy.IsKind(err, deploy.NotFound):
			refusal = fmt.Sprintf("commit %s is not in branch %s of repository %s: name a hash of the branch's history", hash, app.Git.Branch, app.Git.RepoID)
			return commit, e, refusal, nil
		case deploy.IsKind(err, deploy.Invalid):
			return commit, e, err.Error(), nil
		case err != nil:
			return commit, e, "", err
		}
	}
	e, ok := w.catalog.entries[app.ID]
	if commit.Hash != w.catalog.commit.Hash {
		e, ok, err = w.entryAt(ctx, commit, app)
	}
	if err == nil && !ok {
		refusal = fmt.Sprintf("%s does not exist at commit %s", app.Git.ConfigPath(), commit.Short())
	}
	return commit, e, refusal, err
}

// entryAt returns the application's configuration at an earlier commit: at its present
// path, or at one that it had before it was moved.
func (w *watcher) entryAt(ctx context.Context, commit deploy.Commit, app deploy.Application) (e entry, ok bool, err error) {
	for _, former := range append([]deploy.GitPath{app.Git}, app.Former...) {
		if e, ok, err = w.readEntry(ctx, commit, app.Git.In(former.Dir, former.ConfigFile)); ok || err != nil {
			return e, ok, err
		}
	}
	return e, false, nil
}

// forbidden returns why the application's configuration forbids the command, "" if it
// permits it.
func forbidden(c deploy.Command, e entry) string {
	on, field := e.candidate.Config.Trigger.OnCommand, "onCommand"
	what := "syncs by command"
	if c.Type == deploy.CommandChainSync {
		on, field, what = e.candidate.Config.Trigger.OnChain, "onChain", "syncs by a deployment chain"
	}
	if !on.Disabled {
		return ""
	}
	return fmt.Sprintf("%s forbids %s (spec.trigger.%s.disabled)", e.git.ConfigPath(), what, field)
}

// commandTrigger returns the trigger of a deployment that a command requests.
func commandTrigger(c deploy.Command, commit deploy.Commit) deploy.Trigger {
	t := ByHand(commit, cmp.Or(c.Strategy, deploy.StrategyAuto), c.Commander)
	t.OverrideWindows, t.PermitPrune = c.OverrideWindows, c.PermitPrune
	if c.IsRollback() {
		t.StrategySummary = fmt.Sprintf("Rollback to commit %s of deployment %s, asked for by %s", commit.Short(), c.Metadata[deploy.MetaRollbackTo], c.Commander)
		if c.Reason != "" {
			t.StrategySummary += ": " + c.Reason
		}
	}
	switch c.Type {
	case deploy.CommandChainSync:
		t.Kind, t.StrategySummary = deploy.OnChain, fmt.Sprintf("Block %d of deployment chain %s", c.ChainBlock, c.ChainID)
	case deploy.CommandRetry:
		t.RetryOf = c.DeploymentID
		t.StrategySummary = fmt.Sprintf("Deployment %s once more, asked for by %s", c.DeploymentID, c.Commander)
		if n := len(c.PermitPrune); n > 0 {
			t.StrategySummary += fmt.Sprintf("; it may delete %d objects", n)
		}
	}
	return t
}

// ByHand returns the trigger of a deployment that the user subject requests.
func ByHand(commit deploy.Commit, strategy deploy.Strategy, subject string) deploy.Trigger {
	return deploy.Trigger{
		Kind: deploy.OnCommand, Commit: commit, Commander: subject, Strategy: strategy,
		StrategySummary: fmt.Sprintf("Sync by hand (%s) asked for by %s", strategy, subject),
	}
}
