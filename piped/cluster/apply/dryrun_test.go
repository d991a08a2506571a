package apply

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRefusalsThatAreNone covers responses that a current API server does not give, or
// only with other credentials: webhooks with side effects, and admission that needs an
// object that the same set creates.
func TestRefusalsThatAreNone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	account := &target{ref: deploy.ObjectRef{Version: "v1", Kind: "ServiceAccount", Name: "robot"}, changed: true}
	known := &target{ref: account.ref, changed: true, live: &metav1.ObjectMeta{}}
	pod := &target{ref: deploy.ObjectRef{Version: "v1", Kind: "Pod", Name: "p"}, changed: true}
	workload := &target{ref: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Name: "d"}, changed: true}
	sideEffects := apierrors.NewBadRequest(`admission webhook "w.example.com" does not support dry run`)

	cases := map[string]struct {
		set    []*target
		target *target
		err    error
		want   string
	}{
		"no refusal":                    {[]*target{pod}, pod, nil, ""},
		"a webhook with side effects":   {[]*target{workload}, workload, sideEffects, sideEffects.Error()},
		"a pod of a new account":        {[]*target{account, pod}, pod, apierrors.NewForbidden(pods, "p", nil), "it may need an account, role or class that is created first"},
		"a pod of an old account":       {[]*target{known, pod}, pod, apierrors.NewForbidden(pods, "p", nil), ""},
		"a workload next to an account": {[]*target{account, workload}, workload, apierrors.NewForbidden(pods, "d", nil), ""},
		"a pod that is invalid":         {[]*target{account, pod}, pod, apierrors.NewBadRequest("no"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &applyRun{targets: c.set}
			if got := r.cannotTry(c.target, c.err); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
