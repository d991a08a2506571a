package trigger

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/git/signature"
	"github.com/c785c783/piped/piped/store"
)

// signedBy are Signatures that want commits signed in the directories of one
// team. They read the commits from the trigger's own mirror.
type signedBy struct {
	env     *env
	keys    *signature.Keys
	descend bool // a head must descend from the one before
}

func (s signedBy) MustDescend(at deploy.GitPath) string {
	if s.descend && strings.HasPrefix(at.Dir, "team") {
		return "team"
	}
	return ""
}

func (s signedBy) Signer(_ context.Context, at deploy.GitPath, commit string) (string, error) {
	if !strings.HasPrefix(at.Dir, "team") {
		return "", nil
	}
	object, err := s.env.trigger.watchers["apps"].repo.Git.CommitObject(commit)
	if err != nil {
		return "", err
	}
	signer, err := s.keys.Verify(object)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "tenancy %q does not allow commit %s: %w", "team", deploy.ShortHash(commit), err)
	}
	return signer, nil
}

// newSignedEnv returns an env in whose team directories only commits of ann count.
func newSignedEnv(t *testing.T, edit ...func(*signedBy)) (l *env, ann gittest.Signer, log *bytes.Buffer) {
	t.Helper()
	ann, log = gittest.NewSSHSigner(t, "ann"), &bytes.Buffer{}
	keys, err := signature.Load(nil, []string{gittest.KeyFile(t, ann)})
	if err != nil {
		t.Fatal(err)
	}
	l = newEnv(t, func(l *env, c *Config) {
		rule := signedBy{env: l, keys: keys}
		for _, f := range edit {
			f(&rule)
		}
		c.Signatures = rule
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	return l, ann, log
}

// wantNotice fails unless the application's notice holds text; "" is none.
func (l *env) wantNotice(dir, text string) {
	l.t.Helper()
	if got := l.app(dir).Notice; (got == "") != (text == "") || !strings.Contains(got, text) {
		l.t.Errorf("the notice of %s is %q, want one with %q", dir, got, text)
	}
}

func (l *env) wantDeployments(dir string, want ...string) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.deployments(dir)); diff != "" {
		l.t.Errorf("deployments of %s: -want +got:\n%s", dir, diff)
	}
}

// TestUnsignedHead: nothing of it counts for those who want it signed, and
// everything for the others; the next good head is compared with the last one.
func TestUnsignedHead(t *testing.T) {
	l, ann, log := newSignedEnv(t)
	mallory := gittest.NewSSHSigner(t, "mallory")
	l.upstream.Sign = ann.Sign
	good := l.push("one", map[string]string{"team/app.pipecd.yaml": appFile("web"), "free/app.pipecd.yaml": appFile("free")})
	l.wantDeployments("team", "one PENDING")
	l.wantNotice("team", "")

	for _, sign := range []func([]byte) (string, error){nil, mallory.Sign} {
		l.upstream.Sign = sign
		l.push("two", map[string]string{
			"team/app.pipecd.yaml": appFile("hijacked", "  labels: {a: b}"), "team/x.yaml": "x", "free/x.yaml": appFile("x"),
			"team/new/app.pipecd.yaml": appFile("new"),
		})
	}
	l.wantDeployments("team", "one PENDING")
	l.wantNotice("team", `tenancy "team" does not allow commit`)
	l.wantNotice("free", "")
	if app := l.app("team"); app.Name != "web" || len(app.Labels) > 0 || app.EvaluatedCommit != good || app.Sync.Status == deploy.SyncInvalidConfig {
		t.Errorf("the application was changed: %+v", app)
	}
	if diff := cmp.Diff([]string{"free", "team"}, l.registered()); diff != "" {
		t.Errorf("registered: -want +got:\n%s", diff)
	}
	candidates, err := l.store.Candidates(t.Context())
	if err != nil || len(candidates) != 1 || candidates[0].Name != "" ||
		!strings.HasPrefix(candidates[0].Reason, `It is not read, because the head does not count for it: tenancy "team" does not allow commit`) {
		t.Errorf("candidates: %+v, %v", candidates, err)
	}
	l.wantDeployments("free", "one CANCELLED", "two PENDING")

	before := strings.Count(log.String(), "the head does not count")
	l.poll()
	if n := strings.Count(log.String(), "the head does not count"); n != before || before != 2 { // one for each head
		t.Errorf("the log says %d times that a head does not count, and then %d", before, n)
	}

	l.upstream.Sign = ann.Sign
	l.push("three", map[string]string{"other": "x"})
	l.wantNotice("team", "")
	l.wantDeployments("team", "one CANCELLED", "three PENDING") // two changed it, and three brings that
	if app := l.app("team"); app.Name != "hijacked" {           // ann has signed it
		t.Errorf("the name is %q", app.Name)
	}
	if diff := cmp.Diff([]string{"free", "team", "team/new"}, l.registered()); diff != "" {
		t.Errorf("registered: -want +got:\n%s", diff)
	}
}

