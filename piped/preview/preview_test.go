package preview

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// merge is Repositories of which only the merge matters: it ends with an error.
type merge func(ctx context.Context) error

func (f merge) Merge(ctx context.Context, _, _, _, _ string) (*git.Merge, error) { return nil, f(ctx) }

func (f merge) Foresee(context.Context, string, *git.Merge) ([]deploy.AffectedApplication, error) {
	panic("nothing was merged")
}

// env is a store in a bubble of testing/synctest.
type env struct {
	t     *testing.T
	store *store.Store
}

func inBubble(t *testing.T, test func(l env)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), storetest.Ready(t), store.Options{Key: storetest.Key()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(env{t, s})
	})
}

// run runs a previewer until the function that it returns is called.
func (l env) run(f merge) (stop func()) {
	p := New(Config{Store: l.store, Repositories: f, Workers: 1, Timeout: time.Minute, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)), Now: time.Now})
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	}
}

func (l env) ask(id string, timeout time.Duration) {
	l.t.Helper()
	_, err := l.store.CreateCommand(l.t.Context(), deploy.Command{
		ID: id, Type: deploy.CommandBuildPlanPreview, PlanPreview: &deploy.PlanPreviewRequest{RepoID: "apps", Timeout: timeout},
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l env) want(id string, status deploy.CommandStatus, text string) {
	l.t.Helper()
	c, err := l.store.Command(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	p, err := l.store.PlanPreview(l.t.Context(), id)
	if c.Status != status || (status == deploy.CommandOpen) != (err != nil) || !strings.Contains(p.Error, text) || p.Error != c.Metadata[deploy.MetaReason] {
		l.t.Errorf("%s is %s because %q, %v, want %s because %q", id, c.Status, p.Error, err, status, text)
	}
}

// hang ends with its context.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestTimeouts: a preview ends when its time is over, which begins when it is asked
// for: also behind others, and while the agent did not run.
func TestTimeouts(t *testing.T) {
	inBubble(t, func(l env) {
		l.ask("early", 10*time.Second)
		time.Sleep(time.Hour)
		l.ask("own", 20*time.Second)
		time.Sleep(time.Second)
		l.ask("default", 0)
		defer l.run(hang)()
		synctest.Wait()
		l.want("early", deploy.CommandTimeout, "timed out before the plan preview was built, in 10s")
		l.want("own", deploy.CommandOpen, "")
		time.Sleep(19*time.Second + time.Millisecond)
		synctest.Wait()
		l.want("own", deploy.CommandTimeout, "in 20s")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.want("default", deploy.CommandTimeout, "in 1m0s")
	})
}

// TestInterrupted: what is being built when the agent stops is built after the next
// start, and answered once.
func TestInterrupted(t *testing.T) {
	inBubble(t, func(l env) {
		stop := l.run(hang)
		l.ask("p", time.Hour)
		synctest.Wait()
		stop()
		l.want("p", deploy.CommandOpen, "")
		built := 0
		defer l.run(func(context.Context) error {
			built++
			return deploy.Errorf(deploy.Invalid, "conflicts")
		})()
		synctest.Wait()
		l.want("p", deploy.CommandFailed, "conflicts")
		time.Sleep(time.Hour)
		if built != 1 {
			l.t.Errorf("built %d times", built)
		}
	})
}

// TestOldPreviewsAreRemoved: the safety net removes previews that can no longer be requested.
func TestOldPreviewsAreRemoved(t *testing.T) {
	inBubble(t, func(l env) {
		defer l.run(func(context.Context) error { return deploy.Errorf(deploy.Invalid, "conflicts") })()
		l.ask("p", 0)
		time.Sleep(KeepFor - time.Minute)
		l.want("p", deploy.CommandFailed, "conflicts")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := l.store.PlanPreview(l.t.Context(), "p"); !deploy.IsKind(err, deploy.NotFound) {
			l.t.Errorf("it can still be read: %v", err)
		}
	})
}
