package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previewedApp returns an application with previews whose pods are ready after a delay.
func previewedApp(name, namespace, image, delay string) map[string]string {
	return map[string]string{
		name + "/app.pipecd.yaml": fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: %s
  input: {namespace: %s}
  preview: {label: preview, host: "%s-pr-{{ .PullRequest.Number }}.preview.example.com"}
`, name, namespace, name),
		name + "/app.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 2
  progressDeadlineSeconds: 600
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {devcluster.piped.dev/ready-delay: %[3]q}}
    spec:
      containers: [{name: %[1]s, image: "registry.example/%[1]s:%[2]s"}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %[1]s}
spec:
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {number: 80}}}}]}}]
`, name, image, delay),
	}
}

// previewEnv is an agent that previews the pull requests of a repository on a fake GitHub.
type previewEnv struct {
	t         *testing.T
	cluster   kubernetes.Interface
	dynamic   dynamic.Interface
	repo      *gittest.Repo
	github    *githosttest.GitHub
	settings  settings
	namespace string // of the applications
	preview   string // of pull request 7
	head      string // of the branch of pull request 7
}

func newPreviewEnv(t *testing.T) *previewEnv {
	cluster := clustertest.Shared(t)
	e := &previewEnv{t: t, cluster: cluster.Client(t), dynamic: dynamicClient(t, cluster), repo: newRepo(t), github: githosttest.NewGitHub(t), namespace: cluster.Namespace(t)}
	e.settings = settings{
		dataDir: t.TempDir(), remote: e.repo.HTTP(t, gittest.HTTPOptions{Folder: "shop"}).URL, kubeconfig: cluster.Kubeconfig(),
		more: gitHubLines(e.github.URL, "token: "+githosttest.Token) +
			fmt.Sprintf("  previews: {namespacePrefix: %s-, interval: 1s, hosts: [preview.example.com], namespaceTemplate: %s}\n", e.namespace, writeFile(t, "template.yaml", namespaceTemplate)),
	}
	eventually(t, "the namespace has the certificates that every namespace gets", func() bool { // or they are new to mustBeShared
		_, err := e.cluster.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil
	})
	e.preview = e.namespace + "-7-apps"
	t.Cleanup(func() {
		err := e.cluster.CoreV1().Namespaces().Delete(context.Background(), e.preview, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("remove namespace %s: %v", e.preview, err)
		}
	})
	return e
}

const namespaceTemplate = `apiVersion: v1
kind: Namespace
metadata: {name: any, labels: {pod-security.kubernetes.io/warn: restricted}, annotations: {team: shop}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: limits}
spec: {hard: {pods: "50"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, defaultRequest: {memory: 16Mi}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: own}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}
`

// writeFile writes a temporary file and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// limited fails the test unless the namespace of the preview is as the template says.
func (e *previewEnv) limited() {
	e.t.Helper()
	ctx, core := e.t.Context(), e.cluster.CoreV1()
	ns, err := core.Namespaces().Get(ctx, e.preview, metav1.GetOptions{})
	if err != nil || ns.Labels["pod-security.kubernetes.io/warn"] != "restricted" || ns.Annotations["team"] != "shop" || ns.Annotations["pipecd.dev/preview"] != "apps#7" {
		e.t.Errorf("the namespace is %v, %v", ns, err)
	}
	if quota, err := core.ResourceQuotas(e.preview).Get(ctx, "limits", metav1.GetOptions{}); err != nil || quota.Spec.Hard.Pods().Value() != 50 {
		e.t.Errorf("the quota is %v, %v", quota, err)
	}
	if limits, err := core.LimitRanges(e.preview).Get(ctx, "limits", metav1.GetOptions{}); err != nil || len(limits.Spec.Limits) != 1 {
		e.t.Errorf("the limit range is %v, %v", limits, err)
	}
	if policy, err := e.cluster.NetworkingV1().NetworkPolicies(e.preview).Get(ctx, "own", metav1.GetOptions{}); err != nil || len(policy.Spec.Ingress) != 1 {
		e.t.Errorf("the network policy is %v, %v", policy, err)
	}
}

