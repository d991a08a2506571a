package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl"
	"github.com/c785c783/piped/piped/starter"
)

// heard are texts that several goroutines report.
type heard struct {
	mu    sync.Mutex
	texts []string
	keys  map[string]bool // keys that once has seen
}

func (h *heard) add(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

// once adds a text unless one with its key was added before.
func (h *heard) once(key, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys[key] {
		return
	}
	if h.keys == nil {
		h.keys = map[string]bool{}
	}
	h.keys[key] = true
	h.texts = append(h.texts, text)
}

func (h *heard) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.texts)
}

// onlyReads returns a kubeconfig of a user with the rights that the help of piped observe names,
// through a proxy that reports each request.
func onlyReads(t *testing.T, c *clustertest.Cluster, dir string, requests *heard) string {
	t.Helper()
	rbac := c.Client(t).RbacV1()
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "observer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets", "daemonsets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets", "controllerrevisions"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"list"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "observer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "observer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "observer"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "observer"
	}
	impersonating := filepath.Join(dir, "impersonating")
	if err := clientcmd.WriteToFile(*config, impersonating); err != nil {
		t.Fatal(err)
	}
	proxy, err := agenttest.ServeAPI(impersonating, func(r *http.Request) { requests.add(r.Method + " " + r.URL.Path) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	path, err := proxy.Kubeconfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// observer is piped observe in a process of its own.
type observer struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr bytes.Buffer
	page   string
}

// observe starts piped observe, and returns once it has printed its sign-in link.
func observe(t *testing.T, args ...string) *observer {
	t.Helper()
	o := &observer{cmd: program(t, append([]string{"observe", "--api-address", "127.0.0.1:0", "--web-address", "127.0.0.1:0"}, args...)...)}
	o.cmd.Stderr = &o.stderr
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o.stdout = stdout
	var printed string
	link := regexp.MustCompile(`(?m)^page +(http://127\.0\.0\.1:\d+/\S+)$`)
	for lines := bufio.NewScanner(stdout); o.page == "" && lines.Scan(); {
		printed += lines.Text() + "\n"
		if found := link.FindStringSubmatch(lines.Text()); found != nil {
			o.page = found[1]
		}
	}
	if o.page == "" || !strings.Contains(printed, "changes nothing there") {
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait()
		t.Fatalf("printed %q\n%s", printed, o.stderr.String())
	}
	return o
}

// stop stops it as Ctrl-C does.
func (o *observer) stop(t *testing.T) {
	t.Helper()
	if err := o.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, o.stdout)
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, o.stderr.String())
	}
}

// listed is a rollout as pipectl writes it.
type listed struct {
	Application  string   `json:"application_name"`
	Outcome      string   `json:"outcome"`
	CausedBy     string   `json:"caused_by"`
	FoundLate    bool     `json:"found_late"`
	Images       []string `json:"images"`
	ImagesBefore []string `json:"images_before"`
}

