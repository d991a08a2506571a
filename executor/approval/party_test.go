package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// history is a repository whose commits between "running" and the deployed commit are fixed.
type history struct {
	commits []deploy.Commit
	asked   []string

	mu  sync.Mutex
	err error
}

// answer replaces the error of the next reads.
func (h *history) answer(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *history) ChangedBy(_ context.Context, repoID, base, commit string, dirs ...string) ([]deploy.Commit, error) {
	h.asked = append(h.asked, fmt.Sprintf("%s %s..%s %s", repoID, base, commit, strings.Join(dirs, " ")))
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits, h.err
}

const (
	hash      = "c0ffee0000000000000000000000000000000000"
	requested = " has requested this deployment, and this stage requires the approval of another person (requireOther)"
	authored  = " is the author of commit c0ffee0, and this stage requires the approval of another person (requireOther)"
	committed = " is the committer of commit c0ffee0, and this stage requires the approval of another person (requireOther)"
)

// byAnn is a commit that Ann wrote and Ben committed.
func byAnn() deploy.Commit {
	return deploy.Commit{Hash: hash, Author: "Ann Lee", AuthorEmail: "ann@example.com", Committer: "ben", CommitterEmail: "Ben@Example.com"}
}

// TestRequireOther: approvals of those who requested or committed the deployment do not
// count, and the answer says why. All others count.
func TestRequireOther(t *testing.T) {
	noreply := func(email string) deploy.Trigger {
		return deploy.Trigger{Kind: deploy.OnCommit, Commit: deploy.Commit{Hash: hash, Author: "Ann Lee", AuthorEmail: email}}
	}
	cases := []struct {
		name    string
		trigger deploy.Trigger
		refused map[string]string // subject: reason after the subject
		counts  []string
	}{
		{"a commit", deploy.Trigger{Kind: deploy.OnCommit, Commit: byAnn()}, map[string]string{
			"Ann Lee": authored, "ann@example.com": authored, "ANN@EXAMPLE.COM": authored, "ann lee": authored,
			"Ben": committed, "ben@example.com": committed,
		}, []string{"ann", "Lee", "ann@example.org", "ben@example.com.evil.example", "cleo"}},
		{"a request", deploy.Trigger{Kind: deploy.OnCommand, Commander: "dan", Commit: byAnn()}, map[string]string{
			"dan": requested, "DAN": requested, "ann lee": authored,
		}, []string{"daniel", "cleo"}},
		{"a request of the author", deploy.Trigger{Kind: deploy.OnCommand, Commander: "ann@example.com", Commit: byAnn()}, map[string]string{
			"ann@example.com": requested,
		}, []string{"cleo"}},
		{"self-healing", deploy.Trigger{Kind: deploy.OnOutOfSync, Commit: byAnn()}, map[string]string{"ann lee": authored}, []string{"cleo"}},
		{"a commit that an earlier version stored", deploy.Trigger{Kind: deploy.OnCommit, Commit: deploy.Commit{Hash: hash, Author: "Ann Lee"}},
			map[string]string{"Ann Lee": authored}, []string{"ann@example.com", "ben"}},
		{"a hidden address of GitHub", noreply("12345+ann-lee@users.noreply.github.com"),
			map[string]string{"ann-lee": authored, "12345+ann-lee@users.noreply.github.com": authored}, []string{"ann", "lee"}},
		{"an older hidden address of GitHub", noreply("ann-lee@users.noreply.github.com"), map[string]string{"ann-lee": authored}, []string{"ann"}},
		{"a hidden address of GitLab", noreply("12345-ann@users.noreply.gitlab.com"), map[string]string{"ann": authored}, []string{"12345"}},
		{"an ordinary address", noreply("12345+ann@example.com"), map[string]string{"12345+ann@example.com": authored}, []string{"ann", "12345+ann"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			prepare := func(e *env) { e.trigger = c.trigger }
			options := fmt.Sprintf(`{"requireOther": true, "minApproverNum": %d}`, len(c.counts))
			inBubbleOf(t, options, prepare, func(t *testing.T, e *env) {
				e.execute(false)
				for subject, why := range c.refused {
					e.approve(subject, subject)
					e.wantAnswer(subject, deploy.CommandFailed, subject+why)
				}
				e.wantWaiting()
				for _, subject := range c.counts {
					e.approve(subject, subject)
					e.wantAnswer(subject, deploy.CommandSucceeded, "")
				}
				e.wantEnd(deploy.StageSuccess, "")
				e.wantMetadata("ApprovedBy", strings.Join(c.counts, ", "))
				want := []string{
					fmt.Sprintf("Waiting for %s of anyone who neither requested nor committed it, until %s", approvals(len(c.counts)), e.start.Add(6*time.Hour).UTC().Format(time.RFC3339)),
					"Those who requested this deployment or committed what it deploys cannot approve it (requireOther)",
				}
				if diff := cmp.Diff(want, e.log.Lines()[:2]); diff != "" {
					t.Errorf("start of the log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func approvals(n int) string {
	if n == 1 {
		return "1 approval"
	}
	return fmt.Sprintf("%d approvals", n)
}

// TestRequireOtherIsOptional: without the option those who requested and committed may
// approve, as in PipeCD.
func TestRequireOtherIsOptional(t *testing.T) {
	prepare := func(e *env) {
		e.trigger, e.running = deploy.Trigger{Kind: deploy.OnCommand, Commander: "dan", Commit: byAnn()}, "running"
		e.history = &history{err: errors.New("must not be read")}
	}
	inBubbleOf(t, `{"minApproverNum": 2}`, prepare, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("requester", "dan")
		e.approve("author", "ann@example.com")
		e.wantEnd(deploy.StageSuccess, "")
	})
}

// TestRequireOtherRejection: those who requested or committed may always reject.
func TestRequireOtherRejection(t *testing.T) {
	for _, subject := range []string{"dan", "ann@example.com", "ben"} {
		prepare := func(e *env) { e.trigger = deploy.Trigger{Kind: deploy.OnCommand, Commander: "dan", Commit: byAnn()} }
		inBubbleOf(t, `{"requireOther": true, "minApproverNum": 2}`, prepare, func(t *testing.T, e *env) {
			e.execute(false)
			e.approve("yes", "cleo")
			e.ask("no", deploy.CommandRejectStage, subject, "a mistake")
			e.wantEnd(deploy.StageFailure, "rejected by "+subject+": a mistake")
			e.wantAnswer("no", deploy.CommandSucceeded, "")
		})
	}
}

// TestRequireOtherIsOfApprovers: a named approver and the member of a group that approves are
// refused, too, if they committed.
func TestRequireOtherIsOfApprovers(t *testing.T) {
	prepare := func(e *env) { e.trigger = deploy.Trigger{Kind: deploy.OnCommit, Commit: byAnn()} }
	inBubbleOf(t, `{"requireOther": true, "approvers": ["ann@example.com", "group:payments"]}`, prepare, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("named", "ann@example.com")
		e.wantAnswer("named", deploy.CommandFailed, "ann@example.com"+authored)
		e.approve("member", "ben", "payments")
		e.wantAnswer("member", deploy.CommandFailed, "ben"+committed)
		e.approve("stranger", "cleo")
		e.wantAnswer("stranger", deploy.CommandFailed, "cleo is not an approver of this stage; the approvers are: ann@example.com, group payments")
		e.wantWaiting()
		e.approve("another member", "dan", "payments")
		e.wantEnd(deploy.StageSuccess, "")
	})
}

// TestRequireOtherOfEarlierCommits: the authors of the commits since the running one do not
// approve either. They are read once.
func TestRequireOtherOfEarlierCommits(t *testing.T) {
	h := &history{commits: []deploy.Commit{byAnn(), {Hash: "decaf00123", Author: "cleo", Committer: "GitHub", CommitterEmail: "noreply@github.com"}}}
	prepare := func(e *env) {
		e.trigger, e.running, e.history = deploy.Trigger{Kind: deploy.OnCommit, Commit: byAnn()}, "running", h
	}
	inBubbleOf(t, `{"requireOther": true}`, prepare, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("earlier", "cleo")
		e.wantAnswer("earlier", deploy.CommandFailed, "cleo is the author of commit decaf00, and this stage requires the approval of another person")
		e.approve("deployed", "Ann Lee")
		e.wantAnswer("deployed", deploy.CommandFailed, "Ann Lee"+authored)
		e.approve("other", "dan")
		e.wantEnd(deploy.StageSuccess, "")
	})
	if diff := cmp.Diff([]string{"r running.." + hash + " ."}, h.asked); diff != "" {
		t.Errorf("histories read (-want +got):\n%s", diff)
	}
}

// TestRequireOtherWithoutHistory: while the repository cannot be read, approvals wait and
// rejections count. If the running commit is gone, only the deployed commit counts.
func TestRequireOtherWithoutHistory(t *testing.T) {
	prepare := func(err error) func(*env) {
		return func(e *env) {
			e.trigger, e.running = deploy.Trigger{Kind: deploy.OnCommit, Commit: byAnn()}, "running"
			e.history = &history{err: err}
		}
	}
	unavailable := deploy.Errorf(deploy.Unavailable, "repository r has not been read yet")
	t.Run("unavailable for a while", func(t *testing.T) {
		inBubbleOf(t, `{"requireOther": true}`, prepare(unavailable), func(t *testing.T, e *env) {
			e.execute(false)
			e.approve("c", "dan")
			time.Sleep(time.Minute)
			synctest.Wait()
			e.wantAnswer("c", deploy.CommandOpen, "")
			const line = "ERROR Approvals cannot be counted yet; trying again: find out who requested and committed what deployment d deploys: repository r has not been read yet"
			if n := len(slices.DeleteFunc(e.log.Lines(), func(s string) bool { return s != line })); n != 1 {
				t.Errorf("the log says it %d times, want once: %q", n, e.log.Lines())
			}
			e.history.(*history).answer(nil)
			time.Sleep(30 * time.Second)
			e.wantEnd(deploy.StageSuccess, "")
			e.wantAnswer("c", deploy.CommandSucceeded, "")
		})
	})
	t.Run("a rejection meanwhile", func(t *testing.T) {
		inBubbleOf(t, `{"requireOther": true}`, prepare(unavailable), func(t *testing.T, e *env) {
			e.execute(false)
			e.approve("yes", "dan")
			e.ask("no", deploy.CommandRejectStage, "cleo", "no")
			e.wantEnd(deploy.StageFailure, "rejected by cleo: no")
		})
	})
	t.Run("the running commit is gone", func(t *testing.T) {
		inBubbleOf(t, `{"requireOther": true}`, prepare(deploy.Errorf(deploy.NotFound, "commit running is not in the mirror")), func(t *testing.T, e *env) {
			e.execute(false)
			e.approve("author", "Ann Lee")
			e.wantAnswer("author", deploy.CommandFailed, "Ann Lee"+authored)
			const line = "Of the commits, requireOther considers only c0ffee0: commit running is not in the mirror"
			if !slices.Contains(e.log.Lines(), line) {
				t.Errorf("the log lacks %q: %q", line, e.log.Lines())
			}
			e.approve("other", "dan")
			e.wantEnd(deploy.StageSuccess, "")
		})
	})
}

// TestRequireOtherInAChain: who requested the first deployment of a chain does not approve a
// later one.
func TestRequireOtherInAChain(t *testing.T) {
	prepare := func(e *env) {
		a := deploy.Application{ID: "first", Name: "first", Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: "first"}}
		if _, err := e.store.PutApplication(e.t.Context(), a); err != nil {
			e.t.Fatal(err)
		}
		_, err := e.store.CreateDeployment(e.t.Context(), store.NewDeployment{
			Deployment: deploy.Deployment{
				ID: "d0", ApplicationID: "first", ApplicationName: "first", Status: deploy.Pending, ChainID: "chain",
				Trigger: deploy.Trigger{Kind: deploy.OnCommand, Commander: "dan", Commit: byAnn()},
			},
			Chain: &deploy.Chain{ID: "chain", Blocks: []deploy.ChainBlock{{}}},
		})
		if err != nil {
			e.t.Fatal(err)
		}
		e.chainID, e.trigger = "chain", deploy.Trigger{Kind: deploy.OnChain, Commander: "chain", Commit: byAnn()}
	}
	inBubbleOf(t, `{"requireOther": true}`, prepare, func(t *testing.T, e *env) {
		e.execute(false)
		e.approve("requester", "dan")
		e.wantAnswer("requester", deploy.CommandFailed, "dan"+requested)
		e.approve("other", "cleo")
		e.wantEnd(deploy.StageSuccess, "")
	})
}
