package opentofu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	config "github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/opentofu"
	"github.com/c785c783/piped/piped/source"
)

// restore writes a plan to where Apply expects it.
func (s *session) restore(saved SavedPlan) error {
	sum := sha256.Sum256(saved.Data)
	if hex.EncodeToString(sum[:]) != saved.Digest {
		return fmt.Errorf("the stored plan does not have the digest %s: it is damaged, or was changed; sync again", short(saved.Digest))
	}
	if err := os.WriteFile(s.PlanPath(), saved.Data, 0o600); err != nil {
		return deploy.Errorf(deploy.Unavailable, "write the plan: %w", err)
	}
	return nil
}

// apply applies the plan of the session, which the log has shown. After an interruption, and before
// a retry, it makes a new plan and goes on only with what is left of the first. If the state has
// changed since the plan was made, the error is opentofu.ErrStale, and with replan nothing else: the
// caller makes a new plan. Without replan it says what has moved.
func (e *Executor) apply(ctx context.Context, run deploy.StageRun, s *session, replan bool) error {
	var options config.ApplyOptions
	if err := json.Unmarshal(run.Stage.Options, &options); err != nil {
		return fmt.Errorf("read the options of the stage: %w", err)
	}
	approved, err := s.Saved(ctx)
	if err != nil {
		return err
	}
	if err := e.confirm(ctx, run, options, approved); err != nil {
		return err
	}
	again, intent := run.Stage.Metadata[metaIntent] != "", ""
	if again {
		run.Log.Infof("The apply was interrupted when the agent ended; looking for what is left of plan %s", short(approved.Digest))
	} else {
		// The value is unique, so that of two agents only one applies.
		intent = approved.Digest + " " + uuid.NewString()
		if err := run.SwapMetadata(ctx, metaIntent, "", intent); err != nil {
			return fmt.Errorf("record that the plan is about to be applied: %w", err)
		}
	}
	for attempt := 0; ; attempt++ {
		err := e.attempt(ctx, run, s, approved, again, replan)
		if err == nil {
			return e.conclude(ctx, run, s)
		}
		if errors.Is(err, opentofu.ErrStale) && !again { // nothing was applied
			return errors.Join(run.SwapMetadata(ctx, metaIntent, intent, ""), err)
		}
		var final failure
		if errors.As(err, &final) || ctx.Err() != nil || attempt >= options.Retries {
			return err
		}
		again = true
		run.Log.Errorf("%v", err)
		run.Log.Infof("Trying again in %s (%d of %d)", e.RetryAfter, attempt+1, options.Retries)
		select {
		case <-ctx.Done():
		case <-time.After(e.RetryAfter):
		}
	}
}

// attempt applies the approved plan, or what is left of it. replan is as in apply.
func (e *Executor) attempt(ctx context.Context, run deploy.StageRun, s *session, approved opentofu.Plan, again, replan bool) error {
	if again && s.Replaces() {
		return failure{errors.New("the apply was interrupted, and input.commandFlags.plan has -replace: the agent cannot determine what is left of the plan: look at the resources, and sync again"), false}
	}
	if again {
		left, err := e.plan(ctx, run, s)
		switch {
		case err != nil:
			return err
		case left.IsEmpty:
			run.Log.Infof("Nothing is left of the plan")
			return nil
		}
		if news := left.LeftOf(approved); news != "" {
			return failure{fmt.Errorf("a new plan does more than what is left of plan %s: %s; nothing more is applied: sync again", short(approved.Digest), news), false}
		}
		run.Log.Infof("What is left: %s", left.Summary())
	}
	err := e.whileLocked(ctx, run, s, func() error { return s.Run.Apply(ctx) })
	if !errors.Is(err, opentofu.ErrStale) || replan && !again {
		return err
	}
	now, planErr := e.plan(ctx, run, s)
	if planErr != nil {
		return failure{fmt.Errorf("%w; cannot determine what has changed: %w", err, planErr), nothingApplied(run, again)}
	}
	return failure{fmt.Errorf("plan %s was not applied: %w: %s; sync again", short(approved.Digest), err, now.Moved(approved)), nothingApplied(run, again)}
}

