package health

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	config "github.com/c785c783/piped/piped/config/kubernetes"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return u
}

const (
	jobHead    = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, generation: 1}\n"
	claimHead  = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"
	crdHead    = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: databases.example.com}\n"
	serverHead = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.example.com}\n"
	customHead = "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: main, generation: 3}\n"
)

// TestOf: the health of each kind, with the reason.
func TestOf(t *testing.T) {
	checks := []config.HealthCheck{{
		APIVersion: "example.com/v1", Kind: "Queue",
		Healthy: []config.Condition{{Type: "Online", Status: "True"}, {Type: "Degraded", Status: "False"}},
		Failed:  []config.Condition{{Type: "Rejected", Status: "True"}},
	}}
	const queue = "apiVersion: example.com/v1\nkind: Queue\nmetadata: {name: mail, generation: 2}\n"
	cases := []struct {
		name, object string
		want         Status
		reason       string
	}{
		{"a job not processed yet", jobHead, InProgress, "no pod has been started"},
		{"a job that runs is not done", jobHead + "status: {active: 1, failed: 2}\n", InProgress, "pods: 1 running, 0 succeeded, 2 failed"},
		{"a job that is complete", jobHead + "status: {succeeded: 1, conditions: [{type: Complete, status: 'True'}]}\n", Current, ""},
		{"a job that has failed", jobHead + "status: {failed: 7, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: Job has reached the specified backoff limit}]}\n",
			Failed, "it failed: BackoffLimitExceeded: Job has reached the specified backoff limit"},
		{"a job that Git suspends", jobHead + "spec: {suspend: true}\n", Current, ""},

		{"a claim that is bound", claimHead + "status: {phase: Bound}\n", Current, ""},
		{"a claim that is pending", claimHead + "status: {phase: Pending}\n", InProgress, "it is not bound to a volume"},
		{"a claim whose volume is gone", claimHead + "status: {phase: Lost}\n", Failed, "its volume is lost"},

		{"a definition that is served", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}\n", Current, ""},
		{"a definition not established yet", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}]}\n", InProgress, "Install in progress"},
		{"a definition whose names are taken", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'False', message: taken}]}\n", Failed, "taken"},

		{"a server not checked yet", serverHead, InProgress, "the condition Available is not reported yet"},
		{"a server that does not answer", serverHead + "status: {conditions: [{type: Available, status: 'False', reason: MissingEndpoints, message: no addresses}]}\n",
			InProgress, "Available is False (MissingEndpoints): no addresses"},
		{"a server that answers", serverHead + "status: {conditions: [{type: Available, status: 'True'}]}\n", Current, ""},

		{"a namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\nstatus: {phase: Active}\n", Current, ""},
		{"a pod that runs once", "apiVersion: v1\nkind: Pod\nmetadata: {name: once}\nspec: {restartPolicy: Never}\nstatus: {phase: Running, conditions: [{type: Ready, status: 'True'}]}\n", InProgress, "it is Running"},
		{"a pod that ran", "apiVersion: v1\nkind: Pod\nmetadata: {name: once}\nspec: {restartPolicy: Never}\nstatus: {phase: Succeeded}\n", Current, ""},
		{"a pod that failed", "apiVersion: v1\nkind: Pod\nmetadata: {name: once}\nstatus: {phase: Failed, message: out of disk}\n", Failed, "it failed: out of disk"},

		{"what only describes", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", Current, ""},
		{"what waits for the world outside", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n", Current, ""},

		{"a custom resource without a status", customHead, Current, ""},
		{"a custom resource that is ready", customHead + "status: {observedGeneration: 3, conditions: [{type: Ready, status: 'True'}]}\n", Current, ""},
		{"a custom resource that is not ready", customHead + "status: {observedGeneration: 3, conditions: [{type: Ready, status: 'False', reason: Creating, message: starting}]}\n",
			InProgress, "starting"},
		{"a custom resource whose controller is behind", customHead + "status: {observedGeneration: 2, conditions: [{type: Ready, status: 'True'}]}\n",
			InProgress, "Database generation is 3, but latest observed generation is 2"},
		{"a custom resource that is stalled", customHead + "status: {conditions: [{type: Stalled, status: 'True', reason: Broken, message: no such plan}]}\n", Failed, "no such plan"},

		{"a check without its conditions", queue, InProgress, "it has no condition Online yet"},
		{"a check of which one condition holds", queue + "status: {conditions: [{type: Online, status: 'True'}, {type: Degraded, status: 'True', reason: Slow}]}\n",
			InProgress, "Degraded is True (Slow)"},
		{"a check that holds", queue + "status: {conditions: [{type: Online, status: 'True'}, {type: Degraded, status: 'False'}]}\n", Current, ""},
		{"a check about an earlier generation", queue + "status: {conditions: [{type: Online, status: 'True', observedGeneration: 1}, {type: Degraded, status: 'False'}]}\n",
			InProgress, "Online is True"},
		{"a check whose controller is behind", queue + "status: {observedGeneration: 1, conditions: [{type: Online, status: 'True'}, {type: Degraded, status: 'False'}]}\n",
			InProgress, "its controller has not seen the change yet"},
		{"a check that says failed", queue + "status: {conditions: [{type: Online, status: 'True'}, {type: Rejected, status: 'True', message: too many}]}\n",
			Failed, "Rejected is True: too many"},
		{"a failure of an earlier generation", queue + "status: {conditions: [{type: Rejected, status: 'True', observedGeneration: 1}]}\n",
			InProgress, "it has no condition Online yet"},

		{"a complete Job that its time to live deletes", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, deletionTimestamp: '2026-01-01T00:00:00Z'}\nstatus: {succeeded: 1, conditions: [{type: Complete, status: 'True'}]}\n", Current, ""},
		{"a failed Job that its time to live deletes", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, deletionTimestamp: '2026-01-01T00:00:00Z'}\nstatus: {failed: 1, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: too often}]}\n", Failed, "it failed: BackoffLimitExceeded: too often"},
		{"a Job that is deleted while it runs", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, deletionTimestamp: '2026-01-01T00:00:00Z'}\nstatus: {active: 1}\n", InProgress, "it is being deleted"},
		{"what is being deleted", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, deletionTimestamp: '2026-01-01T00:00:00Z'}\n", InProgress, "it is being deleted"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, reason := Of(object(t, c.object), checks)
			if got != c.want || reason != c.reason {
				t.Errorf("got %s %q, want %s %q", got, reason, c.want, c.reason)
			}
		})
	}
}

