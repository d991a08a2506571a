package page_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web/page"
)

// Bounds on the view of an application of any size.
const (
	largeView       = 256 << 10 // bytes
	largeViewZipped = 16 << 10
	largeChange     = 6 << 10 // of the event for one changed object
)

// largeCluster answers with an application of 5,000 objects.
type largeCluster struct {
	mu      sync.Mutex
	objects []deploy.LiveObject
}

func (c *largeCluster) LiveState(_ context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := deploy.LiveState{ApplicationID: app.ID, Health: deploy.HealthDegraded, ReadAt: controltest.Epoch}
	for _, o := range c.objects {
		o.Children = append([]deploy.LiveObject(nil), o.Children...)
		if children == deploy.NoChildren {
			o.Children = nil
		}
		state.Objects = append(state.Objects, o)
	}
	return state, nil
}

// newLargeCluster has a DaemonSet of 2,000 pods, 700 Jobs, 819 ConfigMaps and 20 Deployments: 5,000
// objects, three of them in trouble.
func newLargeCluster() *largeCluster {
	object := func(group, kind, name string, children ...deploy.LiveObject) deploy.LiveObject {
		return deploy.LiveObject{
			Cluster: "dev", Object: deploy.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: "shop", Name: name},
			Health: deploy.Healthy, CreatedAt: controltest.Epoch.Add(-time.Hour), Children: children,
		}
	}
	c := &largeCluster{}
	for i := range 819 {
		c.objects = append(c.objects, object("", "ConfigMap", fmt.Sprintf("config-%04d", i)))
	}
	agent := object("apps", "DaemonSet", "agent")
	for i := range 2000 {
		agent.Children = append(agent.Children, object("", "Pod", fmt.Sprintf("agent-%04d", i)))
	}
	agent.Children[999].Health, agent.Children[999].Reason = deploy.HealthProgressing, "container app is not ready"
	agent.Children[1234].Health, agent.Children[1234].Reason = deploy.HealthDegraded, "container app: CrashLoopBackOff"
	agent.Health, agent.Reason, agent.Replicas, agent.Available = deploy.HealthDegraded, "1998 of 2000 pods are available", 2000, 1998
	c.objects = append(c.objects, agent)
	for i := range 20 {
		d := object("apps", "Deployment", fmt.Sprintf("web-%02d", i))
		for r := range 9 {
			set := object("apps", "ReplicaSet", fmt.Sprintf("web-%02d-%d", i, r))
			if set.Idle = r < 8; !set.Idle {
				for p := range 29 {
					set.Children = append(set.Children, object("", "Pod", fmt.Sprintf("web-%02d-%d-%02d", i, r, p)))
				}
				set.Replicas, set.Available = 29, 29
			}
			d.Children = append(d.Children, set)
		}
		d.Replicas, d.Available = 29, 29
		c.objects = append(c.objects, d)
	}
	for i := range 700 {
		c.objects = append(c.objects, object("batch", "Job", fmt.Sprintf("item-%04d", i), object("", "Pod", fmt.Sprintf("item-%04d-x", i))))
	}
	c.objects[len(c.objects)-300].Health = deploy.HealthDegraded
	return c
}

// size returns the number of objects in a tree.
func size(objects []deploy.LiveObject) (n int) {
	for _, o := range objects {
		n += 1 + size(o.Children)
	}
	return n
}

// newLarge returns the page in front of a real API with that application.
func newLarge(t *testing.T) (*world, *largeCluster) {
	w, c := &world{t: t, tokens: map[string]string{}}, newLargeCluster()
	if n := size(c.objects); n != 5000 {
		t.Fatalf("the application has %d objects", n)
	}
	w.agent = controltest.Start(t, t.TempDir(), func(cfg *control.Config) {
		cfg.Policy, cfg.Figures, cfg.Live, cfg.Objects = access.NewPolicy(nil), figures.NewReader(cfg.Store.(*store.Store), cfg.Now), c, oneObject{}
	})
	w.app = w.agent.Application("large", nil)
	w.agent.Deployment("d-large", w.app, "")
	w.tokens["admin"] = w.agent.SignInWithKey(w.agent.LimitedKey("admin", nil))
	w.page = page.New(page.Config{Conn: w.agent.Server.Conn(), Now: w.agent.Now, Token: func(r *http.Request) string { return w.tokens[r.Header.Get("Walker")] }, LiveWait: time.Hour})
	w.server = httptest.NewServer(w.page)
	t.Cleanup(w.server.Close)
	return w, c
}

