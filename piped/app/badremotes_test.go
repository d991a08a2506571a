package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// badRemotes serves repositories that are dead, slow or enormous, as the first part of the path
// says, whatever the rest is.
func badRemotes(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if kind == "dead" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000")
		for i := 0; r.Context().Err() == nil; i++ {
			ref := fmt.Sprintf("%040x refs/heads/branch-%d", i+1, i)
			if i == 0 {
				ref += "\x00multi_ack side-band-64k ofs-delta"
			}
			if _, err := fmt.Fprintf(w, "%04x%s\n", len(ref)+5, ref); err != nil {
				return
			}
			if kind == "slow" {
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// TestBadRemotesDelayNoOther: of a hundred repositories, all but one are dead, slow or enormous. The
// commits of the other one are deployed all the same.
func TestBadRemotesDelayNoOther(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	commit := repo.Push(t, "add web", webApp(ns, "v1", ""))
	bad := badRemotes(t)
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	for kind, count := range map[string]int{"dead": 49, "slow": 48, "huge": 2} {
		for i := range count {
			s.repositories[fmt.Sprintf("%s-%d", kind, i)] = fmt.Sprintf("%s/%s/%d", bad.URL, kind, i)
		}
	}
	agent := runReloading(t, s, 10*time.Millisecond)
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	for i := range 3 {
		commit = repo.Push(t, "change web", webApp(ns, fmt.Sprintf("v%d", i+2), ""))
		agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
}