// rolloutsOf returns the rollouts of a workload as pipectl lists them without flags about the
// agent, the newest first.
func rolloutsOf(t *testing.T, name string) []listed {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := pipectl.Run(t.Context(), []string{"rollout", "list", "--kind=rollout", "--workload", name, "--output=json"}, strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatalf("pipectl exits with %d: %s", code, stderr.String())
	}
	var list struct {
		Rollouts []listed `json:"rollouts"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &list); err != nil {
		t.Fatalf("%v in %s", err, stdout.String())
	}
	return list.Rollouts
}

// deployment returns a Deployment with one pod of an image.
func deployment(name, image string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}}},
	}}
}

// change has another tool write the image of a Deployment.
func change(t *testing.T, client kubernetes.Interface, namespace, name, image string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers[0].Image = image
	if _, err := client.AppsV1().Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{FieldManager: "another-tool"}); err != nil {
		t.Fatal(err)
	}
}

// TestObserve: with a kubeconfig alone, and without a right to write, the rollouts of others are
// recorded, shown by page and pipectl, sent to a webhook, and set as statuses of commits at a Git
// host, also those that begin meanwhile. No request changes the cluster.
func TestObserve(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	c := clustertest.Own(t)
	ns, client := c.Namespace(t), c.Client(t)
	var requests, events heard
	observed := onlyReads(t, c, dir, &requests)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the sender is gone, and sends the event again
		}
		var m struct {
			Metadata struct{ Rollout struct{ Name, Phase string } }
		}
		_ = json.Unmarshal(body, &m)
		// An event is delivered at least once: again if the answer is late.
		events.once(r.Header.Get("Piped-Delivery"), fmt.Sprintf("%s %s %s", r.Header.Get("Piped-Event"), m.Metadata.Rollout.Name, m.Metadata.Rollout.Phase))
	}))
	defer hook.Close()
	statuses := newStatusHost(t, dir)
	args := []string{"--kubeconfig", observed, "--namespace", ns, "--webhook", hook.URL, "--git-hosts", statuses.file}

	o := observe(t, args...)
	resp, err := http.Get(o.page)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the sign-in link answers %s", resp.Status)
	}
	if _, err := os.Stat(filepath.Join(dir, ".piped-observe", "control.json")); err != nil {
		t.Error(err)
	}
	// What exists when the watch begins is no rollout: a Deployment that is created later is one.
	name := ""
	for n := 0; name == ""; n++ {
		if n == 60 {
			t.Fatalf("no rollout was recorded\n%s", o.stderr.String())
		}
		created := fmt.Sprintf("web-%d", n)
		if _, err := client.AppsV1().Deployments(ns).Create(t.Context(), deployment(created, "web:v1"), metav1.CreateOptions{FieldManager: "another-tool"}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, created+" to be available", func() bool {
			d, err := client.AppsV1().Deployments(ns).Get(t.Context(), created, metav1.GetOptions{})
			return err == nil && d.Status.AvailableReplicas == 1
		})
		if len(rolloutsOf(t, created)) > 0 {
			name = created
		}
	}
	clustertest.Eventually(t, "the first rollout to be complete", func() bool { return rolloutsOf(t, name)[0].Outcome == "ROLLOUT_OUTCOME_COMPLETE" })
	change(t, client, ns, name, "web:v2")
	var recorded []listed
	clustertest.Eventually(t, "the change of "+name+" to be recorded", func() bool {
		recorded = rolloutsOf(t, name)
		return len(recorded) == 2 && recorded[0].Outcome == "ROLLOUT_OUTCOME_COMPLETE"
	})
	if r := recorded[0]; r.Application != "" || r.CausedBy != "another-tool" || r.FoundLate || !slices.Equal(r.Images, []string{"web:v2"}) || !slices.Equal(r.ImagesBefore, []string{"web:v1"}) {
		t.Errorf("recorded %+v", r)
	}
	want := []string{"ROLLOUT_STARTED " + name + " Progressing", "ROLLOUT_ENDED " + name + " Complete"}
	want = append(want, want...)
	of := func() []string {
		return slices.DeleteFunc(events.list(), func(text string) bool { return !strings.Contains(text, " "+name+" ") })
	}
	clustertest.Eventually(t, "four events", func() bool { return len(of()) >= 4 })
	if got := of(); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	statuses.check(t, client, ns)
	o.stop(t)

	change(t, client, ns, name, "web:v3")
	statuses.advance(t, client, ns)
	changed := time.Now()
	clustertest.Eventually(t, "the change to be older than the cluster's times are exact", func() bool { return time.Since(changed) > 2*time.Second })
	o = observe(t, args...)
	clustertest.Eventually(t, "the change meanwhile to be found", func() bool {
		recorded = rolloutsOf(t, name)
		return len(recorded) == 3 && recorded[0].Outcome == "ROLLOUT_OUTCOME_COMPLETE"
	})
	if r := recorded[0]; !r.FoundLate || !slices.Equal(r.Images, []string{"web:v3"}) || !slices.Equal(r.ImagesBefore, []string{"web:v2"}) {
		t.Errorf("found %+v", r)
	}
	statuses.found(t, ns)
	o.stop(t)
	for _, request := range requests.list() {
		if !strings.HasPrefix(request, http.MethodGet+" ") {
			t.Errorf("it sent %s", request)
		}
	}
}

// TestObservationsConfiguration: what the flags of piped observe say is in its configuration,
// whatever characters it has.
func TestObservationsConfiguration(t *testing.T) {
	machine(t)
	o, err := starter.Observation{
		Namespaces: []string{"team-*", "shop"}, ExcludeNamespaces: []string{"kube-*"}, Selector: "tier in (web, api),!canary", DataDir: "da: ta",
		WebAddress: "127.0.0.1:1", APIAddress: "127.0.0.1:2", Webhook: "https://hooks.example.com/x?a=b#c",
	}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	cfg, warnings, err := parsed(o)()
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	provider := cfg.Providers[0]
	got, want := provider.Config.(*kubeconfig.Provider), kubeconfig.Rollouts{
		Watch: kubeconfig.WatchAll, Namespaces: []string{"team-*", "shop"}, ExcludeNamespaces: []string{"kube-*"}, LabelSelector: "tier in (web, api),!canary",
	}
	if diff := cmp.Diff(want, got.Rollouts); diff != "" || provider.Name != "here" || got.Context != "here" || got.KubeConfigPath != os.Getenv("KUBECONFIG") {
		t.Errorf("provider %s of %s of %s (-want +got):\n%s", provider.Name, got.Context, got.KubeConfigPath, diff)
	}
	if dir := filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "da: ta"); cfg.DataDir != dir || cfg.Web.Address != "127.0.0.1:1" || cfg.API.Address != "127.0.0.1:2" || len(cfg.Repositories) > 0 {
		t.Errorf("data in %s, served at %s and %s, repositories %v", cfg.DataDir, cfg.Web.Address, cfg.API.Address, cfg.Repositories)
	}
	if hook := cfg.Notifications.Receivers[0].Webhook.URL; hook != "https://hooks.example.com/x?a=b#c" {
		t.Errorf("the webhook is %s", hook)
	}
	for context, want := range map[string]string{"": starter.Provider, "arn:aws:eks:eu-1:1:cluster/shop": "arn-aws-eks-eu-1-1-cluster-shop", "kind-dev": "kind-dev"} {
		if got := (starter.Observation{Cluster: starter.Cluster{Context: context}}).Provider(); got != want {
			t.Errorf("the name of context %q is %q, want %q", context, got, want)
		}
	}
	if _, err := (starter.Observation{Context: "elsewhere"}).Complete(); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "choose one with --context: here") {
		t.Errorf("an unknown context: %v", err)
	}
}