// nothingApplied reports whether the deployment has changed nothing yet, so that a rollback would
// only undo the changes of other runs.
func nothingApplied(run deploy.StageRun, again bool) bool {
	return !again && !slices.ContainsFunc(run.Deployment.Stages, func(s deploy.Stage) bool { return s.ID != run.Stage.ID && s.Metadata[metaIntent] != "" })
}

// confirm fails the stage if the plan destroys more resources than are permitted without a
// confirmation. It records them, so that a user can permit it.
func (e *Executor) confirm(ctx context.Context, run deploy.StageRun, options config.ApplyOptions, plan opentofu.Plan) error {
	destroyed := plan.Destroyed()
	if options.ConfirmDestroyAbove == nil || len(destroyed) <= *options.ConfirmDestroyAbove {
		return nil
	}
	var refs []deploy.ObjectRef
	var names []string
	permitted := true
	for _, r := range destroyed {
		ref := Ref(run.Deployment.Git, r)
		refs, names = append(refs, ref), append(names, r.Address)
		permitted = permitted && slices.ContainsFunc(run.Deployment.Trigger.PermitPrune, func(p deploy.ObjectRef) bool { return p.Key() == ref.Key() })
	}
	if permitted {
		run.Log.Infof("%s has permitted that %d resources are destroyed or replaced", run.Deployment.Trigger.Commander, len(refs))
		return nil
	}
	text, err := json.Marshal(refs)
	if err != nil {
		return err
	}
	if err := run.SaveMetadata(ctx, map[string]string{deploy.MetaPruneRefused: string(text)}); err != nil {
		return fmt.Errorf("record what the stage would destroy: %w", err)
	}
	return failure{fmt.Errorf("the plan would destroy or replace %d resources, more than the limit of %d (confirmDestroyAbove), so nothing is applied; "+
		"if that is wanted, permit it: pipectl application sync --app-id=%s --confirm-destroy. Resources: %s",
		len(refs), *options.ConfirmDestroyAbove, run.Deployment.ApplicationID, strings.Join(names, ", ")), nothingApplied(run, run.Stage.Metadata[metaIntent] != "")}
}

// initialized calls do with a session of which nothing is written to a log, and closes it.
func initialized(ctx context.Context, s *session, do func() error) error {
	defer s.close()
	err := s.Init(ctx)
	if err == nil {
		err = do()
	}
	return s.redactor.Error(err)
}

// Refresh returns how the resources of an application differ from its state, with sensitive values
// masked.
func (e *Executor) Refresh(ctx context.Context, app deploy.Application) (out []ShownChange, err error) {
	last := app.LastSuccessful
	if last == nil {
		return nil, nil
	}
	s, err := e.open(ctx, app.Kind, app.Provider, last.At(app.Git), last.Trigger.Commit.Hash, silence{})
	if err != nil {
		return nil, err
	}
	err = initialized(ctx, s, func() error {
		plan, err := s.Refresh(ctx)
		out = shownChanges(opentofu.Plan{Changes: plan.Drift}, s.redactor.Text)
		return err
	})
	return out, err
}

// Preview returns what a deployment of an application with these files would change, with
// sensitive values masked, and that in one line.
func (e *Executor) Preview(ctx context.Context, kind string, d deploy.Deployment, files source.Files) (out []ShownChange, summary string, err error) {
	s, err := e.openIn(ctx, files, kind, d.Provider, d.Git, d.Trigger.Commit.Hash, silence{})
	if err != nil {
		return nil, "", err
	}
	err = initialized(ctx, s, func() error {
		plan, err := s.Preview(ctx)
		if err == nil {
			out, summary = shownChanges(plan, s.redactor.Text), plan.Summary()
		}
		return err
	})
	return out, summary, err
}

// silence is a stage log that keeps nothing.
type silence struct{}

func (silence) Infof(string, ...any)    {}
func (silence) Successf(string, ...any) {}
func (silence) Errorf(string, ...any)   {}
