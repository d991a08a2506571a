package source

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// slowBases are remote bases that take a minute each.
type slowBases struct{}

func (slowBases) At(ctx context.Context, remote, ref string) (fs.FS, string, error) {
	select {
	case <-ctx.Done():
		return nil, "", deploy.Errorf(deploy.Unavailable, "fetch %s of %s: %w", ref, remote, ctx.Err())
	case <-time.After(time.Minute):
		return files("kustomization.yaml", "configMapGenerator: [{name: a, literals: [a=1]}]\n"), ref + strings.Repeat("0", 38), nil
	}
}

func (slowBases) File(context.Context, string, int64) ([]byte, error) { return nil, fs.ErrNotExist }

// TestRenderingHasATimeBound: however many bases an application fetches, each of them
// soon enough, it is rendered in five minutes or not at all, and that is tried again.
func TestRenderingHasATimeBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bases []string
		for i := range 20 {
			bases = append(bases, fmt.Sprintf("%q", fmt.Sprintf("https://git.example.com/org/base-%02d?ref=v%d", i, i)))
		}
		l, _ := loader(files("apps/web/app.pipecd.yaml", head+"  name: web\n", "apps/web/kustomization.yaml", "resources: ["+strings.Join(bases, ", ")+"]\n"), 1<<20)
		kubernetesOf(l).Remotes = slowBases{}
		start := time.Now()
		_, err := l.Load(t.Context(), at, "c1")
		want := "apps/web/app.pipecd.yaml: rendering it takes longer than 5m0s, with the charts, bases and files that it fetches; try again, or split the application"
		if err == nil || err.Error() != want || !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("got %v, want %s", err, want)
		}
		if took := time.Since(start); took > 6*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}