// TestPreviewTemplateIsRefused: a template has only what limits a namespace, and nothing of the agent.
func TestPreviewTemplateIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ content, says string }{
		"another kind":     {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "has a Secret"},
		"another group":    {"apiVersion: example.com/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n", "has a NetworkPolicy"},
		"a namespace":      {"apiVersion: v1\nkind: LimitRange\nmetadata: {name: a, namespace: b}\n", "no namespace"},
		"two namespaces":   {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n", "found 2"},
		"the agent's name": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, annotations: {pipecd.dev/preview: 'apps#1'}}\n", "is set by the agent"},
		"no YAML":          {"a: [", "template.yaml"},
	} {
		if _, err := readPreviewTemplate(writeFile(t, "template.yaml", tc.content)); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
	if _, err := readPreviewTemplate("/does/not/exist"); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("no file: %v", err)
	}
	if got, err := readPreviewTemplate(writeFile(t, "template.yaml", namespaceTemplate)); err != nil || len(got.objects) != 3 || len(got.labels) != 1 {
		t.Errorf("a good one: %+v, %v", got, err)
	}
}

// push pushes a change to the branch of the pull request.
func (e *previewEnv) push(files map[string]string) {
	e.t.Helper()
	var err error
	if e.head, err = e.repo.CommitOn("pr", "a pull request", func(r *gittest.Repo) error { return r.Write(files) }); err != nil {
		e.t.Fatal(err)
	}
}

// set sets the state and the labels of pull request 7.
func (e *previewEnv) set(state string, labels ...string) {
	p := githosttest.PullRequest{Number: 7, State: state, Head: githosttest.Ref{Ref: "pr", SHA: e.head}, Base: githosttest.Ref{Ref: gittest.Branch}}
	for _, l := range labels {
		p.Labels = append(p.Labels, githosttest.Label{Name: l})
	}
	e.github.SetPull(p)
}

// listings returns how often the open pull requests were listed. A listing begins after all that the former
// one has caused.
func (e *previewEnv) listings() (n int) {
	for _, call := range e.github.Calls() {
		if strings.HasSuffix(call, "/pulls") && !strings.Contains(call, "/commits/") { // those are of what a commit has brought
			n++
		}
	}
	return n
}

// comment returns the comment about the preview, "" if there is none. There is never more than one.
func (e *previewEnv) comment() (body string) {
	e.t.Helper()
	for _, c := range e.github.Comments(7) {
		if !strings.Contains(c.Body, "### Preview: ") {
			continue
		}
		if body != "" {
			e.t.Errorf("there are two comments: %s and %s", body, c.Body)
		}
		body = c.Body
	}
	return body
}

// says waits until the comment says that the preview of the head is in a phase.
func (e *previewEnv) says(phase string) string {
	e.t.Helper()
	eventually(e.t, "the comment says "+phase, func() bool {
		body := e.comment()
		return strings.Contains(body, "### Preview: "+phase+"\n") && (phase == "removed" || strings.Contains(body, "`"+e.head[:7]+"`"))
	})
	return e.comment()
}

// lastState returns the last state of the commit status of the head.
func (e *previewEnv) lastState() string {
	states, _ := stateOf(e.github, e.head, "piped/preview")
	if len(states) == 0 {
		return ""
	}
	return states[len(states)-1]
}

// ready reports how many pods of an image are ready in the namespace of the preview, as the
// cluster says.
func (e *previewEnv) ready(image string) (n int) {
	e.t.Helper()
	pods, err := e.cluster.CoreV1().Pods(e.preview).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		e.t.Error(err)
		return 0
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil && pod.Spec.Containers[0].Image == "registry.example/"+image {
				n++
			}
		}
	}
	return n
}

func (e *previewEnv) exists() bool {
	e.t.Helper()
	_, err := e.cluster.CoreV1().Namespaces().Get(context.Background(), e.preview, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		e.t.Fatal(err)
	}
	return err == nil
}

// previewApplications returns the names of all applications that are previews.
func (c *client) previewApplications() (names []string) {
	c.t.Helper()
	resp, err := c.api.ListApplications(c.ctx, &apiservice.ListApplicationsRequest{Labels: map[string]string{"pull-request": "7"}})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range resp.GetApplications() {
		names = append(names, a.GetName())
	}
	return names
}

// pullPreview returns the preview of pull request 7 as the API has it, nil if there is none.
func (c *client) pullPreview() *controlv1.Preview {
	c.t.Helper()
	resp, err := c.control.ListPreviews(c.ctx, &controlv1.ListPreviewsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	switch list := resp.GetPreviews(); len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	default:
		c.t.Fatalf("there are several previews: %v", list)
		return nil
	}
}

