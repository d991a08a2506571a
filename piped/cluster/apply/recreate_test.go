package apply

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "migrate:1", env: [{name: TOKEN, value: not-for-logs}]}]}}}
`

func TestObjectsThatAreRecreated(t *testing.T) {
	role := func(name string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: b}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + name +
			"}\nsubjects: [{kind: ServiceAccount, name: default}]\n"
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: 'i:1', command: [a]}]}\n"
	permitted := strings.Replace(web, "kind: Deployment\nmetadata: {name: web}", `kind: Deployment
metadata: {name: web, annotations: {pipecd.dev/force-sync-by-replace: "enabled"}}`, 1)
	cases := map[string]struct{ kind, name, before, after, because string }{
		"a job of another template":      {"Job", "migrate", job, strings.Replace(job, "migrate:1", "migrate:2", 1), "spec.template"},
		"a binding to another role":      {"RoleBinding", "b", role("view"), role("edit"), "roleRef"},
		"a pod that does something else": {"Pod", "p", pod, strings.Replace(pod, "[a]", "[b]", 1), "spec"},
		"a workload that permits it": {
			"Deployment", "web", permitted, strings.ReplaceAll(permitted, "app: web", "app: other"), "spec.selector",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			first := itemOf(l.apply(t, c.before), c.kind)
			var before []*unstructured.Unstructured
			result := l.apply(t, c.after, func(r *Request) {
				r.DeploymentID, r.Commit = "deployment-2", "commit-2"
				journalOf(r).beforeWrite = func(_ manifest.Object, live, planned *unstructured.Unstructured) error {
					before = append(before, live, planned)
					return nil
				}
			})
			item := itemOf(result, c.kind)
			if item.UID == first.UID || item.CreatedBy != "deployment-1" || item.DeploymentID != "deployment-2" {
				t.Errorf("item %+v\nbefore: %+v", item, first)
			}
			if c.kind == "Deployment" && (len(before) != 2 || before[0] != nil || before[1] == nil) {
				t.Errorf("BeforeWrite was given %v", before)
			}
			log := l.log.take()
			plan := c.kind + " " + l.ns + "/" + c.name + " will be deleted and created anew, because " + c.because + " cannot be changed"
			deleted := c.kind + " " + l.ns + "/" + c.name + " to create it anew"
			if i, j := slices.Index(log, plan), slices.Index(log, "deleted "+deleted); i < 0 || j < i {
				t.Errorf("log:\n%s\nwants %q before the deletion", strings.Join(log, "\n"), plan)
			}
			l.apply(t, c.after)
			if got := l.writes(); len(got) != 0 {
				t.Errorf("the next apply wrote %v", got)
			}
		})
	}
}

func TestWhatIsNeverRecreated(t *testing.T) {
	annotated := `annotations: {pipecd.dev/force-sync-by-replace: "enabled"}`
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, " + annotated + "}\nspec: {accessModes: [ReadWriteOnce], storageClassName: a, resources: {requests: {storage: 1Gi}}}\n"
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\nimmutable: true\ndata: {color: blue}\n"
	cases := map[string]struct{ before, after, want string }{
		"a claim": {
			claim, strings.Replace(claim, "storageClassName: a", "storageClassName: b", 1),
			"spec of a live PersistentVolumeClaim cannot be changed; undo the change, give the object a new name, or delete the live object and sync again: ",
		},
		"what does not permit it": {
			settings, strings.Replace(settings, "blue", "red", 1),
			`data of a live ConfigMap cannot be changed; undo the change, give the object a new name, have it deleted and created anew with the annotation ` +
				`pipecd.dev/force-sync-by-replace: "enabled", or delete the live object and sync again: data: Forbidden: field is immutable when ` + "`immutable` is set",
		},
		"another problem": {
			job, strings.Replace(strings.Replace(job, "migrate:1", "migrate:2", 1), "restartPolicy: Never", "restartPolicy: Always", 1),
			"spec.template.spec.restartPolicy",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			l.apply(t, c.before)
			_, err := l.tryApply(t, c.after)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "nothing was changed: ") || deploy.KindOf(err) != deploy.Invalid {
				t.Errorf("error (%v):\n%v\nwant:\n%s", deploy.KindOf(err), err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "not-for-logs") {
				t.Errorf("the error repeats the template: %v", err)
			}
			if got := l.writes(); len(got) != 0 {
				t.Errorf("writes: %v", got)
			}
		})
	}
}

// TestARecreationThatWasInterrupted: between deleting and creating, the agent is
// killed. The next run creates the object.
func TestARecreationThatWasInterrupted(t *testing.T) {
	l := newEnv(t)
	l.apply(t, job)
	ctx, cancel := context.WithCancelCause(context.Background())
	killed := errors.New("killed")
	l.requests.Fail = func(r *http.Request) error {
		if r.Method == http.MethodDelete {
			return nil
		}
		if r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") {
			cancel(killed)
			return killed
		}
		return nil
	}
	if _, err := l.Apply(ctx, l.request(t, strings.Replace(job, "migrate:1", "migrate:2", 1))); !errors.Is(err, killed) {
		t.Fatalf("error: %v", err)
	}
	l.requests.Fail = nil
	result := l.apply(t, strings.Replace(job, "migrate:1", "migrate:2", 1))
	if result.Written != 1 || itemOf(result, "Job").UID != string(l.get(t, "Job", "migrate").GetUID()) {
		t.Errorf("%d written, item %+v", result.Written, itemOf(result, "Job"))
	}
	if diff := cmp.Diff([]string{"migrate:2"}, images(l.get(t, "Job", "migrate"))); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

func TestLongValuesAreLeftOut(t *testing.T) {
	long := strings.Repeat("x", 200)
	cases := map[string]string{
		"Invalid value: 3: too small":                         "Invalid value: 3: too small",
		"Invalid value: {" + long + "}: field is immutable":   "Invalid value: field is immutable",
		"Forbidden: " + long + ": field is immutable":         "Forbidden: " + long + ": field is immutable",
		"Invalid value: short: " + long + ": it is immutable": "Invalid value: it is immutable",
	}
	for message, want := range cases {
		if got := withoutContent(message); got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}
