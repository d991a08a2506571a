package app

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestEveryReplicaServes: replicas that share the work answer calls, streams, the page and metrics
// themselves, and what is written through one is seen through the others. A session is valid on each.
// A changed configuration takes effect without an interruption.
func TestEveryReplicaServes(t *testing.T) {
	t.Parallel()
	f := startSharing(t, 3, clustertest.Shared(t).Kubeconfig)
	f.mustEndOnce("v1", f.push("v1", time.Second))
	all := []*agenttest.Agent{f.first, f.second, f.third}
	began := map[int64]bool{}
	for _, a := range all {
		began[f.startedAt(a)] = true
	}
	if len(began) != len(all) {
		t.Errorf("the replicas began at %v: one answers for another", began)
	}

	through := func(a *agenttest.Agent) *client {
		return &client{t: t, ctx: t.Context(), api: a.API, control: a.Control}
	}
	for i, name := range f.apps {
		writer, reader, app := all[i], all[(i+1)%len(all)], appID(name)
		stream, err := reader.Control.WatchDeployments(t.Context(), &controlv1.WatchDeploymentsRequest{ApplicationIds: []string{app}})
		if err != nil {
			t.Fatal(err)
		}
		for caughtUp := false; !caughtUp; { // or the deployment may end before the replica looks
			first, err := stream.Recv()
			if err != nil {
				t.Fatalf("the stream of another replica: %v", err)
			}
			caughtUp = first.GetCaughtUp()
		}
		through(writer).sync(app)
		for {
			change, err := stream.Recv()
			if err != nil {
				t.Fatalf("the stream of another replica: %v", err)
			}
			if d := change.GetDeployment(); d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS && d.GetTrigger().GetCommander() != "" {
				mustContain(t, through(reader).logs(d.GetId()), "Loading "+name+"/app.pipecd.yaml")
				break
			}
		}
	}

	key, err := os.ReadFile(f.first.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, "http://"+f.second.WebAddress)
	b.post("/sign-in/key", url.Values{"key": {strings.TrimSpace(string(key))}})
	for _, a := range all {
		b.base = "http://" + a.WebAddress // cookies are those of the host
		at, body := b.get("/applications")
		if at != "/applications" {
			t.Errorf("signed in at another replica, the browser is at %s", at)
		}
		mustContain(t, body, f.apps[0])
		if n := scrapeProcess(t, a)["piped_partitions_held{replica="+f.host(a)+"}"]; n == 0 {
			t.Errorf("the metrics of a replica do not have its partitions")
		}
	}
	b.base = "http://" + f.third.WebAddress
	b.post("/sign-out", nil)
	b.base = "http://" + f.second.WebAddress
	if at, _ := b.get("/"); at != "/sign-in?next=%2F" {
		t.Errorf("signed out at another replica, the browser is at %s", at)
	}

	started := f.startedAt(f.third)
	f.rename(f.third, "renamed")
	err = f.third.Await(t.Context(), "the name to change", patience, func(ctx context.Context) (bool, error) {
		status, err := f.third.Control.GetStatus(ctx, &controlv1.GetStatusRequest{})
		return status.GetAgent().GetName() == "renamed", err
	})
	if err != nil {
		t.Fatal(err)
	}
	if now := f.startedAt(f.third); now != started {
		t.Errorf("a changed name restarted what answers: it began at %d, before at %d", now, started)
	}
}

// TestEveryReplicaTakesWebhooks: whichever replica a push is announced to, the one that polls the
// repository deploys it. It polls once an hour by itself.
func TestEveryReplicaTakesWebhooks(t *testing.T) {
	t.Parallel()
	var remote string
	f := startSharing(t, 2, clustertest.Shared(t).Kubeconfig, func(o *agenttest.Options, repo *gittest.Repo) {
		remote = repo.HTTP(t, gittest.HTTPOptions{}).URL
		o.Remote, o.Interval = remote, time.Hour
		o.More += "  webhooks: [{name: github, type: GITHUB, secret: webhook-secret}]\n"
	})
	for i, a := range []*agenttest.Agent{f.first, f.second, f.third} {
		commit := f.push(fmt.Sprint("v", i), time.Second)
		payload := fmt.Sprintf(`{"ref": "refs/heads/main", "after": %q, "repository": {"clone_url": %q}}`, commit, remote)
		lost := func() int { return strings.Count(a.Log(), "cannot request a poll of a repository") }
		for before, end := -1, time.Now().Add(patience); before < lost() && time.Now().Before(end); { // again if the database had no time for it
			before = lost()
			if code := post(t, "http://"+a.WebAddress+"/webhooks/github", "push", payload, "webhook-secret"); code != http.StatusAccepted {
				t.Fatalf("replica %d answers a webhook with %d", i, code)
			}
		}
		f.mustEndOnce(fmt.Sprint("v", i), commit)
	}
}

// startedAt returns when the process began that answers on a replica's address. Calls that a replica has
// passed on until it worked itself are cut off once.
func (f *sharingFleet) startedAt(a *agenttest.Agent) (at int64) {
	f.t.Helper()
	err := a.Await(f.t.Context(), "its status", patience, func(ctx context.Context) (bool, error) {
		status, err := a.Control.GetStatus(ctx, &controlv1.GetStatusRequest{})
		at = status.GetAgent().GetStartedAtMs()
		return err == nil, err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return at
}

// host returns the name of a replica.
func (f *sharingFleet) host(a *agenttest.Agent) string {
	f.t.Helper()
	var host string
	if err := f.db.QueryRowContext(f.t.Context(), "SELECT host FROM replicas WHERE host LIKE $1", fmt.Sprint("% pid ", a.PID())).Scan(&host); err != nil {
		f.t.Fatal(err)
	}
	return host
}