// TestPullRequestIsPreviewed: a pull request with the label gets its applications in a namespace of
// its own. The comment says that it is ready when the last pod of the slower application is, and no
// moment before; a push updates it, a commit that cannot start makes it failed, and another one
// ready again. It is removed when the pull request was closed while the agent was away. The
// applications of the branch are not touched.
func TestPullRequestIsPreviewed(t *testing.T) {
	t.Parallel()
	e := newPreviewEnv(t)
	agent, stop := runAgentUntil(t, e.settings)
	begin := e.repo.Push(t, "begin", merged(previewedApp("web", e.namespace, "v1", "0s"), previewedApp("api", e.namespace, "v1", "0s"), simple("other", e.namespace, "hi")))
	for _, dir := range []string{"web", "api", "other"} {
		agent.mustEnd(appID(dir), begin, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	before := e.objectsOf(false)

	e.push(merged(previewedApp("web", e.namespace, "v2", "0s"), heldApp("api", previewedApp("api", e.namespace, "v2", "0s")), simple("other", e.namespace, "hello")))
	e.set("open")
	seen := e.listings()
	eventually(t, "the pull request was seen", func() bool { return e.listings() >= seen+3 })
	if e.exists() || e.comment() != "" {
		t.Fatal("a pull request without the label has a preview")
	}

	e.set("open", "preview")
	waited := false
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		body, state := e.comment(), e.lastState() // read before what they have to be true of
		web, api := e.ready("web:v2"), e.ready("api:v2")
		linked := strings.Contains(body, "https://") && strings.Contains(body, "preview.example.com")
		if (linked || strings.Contains(body, "### Preview: ready") || state == "success") && (web < 2 || api < 2) {
			t.Fatalf("ready with %d and %d pods of 2: %s", web, api, body)
		}
		waited = waited || web == 2 && api == 0 && strings.Contains(body, "### Preview: building")
		if waited {
			letBeReady(t, e.cluster, e.preview)
		}
		if strings.Contains(body, "### Preview: ready") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the preview does not become ready: %s", body)
		}
	}
	if !waited {
		t.Error("the slower application was not waited for")
	}
	body := e.says("ready")
	if p := agent.pullPreview(); p.GetPhase() != controlv1.PreviewPhase_PREVIEW_PHASE_READY || p.GetHeadCommit() != e.head || p.GetReadyAtMs() == 0 ||
		len(p.GetApplications()) != 2 || p.GetApplications()[1].GetUrl() != "https://web-pr-7.preview.example.com" {
		t.Errorf("the API has the preview %v", p)
	}
	e.limited()
	mustContain(t, body, "web-pr-7", "api-pr-7", "<https://web-pr-7.preview.example.com>", "<https://api-pr-7.preview.example.com>")
	eventually(t, "the status is success", func() bool { return e.lastState() == "success" })
	ingress, err := e.cluster.NetworkingV1().Ingresses(e.preview).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || ingress.Spec.Rules[0].Host != "web-pr-7.preview.example.com" {
		t.Errorf("the Ingress of the preview: %v, %v", ingress, err)
	}
	if names := agent.previewApplications(); len(names) != 2 {
		t.Errorf("preview applications: %q", names)
	}

	e.push(merged(previewedApp("web", e.namespace, "v3", "0s"), previewedApp("api", e.namespace, "v2", "0s")))
	e.set("open", "preview")
	e.push(merged(previewedApp("web", e.namespace, "v4", "0s")))
	e.set("open", "preview")
	e.says("ready")
	if n := e.ready("web:v4"); n < 2 {
		t.Errorf("ready with %d pods of the second push", n)
	}

	broken := previewedApp("web", e.namespace, "does-not-exist", "0s")
	e.push(broken)
	e.set("open", "preview")
	body = e.says("failed")
	mustContain(t, body, "**failed**", "does-not-exist", "Last lines of <code>web-pr-7</code>")
	p := agent.pullPreview()
	if p.GetPhase() != controlv1.PreviewPhase_PREVIEW_PHASE_FAILED || !strings.Contains(p.GetReason(), "web-pr-7: ") || p.GetReadyAtMs() != 0 {
		t.Errorf("the API has the preview %v", p)
	}
	eventually(t, "the API has the logs", func() bool { // without those of pods that a busy cluster does not show in time
		logs, err := agent.control.GetPreviewLogs(agent.ctx, &controlv1.GetPreviewLogsRequest{RepositoryId: "apps", PullRequest: 7})
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(logs)
		return strings.Contains(text, "does-not-exist") && strings.Contains(text, "pod:")
	})
	if strings.Contains(body, "https://web-pr-7") {
		t.Errorf("a failed preview is linked: %s", body)
	}
	eventually(t, "the status is failure", func() bool { return e.lastState() == "failure" })

	stop()
	_, stop = runAgentUntil(t, e.settings)
	e.push(previewedApp("web", e.namespace, "v5", "0s"))
	e.set("open", "preview")
	e.says("ready")

	stop()
	e.set("closed", "preview")
	agent = runAgent(t, e.settings)
	mustContain(t, e.says("removed"), "the pull request is closed")
	eventually(t, "nothing is left", func() bool { return !e.exists() && len(agent.previewApplications()) == 0 && agent.pullPreview() == nil })
	eventually(t, "the environment is inactive", func() bool {
		ended := 0
		for _, d := range e.github.Deployments() {
			if n := len(d.Statuses); d.Environment == "preview/pr-7" && n > 0 {
				if d.Statuses[n-1].State != "inactive" {
					return false
				}
				ended++
			}
		}
		return ended > 0
	})
	e.mustBeShared(before)

	e.set("open", "preview")
	e.says("ready")
	e.set("open")
	e.says("removed")
	eventually(t, "nothing is left without the label", func() bool { return !e.exists() && len(agent.previewApplications()) == 0 && agent.pullPreview() == nil })
}

