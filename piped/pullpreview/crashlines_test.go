package pullpreview

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestLogsOfAFailedPreview: the last lines of pods that fail later are read once. While there are
// none, or they cannot be read, which the comment says, they are read once a minute.
func TestLogsOfAFailedPreview(t *testing.T) {
	e := newEnv(t)
	e.app("web", "{label: preview}")
	e.open(7, nil, "web")
	e.label("preview")
	e.pass()
	e.want("deployed", "7 READY", "web-pr-7", 1)

	lines, failure, reads := []string(nil), error(nil), 0
	e.p.PodLines = func(context.Context, deploy.Application, int) ([]string, error) {
		reads++
		return lines, failure
	}
	e.now = e.now.Add(time.Hour)
	id := e.stored(7).Applications[0].ID
	_, err := e.store.SetDegraded(t.Context(), id, true, "its pod crashes", deploy.Event{Key: "crash", Type: deploy.EventDegraded, ApplicationID: id, At: e.now})
	e.must(err)
	says := func(want, not string) {
		t.Helper()
		e.pass()
		if got := e.comments[7]; !strings.Contains(got, "its pod crashes") || !strings.Contains(got, want) || strings.Contains(got, not) {
			t.Errorf("the comment says\n%s\nwant %q and not %q", got, want, not)
		}
	}
	once := func() {
		t.Helper()
		if reads != 1 {
			t.Errorf("the logs were read %d times in the same minute", reads)
		}
		reads, e.now = 0, e.now.Add(logsAgain)
	}
	says("its pod crashes", "cannot be read")
	once()
	failure = errors.New("the cluster is busy")
	says("cannot be read: the cluster is busy", "panic")
	lines, failure = []string{"panic: no configuration"}, nil
	says("cannot be read: the cluster is busy", "panic")
	once()
	says("panic: no configuration", "cannot be read")
	lines, reads = []string{"panic: something else"}, 0
	says("panic: no configuration", "something else")
	if reads != 0 {
		t.Errorf("the logs were read %d times more", reads)
	}
}
