package apply

import (
	"fmt"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/manifest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// parse reads manifests written in a test.
func parse(t testing.TB, file, text string) []manifest.Object {
	t.Helper()
	objs, err := manifest.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

// testLog keeps the lines of a stage log.
type testLog struct{ lines chan string }

func newTestLog() *testLog { return &testLog{lines: make(chan string, 1000)} }

func (l *testLog) Infof(format string, args ...any)    { l.lines <- fmt.Sprintf(format, args...) }
func (l *testLog) Successf(format string, args ...any) { l.lines <- fmt.Sprintf(format, args...) }
func (l *testLog) Errorf(format string, args ...any)   { l.lines <- fmt.Sprintf(format, args...) }

// take returns the lines written since the last call.
func (l *testLog) take() []string {
	var out []string
	for {
		select {
		case line := <-l.lines:
			out = append(out, line)
		default:
			return out
		}
	}
}