// behave sets the behavior of the pods of the preview.
func (e *previewEnv) behave(behavior string) {
	e.t.Helper()
	if pods, err := clustertest.Behave(e.t.Context(), e.cluster, e.preview, "", behavior); err != nil || pods == 0 {
		e.t.Fatal(pods, err)
	}
}

// TestPreviewThatCrashesLater: a ready preview whose pods crash becomes failed, with the reason and
// the last lines of a pod, and ready again when they have recovered. What somebody changes in it is
// restored.
func TestPreviewThatCrashesLater(t *testing.T) {
	t.Parallel()
	e := newPreviewEnv(t)
	agent := runAgent(t, e.settings)
	agent.mustEnd(appID("web"), e.repo.Push(t, "begin", previewedApp("web", e.namespace, "v1", "0s")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	e.push(previewedApp("web", e.namespace, "v2", "0s"))
	e.set("open", "preview")
	e.says("ready")

	e.behave("crash-loop")
	e.says("failed")
	eventually(t, "the comment has lines of a pod", func() bool { // a busy cluster may not show them at once
		_, lines, _ := strings.Cut(e.comment(), "Last lines of <code>web-pr-7</code>")
		return strings.Contains(lines, "pod web-")
	})
	body := e.comment()
	mustContain(t, body, "does not work any more", "pods are available", "Last lines of <code>web-pr-7</code>", "pod web-")
	if strings.Contains(body, "https://web-pr-7") {
		t.Errorf("a preview that crashes is linked: %s", body)
	}
	eventually(t, "the status is failure", func() bool { return e.lastState() == "failure" })
	if p := agent.pullPreview(); p.GetPhase() != controlv1.PreviewPhase_PREVIEW_PHASE_FAILED || p.GetReadyAtMs() == 0 {
		t.Errorf("the API has the preview %v", p)
	}
	e.behave("ready")
	e.says("ready")
	eventually(t, "the status is success", func() bool { return e.lastState() == "success" })

	deployments := e.cluster.AppsV1().Deployments(e.preview)
	foreign := []byte(`{"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"web","image":"registry.example/web:foreign"}]}}}}`)
	if _, err := deployments.Patch(t.Context(), "web", types.StrategicMergePatchType, foreign, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drift is healed", func() bool {
		d, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && *d.Spec.Replicas == 2 && d.Spec.Template.Spec.Containers[0].Image == "registry.example/web:v2"
	})
	preview := agent.pullPreview().GetApplications()[0].GetApplicationId()
	eventually(t, "the deployment that heals has ended", func() bool {
		all := agent.deployments(preview)
		return len(all) >= 2 && !slices.ContainsFunc(all, func(d *modelv1.Deployment) bool { return d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS })
	})
	if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted object is back", func() bool { return e.ready("web:v2") == 2 })
	e.says("ready")
}