// TestUnsignedRemoval: a head that does not count takes no application away.
func TestUnsignedRemoval(t *testing.T) {
	l, ann, _ := newSignedEnv(t)
	l.upstream.Sign = ann.Sign
	l.push("one", map[string]string{"team/app.pipecd.yaml": appFile("web"), "other": "x"})
	l.upstream.Sign = nil
	l.remove("team")
	l.wantNotice("team", "it is not signed")
	if s := l.app("team").Sync.Status; s == deploy.SyncInvalidConfig {
		t.Errorf("its status is %s", s)
	}
	l.upstream.Sign = ann.Sign
	l.push("signed", map[string]string{"other": "y"})
	l.wantNotice("team", "")
	l.wantInvalid("team", "no longer exists")
}

// TestCommandsForUnsignedCommits: what is asked for by hand or by a chain is
// refused for a commit that does not count, and made for one that does.
func TestCommandsForUnsignedCommits(t *testing.T) {
	l, ann, _ := newSignedEnv(t)
	l.upstream.Sign = ann.Sign
	good := l.push("one", map[string]string{"team/app.pipecd.yaml": appFile("web")})
	l.upstream.Sign = nil
	bad := l.push("two", map[string]string{"team/x.yaml": "x"})

	ask := func(c deploy.Command) string {
		t.Helper()
		c.ID, c.ApplicationID, c.Commander, c.Strategy = l.newID(), appID("team"), "bob", deploy.StrategyQuickSync
		made, err := l.store.CreateCommand(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	head, named := ask(deploy.Command{Type: deploy.CommandSync}), ask(deploy.Command{Type: deploy.CommandSync, Commit: bad})
	older := ask(deploy.Command{Type: deploy.CommandSync, Commit: good})
	l.poll()
	l.wantRefused(head, "it is not signed")
	l.wantRefused(named, "it is not signed")
	if c := l.command(older); c.Status != deploy.CommandSucceeded {
		t.Errorf("the sync of a signed commit is %s: %v", c.Status, c.Metadata)
	}
	if app := l.app("team"); app.EvaluatedCommit != good {
		t.Errorf("the evaluated commit is %s, want %s: the head was not evaluated", app.EvaluatedCommit, good)
	}
	l.upstream.Sign = ann.Sign
	l.push("three", map[string]string{"other": "x"})
	if got := l.deployments("team"); got[len(got)-1] != "three PENDING" {
		t.Errorf("deployments: %v", got)
	}
}

// TestUnsignedDrift: nothing is healed with a head that does not count.
func TestUnsignedDrift(t *testing.T) {
	l, ann, _ := newSignedEnv(t)
	l.upstream.Sign = ann.Sign
	l.push("one", map[string]string{"team/app.pipecd.yaml": appFile("web")})
	l.run("team")
	if _, err := l.store.UpdateDeployment(t.Context(), l.all("team")[0].ID, func(d *deploy.Deployment) error {
		return d.Complete(deploy.Success, "", l.clock())
	}); err != nil {
		t.Fatal(err)
	}
	l.upstream.Sign = nil
	l.push("two", map[string]string{"team/x.yaml": "x"})
	if _, err := l.store.SetSyncState(t.Context(), appID("team"), deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "x", At: l.clock()}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.poll()
	}
	l.wantDeployments("team", "one SUCCESS")
}

// TestUnsignedCommitIsNotTakenOver: what runs of a commit that does not count is
// not deployed again as it was; the head is, as new.
func TestUnsignedCommitIsNotTakenOver(t *testing.T) {
	l, ann, _ := newSignedEnv(t)
	bad := l.upstream.Push(t, "unsigned", map[string]string{"team/app.pipecd.yaml": appFile("web"), "free/app.pipecd.yaml": appFile("free")})
	l.trigger.Live = runningAt(bad)
	l.upstream.Sign = ann.Sign
	l.push("signed", map[string]string{"team/x.yaml": "x"})
	l.wantDeployments("team", "signed PENDING")
	l.wantDeployments("free", "unsigned PENDING")
}

// runningAt is Live where everything runs as at a commit.
type runningAt string

func (r runningAt) RunningCommits(context.Context, string, deploy.GitPath, string) ([]string, error) {
	return []string{string(r)}, nil
}

// TestSignaturesThatCannotBeRead: that is an outage, and no verdict.
func TestSignaturesThatCannotBeRead(t *testing.T) {
	l := newEnv(t, func(_ *env, c *Config) { c.Signatures = unreadable{} })
	l.push("one", map[string]string{"team/app.pipecd.yaml": appFile("web")})
	apps, _, err := l.store.ListApplications(t.Context(), store.ApplicationQuery{IncludeAll: true})
	if err != nil || len(apps) != 0 {
		t.Errorf("applications: %v, %v", apps, err)
	}
	l.trigger.Signatures = nil
	l.poll()
	l.wantDeployments("team", "one PENDING")
}

type unreadable struct{}

func (unreadable) MustDescend(deploy.GitPath) string { return "" }

func (unreadable) Signer(context.Context, deploy.GitPath, string) (string, error) {
	return "", deploy.Errorf(deploy.Unavailable, "the disk is gone")
}

func (r runningAt) Foreign(context.Context, string, deploy.Application, string) ([]deploy.AdoptedObject, error) {
	return nil, nil
}

// TestAnOlderSignedCommit: pushing back to it brings it back, unless a head must descend
// from the one before.
func TestAnOlderSignedCommit(t *testing.T) {
	for _, descend := range []bool{false, true} {
		l, ann, _ := newSignedEnv(t, func(s *signedBy) { s.descend = descend })
		l.upstream.Sign = ann.Sign
		files := map[string]string{"team/app.pipecd.yaml": appFile("web"), "team/x.yaml": "1", "free/app.pipecd.yaml": appFile("free"), "free/x.yaml": "1"}
		first := l.push("one", files)
		second := l.push("two", map[string]string{"team/x.yaml": "2", "free/x.yaml": "2"})
		must(t, l.upstream.Reset(first))
		for range 2 {
			l.poll()
		}
		l.wantDeployments("free", "one CANCELLED", "two CANCELLED", "one PENDING")
		if !descend {
			l.wantDeployments("team", "one CANCELLED", "two CANCELLED", "one PENDING")
			continue
		}
		l.wantDeployments("team", "one CANCELLED", "two PENDING")
		l.wantNotice("team", "does not descend from commit "+second[:7])
		l.wantRefusedSync("team", "does not descend")
		if got := l.app("team").EvaluatedCommit; got != second {
			t.Errorf("the evaluated commit is %s, want %s", got, second)
		}
		// Another history from there on, signed and newer, is none that was agreed on.
		l.push("three", map[string]string{"team/x.yaml": "3"})
		l.wantDeployments("team", "one CANCELLED", "two PENDING")
		must(t, l.upstream.Reset(second))
		l.push("four", map[string]string{"team/x.yaml": "4"})
		l.wantNotice("team", "")
		l.wantDeployments("team", "one CANCELLED", "two CANCELLED", "four PENDING")
	}
}

// wantRefusedSync fails unless a sync by hand of the head is refused for a reason that
// holds text.
func (l *env) wantRefusedSync(dir, text string) {
	l.t.Helper()
	id := l.askSync(dir)
	l.poll()
	l.wantRefused(id, text)
}
