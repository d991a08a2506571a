package browsertest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web/page"
	"github.com/c785c783/piped/piped/web/page/browsertest"
)

// inShop returns the reference of an object of the namespace shop.
func inShop(group, kind, name string) deploy.ObjectRef {
	return deploy.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: "shop", Name: name}
}

// replacing answers for an application with a Deployment whose pods are being replaced: 55 new ones
// in every state, and old ones that are too many to be drawn.
type replacing struct{ control.Objects }

func (replacing) LiveState(_ context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	web := deploy.LiveObject{Cluster: "dev", Object: inShop("apps", "Deployment", "web"), Health: deploy.HealthProgressing}
	if children != deploy.NoChildren {
		fresh := deploy.LiveObject{Cluster: "dev", Object: inShop("apps", "ReplicaSet", "web-new"), Health: deploy.HealthProgressing}
		old := deploy.LiveObject{Cluster: "dev", Object: inShop("apps", "ReplicaSet", "web-old"), Health: deploy.Healthy}
		for i := range 55 {
			pod := deploy.LiveObject{Cluster: "dev", Object: inShop("", "Pod", fmt.Sprintf("web-new-%02d", i)), Health: []deploy.Health{deploy.Healthy, deploy.HealthProgressing, deploy.HealthDegraded}[i%3]}
			fresh.Children = append(fresh.Children, pod)
		}
		for i := range 100 {
			old.Children = append(old.Children, deploy.LiveObject{Cluster: "dev", Object: inShop("", "Pod", fmt.Sprintf("web-old-%02d", i)), Health: deploy.HealthProgressing, Deleting: i%2 == 0})
		}
		web.Children = []deploy.LiveObject{fresh, old}
	}
	return deploy.LiveState{ApplicationID: app.ID, Objects: []deploy.LiveObject{web}}, nil
}

func (replacing) LiveObject(_ context.Context, _ deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	return deploy.ObjectDetail{Object: deploy.LiveObject{Cluster: "dev", Object: deploy.ObjectRef{Group: *q.Group, Version: "v1", Kind: q.Kind, Namespace: *q.Namespace, Name: q.Name}}, Live: "kind: " + q.Kind + "\n"}, nil
}

// TestPodsAndNamesOfObjects: in a deployment, the dot of a pod and the name of an object in the log
// lead to the object; so does a name in a line that comes while one looks. The views with pods are
// accessible and fit any window.
func TestPodsAndNamesOfObjects(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy, c.Live, c.Objects, c.Figures = access.NewPolicy(nil), replacing{}, replacing{}, figures.NewReader(c.Store.(*store.Store), c.Now)
	})
	app := agent.Application("storefront", nil)
	agent.Deployment("d", app, "")
	agent.Move("d", deploy.Running, "")
	agent.Log("d", controltest.SyncStage, "Applied Deployment shop/web")
	_, err := agent.Store.SaveRollout(t.Context(), deploy.Rollout{
		ID: "r", ApplicationID: app.ID, ApplicationName: "storefront", DeploymentID: "d", StageID: controltest.SyncStage, Cluster: "dev", Phase: deploy.RolloutProgressing, UID: "u",
		Workload: inShop("apps", "Deployment", "web"), TargetName: "web-new", ReplicasBefore: 100, ReplicasAfter: 100, AppliedAt: agent.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	token := agent.SignInWithKey(agent.LimitedKey("admin", nil))
	server := httptest.NewServer(page.New(page.Config{Conn: agent.Server.Conn(), Now: agent.Now, Token: func(*http.Request) string { return token }, LiveWait: time.Minute}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	browser, err := browsertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = browser.Close() })
	axe, err := os.ReadFile(filepath.Join("testdata", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	tab := browser.Tab(t, server.URL)
	tab.Permit("sse")
	tab.Permit("ERR_")
	for name, path := range map[string]string{"stage-pods": "/deployments/d", "rollout-pods": "/applications/storefront?tab=rollouts", "rollouts-pods": "/rollouts", "now-pods": "/"} {
		tab.Open(path)
		for _, words := range []string{"55 new pods: 19 ready, 18 starting, 18 failing", "100 old pods: 50 starting, 50 terminating"} {
			tab.Await(words, fmt.Sprintf(`[...document.querySelectorAll("main .pod-words")].some((e) => e.textContent.replace(/\s+/g, " ").trim() === %q)`, words))
		}
		if dots, bars := tab.Count("main .pod-dots .pod"), tab.Count("main .pod-bar"); dots != 55 || bars != 1 {
			t.Errorf("%s: %d dots and %d bars", path, dots, bars)
		}
		browsertest.Eval[browsertest.Nothing](tab, string(axe))
		for _, dark := range []bool{false, true} {
			for _, width := range []int64{360, 1280, 2560} {
				tab.Show(width, dark)
				for _, problem := range inaccessible(tab) {
					t.Errorf("%s, %d pixels wide, dark %t: %s", path, width, dark, problem)
				}
				if got := browsertest.Eval[int64](tab, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%s: the page scrolls to the side, it is %d pixels wide in a window of %d", path, got, width)
				}
				writePicture(t, tab, os.Getenv("PIPED_SCREENSHOTS"), fmt.Sprintf("%s-%d-%s", name, width, map[bool]string{false: "light", true: "dark"}[dark]))
			}
		}
	}
	tab.Show(1280, false)
	tab.Open("/deployments/d")
	tab.Click("#log-lines .text a", "Deployment shop/web")
	tab.AwaitText("#drawer", "kind: Deployment")
	if !strings.Contains(tab.Path(), "object=apps%2FDeployment%2Fshop%2Fweb") {
		t.Error("the link in the log leads to", tab.Path())
	}
	tab.Open("/deployments/d")
	tab.AwaitReady()
	line := deploy.LogBlock{DeploymentID: "d", StageID: controltest.SyncStage, Index: 1, Severity: deploy.SeverityInfo, Log: "Waiting for Deployment shop/web, not for Deployment shop/other", At: agent.Now()}
	if err := agent.Store.AppendStageLogs(t.Context(), []deploy.LogBlock{line}); err != nil {
		t.Fatal(err)
	}
	tab.AwaitText("#line-2 .text", "Waiting for Deployment shop/web, not for Deployment shop/other")
	if n := tab.Count("#line-2 .text a"); n != 1 {
		t.Errorf("the line that came has %d links", n)
	}
	tab.Click("#line-2 .text a", "Deployment shop/web")
	tab.AwaitText("#drawer", "kind: Deployment")
	tab.Open("/deployments/d")
	tab.AwaitReady()
	browsertest.Eval[browsertest.Nothing](tab, `document.querySelector('.pod[title^="web-new-02:"]').click()`)
	tab.AwaitText("#drawer", "kind: Pod")
	tab.AwaitText("#drawer", "web-new-02")
}