// treeOf returns the text of the tree in a page: a row per line, indented by level. Each begins
// with what its element is.
func treeOf(t *testing.T, body string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var walk func(n *html.Node, depth int)
	walk = func(n *html.Node, depth int) {
		row := n.Data == "summary" || n.Data == "div" && attribute(n, "class") == "leaf" || n.Data == "a" && n.Parent != nil && attribute(n.Parent, "class") == "fold"
		switch {
		case row && n.Data == "summary" && attribute(n.Parent, "open?") == "":
			fmt.Fprintf(&out, "%s> %s\n", strings.Repeat("  ", depth), textOf(n))
		case row && n.Data == "summary":
			fmt.Fprintf(&out, "%sv %s\n", strings.Repeat("  ", depth), textOf(n))
		case row && n.Data == "a":
			fmt.Fprintf(&out, "%s+ %s\n", strings.Repeat("  ", depth), textOf(n))
		case row:
			fmt.Fprintf(&out, "%s- %s\n", strings.Repeat("  ", depth), textOf(n))
		}
		if n.Data == "ul" {
			depth++
		}
		for child := n.FirstChild; child != nil && !row; child = child.NextSibling {
			walk(child, depth)
		}
	}
	var find func(n *html.Node)
	find = func(n *html.Node) {
		if attribute(n, "id") == "tree" {
			walk(n, -1)
			return
		}
		for child := n.FirstChild; child != nil; child = child.NextSibling {
			find(child)
		}
	}
	find(root)
	return out.String()
}

// attribute returns an attribute of an element. That of `open?` is whether it has `open`.
func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
		if name == "open?" && a.Key == "open" {
			return "yes"
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var out strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			out.WriteString(" " + child.Data)
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// TestLargeApplication: the view of 5,000 objects shows those in trouble first, folds the rest, and
// is small.
func TestLargeApplication(t *testing.T) {
	w, _ := newLarge(t)
	body := w.read("/applications/large", "admin")
	if len(body) > largeView {
		t.Errorf("the view has %d bytes, more than %d", len(body), largeView)
	}
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	if _, err := zip.Write([]byte(body)); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	if zipped.Len() > largeViewZipped {
		t.Errorf("the view has %d bytes compressed, more than %d", zipped.Len(), largeViewZipped)
	}
	t.Logf("%d bytes, %d compressed", len(body), zipped.Len())
	got, file := treeOf(t, body), filepath.Join("testdata", "large.txt")
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-golden +got); if that is intended, run with -update:\n%s", file, diff)
	}
	for _, line := range []string{
		"- Pod agent-1234 Degraded container app: CrashLoopBackOff 60 min\n  - Pod agent-0999 Progressing", "  + 1,950 more Pods: all healthy",
		"+ 769 more ConfigMaps: all healthy", "+ 650 more Jobs: all healthy", "  + 1 ReplicaSet: healthy\n  + 8 ReplicaSets of earlier revisions, without pods",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("the tree lacks %q", line)
		}
	}
}

// foldLink matches the addresses of a folded row: with and without a script.
var foldLink = regexp.MustCompile(`class="fold" id="[^"]*"><a href="([^"]*)"[^>]* hx-get="([^"]*)"[^>]*>([^<]*)<`)

// link returns the addresses of the folded row with a text.
func link(t *testing.T, body, text string) (plain, part string) {
	t.Helper()
	for _, m := range foldLink.FindAllStringSubmatch(body, -1) {
		if strings.Contains(m[3], text) {
			return html.UnescapeString(m[1]), html.UnescapeString(m[2])
		}
	}
	t.Fatalf("the view has no folded row %q", text)
	return "", ""
}

// part returns the answer to a script for an address, and the header of its new address.
func (w *world) part(path, here string) (body, address string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = http.Header{"Walker": {"admin"}, "Hx-Request": {"true"}, "Hx-Current-Url": {w.server.URL + here}}
	resp, err := w.server.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(resp.Body); err != nil {
		w.t.Fatal(err)
	}
	return out.String(), resp.Header.Get("HX-Replace-Url")
}

