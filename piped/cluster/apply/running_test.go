package apply

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestRunningCommits: objects that an agent applied show their commit, whichever
// application they belonged to. Objects that others applied show none.
func TestRunningCommits(t *testing.T) {
	l := newEnv(t)
	for name, annotations := range map[string]map[string]string{
		"old":     {manifest.AnnotationManagedBy: manifest.ManagedBy, manifest.AnnotationCommitHash: "aaa", manifest.AnnotationApplication: "another"},
		"new":     {manifest.AnnotationManagedBy: manifest.ManagedBy, manifest.AnnotationCommitHash: "bbb"},
		"same":    {manifest.AnnotationManagedBy: manifest.ManagedBy, manifest.AnnotationCommitHash: "bbb"},
		"silent":  {manifest.AnnotationManagedBy: manifest.ManagedBy},
		"foreign": {manifest.AnnotationCommitHash: "ccc"},
	} {
		live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		if _, err := l.Typed().CoreV1().ConfigMaps(l.ns).Create(t.Context(), live, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	objs := parse(t, "app.yaml", `
{apiVersion: v1, kind: ConfigMap, metadata: {name: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: new}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: same}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: silent}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: foreign}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: not-there}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: not-there}}
---
{apiVersion: never.example.com/v1, kind: Nothing, metadata: {name: nothing}}
`)
	got, err := l.RunningCommits(t.Context(), objs, l.ns)
	if err != nil || !slices.Equal(got, []string{"aaa", "bbb"}) {
		t.Errorf("running commits %v, %v; want aaa and bbb", got, err)
	}
}

func TestRunningCommitsOfAClusterThatDoesNotAnswer(t *testing.T) {
	c := New(applytest.Unreachable(t))
	objs := parse(t, "app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}")
	if _, err := c.RunningCommits(context.Background(), objs, ""); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("error %v, want one of kind Unavailable", err)
	}
}

// TestRunningCommitsThatAnAccountMayNotSee: missing rights of one account must give
// another error than a cluster to which no application can be deployed.
func TestRunningCommitsThatAnAccountMayNotSee(t *testing.T) {
	l := newEnv(t)
	view, err := l.As("system:serviceaccount:" + l.ns + ":nobody")
	if err != nil {
		t.Fatal(err)
	}
	objs := parse(t, "app.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}")
	if got, err := view.RunningCommits(t.Context(), objs, l.ns); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("running commits %v, %v; want an error of kind Invalid", got, err)
	}
}

// TestRunningCommitsThatTheAgentMayNotSee: missing rights of the agent on one kind must
// not count as an unreachable cluster, for which other applications would wait.
func TestRunningCommitsThatTheAgentMayNotSee(t *testing.T) {
	l := newEnv(t)
	l.requests.Answer = func(r *http.Request) *http.Response {
		if strings.Contains(r.URL.Path, "/secrets/") {
			return clustertest.Refusal(r, metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "secrets is forbidden"})
		}
		return nil
	}
	objs := parse(t, "app.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: web}}")
	if got, err := l.RunningCommits(t.Context(), objs, l.ns); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("running commits %v, %v; want an error of kind Invalid", got, err)
	}
}
