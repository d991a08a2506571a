package apply

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

const removable = `
apiVersion: v1
kind: ConfigMap
metadata: {name: locked}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: open}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
`

// TestRemovalPlannedWithAnObjectThatCannotBeRead: the unreadable object is planned in its
// level and order, and does not affect the plan of the others.
func TestRemovalPlannedWithAnObjectThatCannotBeRead(t *testing.T) {
	for name, refused := range map[string]metav1.Status{
		"it may not be read":   {Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "configmaps is forbidden"},
		"its kind cannot be":   {Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: "no"},
		"the server fails it ": {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "conversion webhook failed"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			l.Client = &Client{l.WithRetryFor(0), l.dryRuns}
			l.apply(t, removable)
			l.requests.Answer = func(r *http.Request) *http.Response {
				if strings.HasSuffix(r.URL.Path, "/locked") {
					return clustertest.Refusal(r, refused)
				}
				return nil
			}
			plan, err := l.PlanRemoval(t.Context(), "piped-1", l.items(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]string
			for _, level := range plan.Levels {
				var names []string
				for _, item := range level {
					names = append(names, item.Object.Name)
				}
				got = append(got, names)
			}
			if diff := cmp.Diff([][]string{{"locked", "open"}, {"web"}}, got); diff != "" {
				t.Fatalf("levels (-want +got):\n%s", diff)
			}
			ended, left := l.RemoveLevel(t.Context(), "piped-1", plan.Levels[0], l.log)
			if len(ended) != 1 || ended[0].Object.Name != "open" {
				t.Errorf("ended %v, want that which can be read", ended)
			}
			if len(left) != 1 || left[0].Item.Object.Name != "locked" || !strings.Contains(left[0].Reason, refused.Message) {
				t.Errorf("left %+v, want that which cannot be read, with the reason", left)
			}
		})
	}
}

// TestRemovalPlannedOfAClusterThatDoesNotAnswer: if nothing can be read, nothing is
// planned.
func TestRemovalPlannedOfAClusterThatDoesNotAnswer(t *testing.T) {
	c := New(applytest.Unreachable(t))
	items := []deploy.InventoryItem{{UID: "u", Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "web"}}}
	if plan, err := c.PlanRemoval(t.Context(), "piped-1", items, nil); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("planned %+v, %v; want an error of kind Unavailable", plan, err)
	}
}