// TestFoldedRowsOpen: a folded row opens its level, to a script alone and to a browser without
// scripts in a view with an address of its own; so does what a healthy object created.
func TestFoldedRowsOpen(t *testing.T) {
	w, _ := newLarge(t)
	body := w.read("/applications/large", "admin")
	here := "/applications/large?object=apps%2FDaemonSet%2Fshop%2Fagent"
	plain, level := link(t, body, "1,950 more Pods")
	alone, address := w.part(level, here)
	for _, want := range []string{`agent-0547<`, "1,450 more Pods: all healthy", `<hx-partial hx-target="#live"`, `name="under" value="/apps/DaemonSet/shop/agent/Pod/550"`} {
		if !strings.Contains(alone, want) {
			t.Errorf("the level lacks %q", want)
		}
	}
	if strings.Contains(alone, "config-0000") || strings.Contains(alone, "<html") || strings.Count(alone, "autofocus") != 1 {
		t.Error("the answer to a script is more than the level, or does not say where to go on")
	}
	if want := here + "&under=%2Fapps%2FDaemonSet%2Fshop%2Fagent%2FPod%2F550"; address != want {
		t.Errorf("the address becomes %s, want %s", address, want)
	}
	if whole := treeOf(t, w.read(plain, "admin")); strings.Count(whole, "Pod agent-") != 550 || !strings.Contains(whole, "config-0000") {
		t.Error("the address of the level does not show it:", whole)
	}
	_, level = link(t, body, "1 ReplicaSet: healthy")
	alone, _ = w.part(level+"&under=%2Fapps%2FDaemonSet%2Fshop%2Fagent%2FPod%2F550", here)
	if strings.Count(alone, ">web-00-8-") != 29 || strings.Contains(alone, "autofocus") || strings.Count(alone, `name="under"`) != 2 {
		t.Error("the level of a healthy Deployment is", alone)
	}
	_, level = link(t, body, "8 ReplicaSets of earlier revisions")
	if alone, _ = w.part(level, here); !strings.Contains(alone, ">web-00-0<") || !strings.Contains(alone, ">web-00-7<") {
		t.Error("the ReplicaSets without pods are", alone)
	}
}

// TestInvalidLevels: an address that names no level is refused in the tab, and one of an object
// that is gone changes nothing.
func TestInvalidLevels(t *testing.T) {
	w, _ := newLarge(t)
	for _, level := range []string{"nonsense", "//////", "/apps/DaemonSet/shop/agent/Pod/", "/apps/DaemonSet/shop/agent/Pod/-1", "/apps/DaemonSet/shop/agent//7"} {
		body := w.read("/applications/large?under="+url.QueryEscape(level), "admin")
		if !strings.Contains(body, "does not name a level of the tree") || !strings.Contains(body, `id="summary"`) {
			t.Errorf("%q is not refused", level)
		}
	}
	if body := w.read("/applications/large?under="+url.QueryEscape("/apps/DaemonSet/shop/gone/Pod/9"), "admin"); !strings.Contains(body, "1,950 more Pods") {
		t.Error("the level of an object that is gone:", body)
	}
	many := url.Values{}
	for i := range 200 {
		many.Add("under", fmt.Sprintf("/apps/DaemonSet/shop/gone-%d/Pod/9000", i))
	}
	if body := w.read("/applications/large?"+many.Encode(), "admin"); !strings.Contains(body, "1,950 more Pods") || strings.Count(body, `name="under"`) != 1 {
		t.Error("an address with too many levels is not cut")
	}
}

// TestChangesOfALargeApplication: of an open level, only the object that has changed is sent.
func TestChangesOfALargeApplication(t *testing.T) {
	w, c := newLarge(t)
	body := w.read("/applications/large?under="+url.QueryEscape("/apps/DaemonSet/shop/agent/Pod/550"), "admin")
	_, rest, _ := strings.Cut(body, `hx-sse:connect="`)
	address, _, _ := strings.Cut(rest, `"`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	resp := w.do(ctx, http.MethodGet, html.UnescapeString(address), "admin", nil)
	defer resp.Body.Close()
	c.mu.Lock()
	for i, o := range c.objects {
		if o.Object.Kind == "DaemonSet" {
			c.objects[i].Children[1234].Reason = "container app: OOMKilled"
		}
	}
	c.mu.Unlock()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	_, data := eventWith(t, lines, "OOMKilled")
	if strings.Contains(data, "agent-0000") || len(data) > largeChange {
		t.Errorf("the event has %d bytes: %s", len(data), data)
	}
}
