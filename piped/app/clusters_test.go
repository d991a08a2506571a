package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
)

// unreached is the kubeconfig of a cluster that gets no request.
const unreached = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

// clusterEnv is a set of clusters inside a bubble of testing/synctest.
type clusterEnv struct {
	t *testing.T
	*clusters
	kubeconfig string
	log        logText
}

func newClusterEnv(t *testing.T) (l *clusterEnv, stop func()) {
	l = &clusterEnv{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	replaceFile(t, l.kubeconfig, unreached)
	l.clusters = newClusters(clusterConfig{}, Options{Logger: slog.New(slog.NewTextHandler(&l.log, nil))}.withDefaults())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	return l, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// configure applies a configuration with providers of these names.
func (l *clusterEnv) configure(names ...string) error {
	var providers []config.PlatformProvider
	for _, name := range names {
		providers = append(providers, config.PlatformProvider{Name: name, Config: &kubernetes.Provider{KubeConfigPath: l.kubeconfig}})
	}
	next, err := l.plan(providers)
	l.use(next)
	return err
}

// wantEnded checks the providers whose connections have ended so far.
func (l *clusterEnv) wantEnded(names ...string) {
	l.t.Helper()
	synctest.Wait()
	var ended []string
	for line := range strings.Lines(l.log.String()) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "connection has ended\" component=kubernetes cluster="); ok {
			ended = append(ended, name)
		}
	}
	slices.Sort(ended)
	if diff := cmp.Diff(names, ended); diff != "" {
		l.t.Errorf("ended connections (-want +got):\n%s\n%s", diff, l.log.String())
	}
}

// TestClustersAreHeldByTheirUsers: a connection that is replaced or removed ends with its
// last user, and a provider's name always leads to the right cluster.
func TestClustersAreHeldByTheirUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := newClusterEnv(t)
		defer stop()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(l.configure("one", "two"))
		first, release, err := l.Hold("one")
		must(err)
		must(l.configure("two", "one"))
		again, releaseAgain, err := l.Hold("one")
		must(err)
		if again.Cluster != first.Cluster {
			t.Error("an unchanged provider was replaced")
		}
		releaseAgain()
		l.wantEnded()

		replaceFile(t, l.kubeconfig, unreached+"# rotated\n")
		must(l.configure("one", "two"))
		l.wantEnded("two") // no stage held it
		second, releaseSecond, err := l.Hold("one")
		must(err)
		if second.Cluster == first.Cluster {
			t.Error("a new hold after the replacement returns the old cluster")
		}
		release()
		release() // counts once
		l.wantEnded("one", "two")

		must(l.configure("two"))
		if got := l.Names(); !slices.Equal(got, []string{"two"}) {
			t.Errorf("providers %v", got)
		}
		removed, releaseRemoved, err := l.Hold("one")
		must(err)
		if removed.Cluster != second.Cluster {
			t.Error("a user of a removed provider has lost its connection")
		}
		releaseRemoved()
		l.dropRemoved(map[string]bool{"one": true})
		if !l.anyRemoved() {
			t.Error("a busy connection was dropped")
		}
		l.dropRemoved(nil)
		_, _, err = l.Hold("one")
		if want := `the platform provider "one" is not configured; there are: [two]`; err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
		l.wantEnded("one", "two")
		releaseSecond()
		l.wantEnded("one", "one", "two")
	})
}

// TestUnusableProviderIsReportedOnce: the problem of a provider is reported by the plan
// that finds it, not by later ones, and the provider can be used once its file exists.
func TestUnusableProviderIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := newClusterEnv(t)
		defer stop()
		if err := os.Remove(l.kubeconfig); err != nil {
			t.Fatal(err)
		}
		if err := l.configure("one"); err == nil || !strings.Contains(err.Error(), l.kubeconfig) {
			t.Errorf("the first plan: %v", err)
		}
		if err := l.configure("one"); err != nil {
			t.Errorf("the second plan: %v", err)
		}
		if _, _, err := l.Hold("one"); err == nil || !strings.Contains(err.Error(), "cannot be used") || !l.unusable() {
			t.Errorf("hold of an unusable provider: %v", err)
		}
		replaceFile(t, l.kubeconfig, unreached)
		if err := l.configure("one"); err != nil {
			t.Errorf("the third plan: %v", err)
		}
		_, release, err := l.Hold("one")
		if err != nil || l.unusable() {
			t.Fatalf("hold of a fixed provider: %v", err)
		}
		release()
		l.wantEnded()
	})
}