// TestHas: kinds without health cost no request.
func TestHas(t *testing.T) {
	checks := []config.HealthCheck{{Kind: "Service"}, {APIVersion: "v1", Kind: "Secret"}}
	for gvk, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "ConfigMap"}:                                                             false,
		{Version: "v1", Kind: "Service"}:                                                               true, // it has a health check
		{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}:                                 true,
		{Group: "secrets.example.com", Version: "v2", Kind: "Secret"}:                                  true,
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}:                              false,
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}:                         false,
		{Group: "batch", Version: "v1", Kind: "Job"}:                                                   true,
		{Group: "batch", Version: "v1", Kind: "CronJob"}:                                               false,
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}:               true,
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}:                         false,
		{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}:                                 true,
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:                                   false,
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:                           true,
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}: false,
	} {
		if got := Has(gvk, checks); got != want {
			t.Errorf("%s: got %t, want %t", gvk, got, want)
		}
	}
}

func TestAwaitsUse(t *testing.T) {
	const pending = "status: {phase: Pending}\n"
	for text, want := range map[string]string{
		claimHead + "spec: {storageClassName: slow}\n" + pending:               "slow",
		claimHead + "spec: {}\n" + pending:                                     "",
		claimHead + "spec: {storageClassName: slow}\nstatus: {phase: Bound}\n": "",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: d, annotations: {volume.kubernetes.io/selected-node: node-1}}\nspec: {storageClassName: slow}\n" + pending: "",
	} {
		if got, ok := AwaitsUse(object(t, text)); got != want || ok != (want != "") {
			t.Errorf("got %q, %t; want %q of:\n%s", got, ok, want, text)
		}
	}
}
