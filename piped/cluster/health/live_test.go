package health

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

const (
	deploymentHead = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, generation: 4}\n" +
		"spec: {replicas: 3, template: {spec: {containers: [{name: app, image: web}]}}}\n"
	setHead       = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db, generation: 2}\n"
	daemonHead    = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent, generation: 2}\n"
	replicasHead  = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-1, generation: 1}\nspec: {replicas: 1}\n"
	podHead       = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1-x}\nspec: {restartPolicy: Always}\n"
	cronHead      = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: report}\n"
	balancerHead  = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: LoadBalancer}\n"
	ingressHead   = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n"
	autoscaleHead = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n"
	budgetHead    = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\n"
	volumeHead    = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\n"
	gatewayHead   = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, generation: 2}\n"
	routeHead     = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web, namespace: shop, generation: 2}\nspec: {parentRefs: [{name: edge}]}\n"
	istioHead     = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, generation: 2}\n"
	queueHead     = "apiVersion: example.com/v1\nkind: Queue\nmetadata: {name: mail, generation: 2}\n"
)

// olderHead is an autoscaler of autoscaling/v1 with conditions.
func olderHead(conditions string) string {
	return "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: web, annotations: {autoscaling.alpha.kubernetes.io/conditions: '" + conditions + "'}}\n"
}

// TestLive: the health of each kind, with the reason.
func TestLive(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	checks := []config.HealthCheck{{
		APIVersion: "example.com/v1", Kind: "Queue",
		Healthy: []config.Condition{{Type: "Online", Status: "True"}}, Failed: []config.Condition{{Type: "Rejected", Status: "True"}},
	}}
	for _, c := range []struct {
		name, object string
		want         deploy.Health
		reason       string
	}{
		{"what is being deleted", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, deletionTimestamp: '2026-03-01T11:00:00Z'}\n", deploy.HealthProgressing, "it is being deleted"},
		{"what a finalizer holds", "apiVersion: v1\nkind: Namespace\nmetadata: {name: c, deletionTimestamp: '2026-03-01T11:00:00Z', finalizers: [example.com/keep]}\n",
			deploy.HealthProgressing, "it is being deleted and waits for example.com/keep"},
		{"a namespace that is not empty", "apiVersion: v1\nkind: Namespace\nmetadata: {name: c, deletionTimestamp: '2026-03-01T11:00:00Z'}\n" +
			"status: {phase: Terminating, conditions: [{type: NamespaceDeletionDiscoveryFailure, status: 'False', message: all known}, {type: NamespaceContentRemaining, status: 'True', message: 'Some resources are remaining: pods. has 1 resource instances'}]}\n",
			deploy.HealthProgressing, "it is being deleted: Some resources are remaining: pods. has 1 resource instances"},
		{"a namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: c}\nstatus: {phase: Active}\n", deploy.Healthy, ""},

		{"a deployment not processed yet", deploymentHead + "status: {observedGeneration: 3}\n", deploy.HealthProgressing, "its controller has not seen the change yet"},
		{"a paused deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, generation: 4}\nspec: {paused: true}\n", deploy.HealthSuspended, "its rollout is paused"},
		{"a deployment that may not have pods", deploymentHead + "status: {observedGeneration: 4, conditions: [{type: ReplicaFailure, status: 'True', message: exceeded quota}]}\n",
			deploy.HealthDegraded, "pods cannot be created: exceeded quota"},
		{"a deployment without progress", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, generation: 4}\nspec: {replicas: 3, progressDeadlineSeconds: 600}\n" +
			"status: {observedGeneration: 4, updatedReplicas: 1, replicas: 4, availableReplicas: 3, conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}]}\n",
			deploy.HealthDegraded, "its rollout has made no progress for 10m0s; 3 of 3 pods are available"},
		{"a deployment with new pods to come", deploymentHead + "status: {observedGeneration: 4, replicas: 4, updatedReplicas: 1, availableReplicas: 3}\n", deploy.HealthProgressing, "1 of 3 pods are new"},
		{"a deployment with old pods", deploymentHead + "status: {observedGeneration: 4, replicas: 4, updatedReplicas: 3, availableReplicas: 3}\n", deploy.HealthProgressing, "old pods that are still there: 1"},
		{"a deployment with pods that start", deploymentHead + "status: {observedGeneration: 4, replicas: 3, updatedReplicas: 3, availableReplicas: 2}\n", deploy.HealthProgressing, "2 of 3 pods are available"},
		{"a deployment whose pods have gone", deploymentHead + "status: {observedGeneration: 4, replicas: 3, updatedReplicas: 3, availableReplicas: 1, conditions: [" +
			"{type: Progressing, status: 'True', reason: NewReplicaSetAvailable}, {type: Available, status: 'False'}]}\n", deploy.HealthDegraded, "1 of 3 pods are available, after all had been"},
		{"a deployment that is scaled up", deploymentHead + "status: {observedGeneration: 4, replicas: 3, updatedReplicas: 3, availableReplicas: 2, conditions: [" +
			"{type: Progressing, status: 'True', reason: NewReplicaSetAvailable}, {type: Available, status: 'True'}]}\n", deploy.HealthProgressing, "2 of 3 pods are available"},
		{"a deployment that serves", deploymentHead + "status: {observedGeneration: 4, replicas: 3, updatedReplicas: 3, availableReplicas: 3}\n", deploy.Healthy, ""},

		{"a set not processed yet", setHead + "status: {observedGeneration: 1}\n", deploy.HealthProgressing, "its controller has not seen the change yet"},
		{"a set with pods to come", setHead + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, availableReplicas: 1, updatedReplicas: 2}\n", deploy.HealthProgressing, "1 of 2 pods are available"},
		{"a set with old pods", setHead + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, availableReplicas: 2, updatedReplicas: 1}\n", deploy.HealthProgressing, "1 of 2 pods are new"},
		{"a set with a partition", setHead + "spec: {replicas: 2, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}\nstatus: {observedGeneration: 2, availableReplicas: 2, updatedReplicas: 1}\n", deploy.Healthy, ""},
		{"a set that another manager updates", setHead + "spec: {replicas: 2, updateStrategy: {type: OnDelete}}\nstatus: {observedGeneration: 2, availableReplicas: 2}\n", deploy.Healthy, ""},
		{"daemons not processed yet", daemonHead, deploy.HealthProgressing, "its controller has not seen the change yet"},
		{"daemons to come", daemonHead + "status: {observedGeneration: 2, desiredNumberScheduled: 1}\n", deploy.HealthProgressing, "0 of 1 pod is available"},
		{"old daemons", daemonHead + "status: {observedGeneration: 2, desiredNumberScheduled: 2, numberAvailable: 2, updatedNumberScheduled: 1}\n", deploy.HealthProgressing, "1 of 2 pods are new"},
		{"daemons", daemonHead + "status: {observedGeneration: 2, desiredNumberScheduled: 2, numberAvailable: 2, updatedNumberScheduled: 2}\n", deploy.Healthy, ""},
		{"replicas", replicasHead + "status: {observedGeneration: 1, replicas: 1, availableReplicas: 1}\n", deploy.Healthy, ""},
		{"replicas not processed yet", replicasHead, deploy.HealthProgressing, "its controller has not seen the change yet"},
		{"replicas to come", replicasHead + "status: {observedGeneration: 1}\n", deploy.HealthProgressing, "0 of 1 pod is available"},
		{"replicas to go", replicasHead + "status: {observedGeneration: 1, replicas: 3, availableReplicas: 3}\n", deploy.HealthProgressing, "pods that are still to be stopped: 2"},
		{"replicas that are refused", replicasHead + "status: {observedGeneration: 1, conditions: [{type: ReplicaFailure, status: 'True', message: exceeded quota}]}\n", deploy.HealthDegraded, "pods cannot be created: exceeded quota"},

		{"a pod that serves", podHead + "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}\n", deploy.Healthy, ""},
		{"a pod that starts", podHead + "status: {phase: Pending}\n", deploy.HealthProgressing, "it is starting"},
		{"a pod without an image", podHead + "status: {phase: Pending, containerStatuses: [{name: app, image: 'web:1', state: {waiting: {reason: ImagePullBackOff, message: not found}}}]}\n",
			deploy.HealthDegraded, "container app: ImagePullBackOff: the image cannot be pulled (web:1): not found"},
		{"a pod that crashes again", podHead + "status: {phase: Running, containerStatuses: [{name: app, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2}}}]}\n",
			deploy.HealthDegraded, "container app: CrashLoopBackOff: crashes again and again (1 restart), last exit code 2"},
		{"a pod that crashed before", podHead + "status: {phase: Running, containerStatuses: [{name: app, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 2}}}]}\n",
			deploy.HealthDegraded, "container app: crashes (1 restart), last exit code 2"},
		{"a pod that is not ready", podHead + "status: {phase: Running, containerStatuses: [{name: app, state: {running: {}}}]}\n", deploy.HealthProgressing, "container app: runs but is not ready"},
		{"a pod that may not be started", podHead + "status: {phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: CreateContainerConfigError, message: 'configmap \"web\" not found'}}}]}\n",
			deploy.HealthDegraded, "container app: CreateContainerConfigError: its configuration cannot be made: configmap \"web\" not found"},
		{"a pod that does not fit", podHead + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: no room}]}\n",
			deploy.HealthProgressing, "cannot be scheduled: no room"},
		{"a pod that was evicted", podHead + "status: {phase: Failed, reason: Evicted, message: out of disk}\n", deploy.HealthDegraded, "Evicted: out of disk"},
		{"a pod that has worked", podHead + "status: {phase: Succeeded}\n", deploy.Healthy, ""},
		{"a pod that works", "apiVersion: v1\nkind: Pod\nmetadata: {name: once}\nspec: {restartPolicy: Never}\nstatus: {phase: Running, conditions: [{type: Ready, status: 'True'}]}\n", deploy.HealthProgressing, "it has not ended"},

		{"a job not processed yet", jobHead, deploy.HealthProgressing, "no pod has been started"},
		{"a job that works", jobHead + "status: {active: 1, failed: 2}\n", deploy.HealthProgressing, "pods: 1 running, 0 succeeded, 2 failed"},
		{"a job that has worked", jobHead + "status: {succeeded: 1, conditions: [{type: Complete, status: 'True'}]}\n", deploy.Healthy, ""},
		{"a job that has failed", jobHead + "status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: too often}]}\n", deploy.HealthDegraded, "it failed: BackoffLimitExceeded: too often"},
		{"a job that waits", jobHead + "spec: {suspend: true}\n", deploy.HealthSuspended, "it is suspended"},
		{"a cron job before its time", cronHead, deploy.Healthy, ""},
		{"a cron job that works", cronHead + "status: {lastScheduleTime: '2026-03-01T11:00:00Z', active: [{name: a}]}\n", deploy.Healthy, ""},
		{"a cron job that has worked", cronHead + "status: {lastScheduleTime: '2026-03-01T11:00:00Z', lastSuccessfulTime: '2026-03-01T11:00:09Z'}\n", deploy.Healthy, ""},
		{"a cron job that failed last", cronHead + "status: {lastScheduleTime: '2026-03-01T11:00:00Z', lastSuccessfulTime: '2026-03-01T10:00:09Z'}\n",
			deploy.HealthDegraded, "its last run, of 2026-03-01T11:00:00Z, did not succeed"},
		{"a cron job that waits", cronHead + "spec: {suspend: true}\n", deploy.HealthSuspended, "it is suspended"},

		{"a service", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: ClusterIP}\n", deploy.Healthy, ""},
		{"a balancer without an address", balancerHead, deploy.HealthProgressing, "its load balancer has no address yet"},
		{"a balancer", balancerHead + "status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}\n", deploy.Healthy, ""},
		{"an ingress without an address", ingressHead, deploy.HealthProgressing, "no ingress controller has given it an address yet"},
		{"an ingress", ingressHead + "status: {loadBalancer: {ingress: [{hostname: edge}]}}\n", deploy.Healthy, ""},
		{"a claim that waits", claimHead + "status: {phase: Pending}\n", deploy.HealthProgressing, "it is not bound to a volume; some classes bind a claim when the first pod uses it"},
		{"a claim that lost its volume", claimHead + "status: {phase: Lost}\n", deploy.HealthDegraded, "its volume is lost"},
		{"a claim", claimHead + "status: {phase: Bound}\n", deploy.Healthy, ""},
		{"a volume", volumeHead + "status: {phase: Available}\n", deploy.Healthy, ""},
		{"a volume to come", volumeHead, deploy.HealthProgressing, "it is not available yet"},
		{"a volume that failed", volumeHead + "status: {phase: Failed, message: busy}\n", deploy.HealthDegraded, "its reclamation failed: busy"},

		{"an autoscaler not processed yet", autoscaleHead, deploy.HealthProgressing, "the autoscaler has not processed it yet"},
		{"an autoscaler without a target", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'False', reason: FailedGetScale, message: no deployment}]}\n",
			deploy.HealthDegraded, "AbleToScale is False (FailedGetScale): no deployment"},
		{"an autoscaler without metrics", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: FailedGetResourceMetric, message: no metrics}]}\n",
			deploy.HealthDegraded, "ScalingActive is False (FailedGetResourceMetric): no metrics"},
		{"an autoscaler that selects nothing", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: InvalidSelector, message: empty}]}\n",
			deploy.HealthDegraded, "ScalingActive is False (InvalidSelector): empty"},
		{"an autoscaler that may not scale", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'False', reason: FailedUpdateScale, message: forbidden}]}\n",
			deploy.HealthDegraded, "AbleToScale is False (FailedUpdateScale): forbidden"},
		{"an autoscaler at its limit", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'True'}, {type: ScalingLimited, status: 'True', reason: TooManyReplicas}]}\n", deploy.Healthy, ""},
		{"an older autoscaler", olderHead(`[{"type":"AbleToScale","status":"True"},{"type":"ScalingActive","status":"True"}]`), deploy.Healthy, ""},
		{"an older autoscaler without metrics", olderHead(`[{"type":"AbleToScale","status":"True"},{"type":"ScalingActive","status":"False","reason":"FailedGetPodsMetric","message":"no metrics"}]`),
			deploy.HealthDegraded, "ScalingActive is False (FailedGetPodsMetric): no metrics"},
		{"an older autoscaler not processed yet", "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n", deploy.HealthProgressing, "the autoscaler has not processed it yet"},
		{"an autoscaler of nothing", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: ScalingDisabled}]}\n",
			deploy.HealthSuspended, "what it scales has no replicas"},
		{"an autoscaler", autoscaleHead + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'True'}]}\n", deploy.Healthy, ""},
		{"a budget", budgetHead + "status: {currentHealthy: 2, desiredHealthy: 2}\n", deploy.Healthy, ""},
		{"a budget that is not met", budgetHead + "status: {currentHealthy: 1, desiredHealthy: 2}\n", deploy.HealthProgressing, "1 of the 2 pods that it demands are healthy"},
		{"a budget that cannot be worked out", budgetHead + "status: {conditions: [{type: DisruptionAllowed, status: 'False', reason: SyncFailed, message: two controllers}]}\n",
			deploy.HealthDegraded, "DisruptionAllowed is False (SyncFailed): two controllers"},

		{"a definition not established", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}]}\n", deploy.HealthProgressing, "Install in progress"},
		{"a definition whose names are taken", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'False', message: taken}]}\n", deploy.HealthDegraded, "taken"},
		{"a definition that is being installed", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'False', reason: Installing}]}\n", deploy.HealthProgressing, "Install in progress"},
		{"a definition that is not installed", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'False', reason: Broken, message: no storage}]}\n", deploy.HealthDegraded, "no storage"},
		{"a definition without structure", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}, {type: NonStructuralSchema, status: 'True', reason: Violations, message: type is missing}]}\n",
			deploy.HealthDegraded, "NonStructuralSchema is True (Violations): type is missing"},
		{"a definition", crdHead + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}\n", deploy.Healthy, ""},
		{"a server not checked yet", serverHead, deploy.HealthProgressing, "the condition Available is not reported yet"},
		{"a server", serverHead + "status: {conditions: [{type: Available, status: 'True'}]}\n", deploy.Healthy, ""},
		{"a server that does not answer", serverHead + "status: {conditions: [{type: Available, status: 'False', reason: MissingEndpoints, message: no addresses}]}\n",
			deploy.HealthProgressing, "Available is False (MissingEndpoints): no addresses"},

		{"a gateway not processed yet", gatewayHead, deploy.HealthProgressing, "its controller has not reported Accepted yet"},
		{"a gateway to come", gatewayHead + "status: {conditions: [{type: Accepted, status: 'True', observedGeneration: 2}, {type: Programmed, status: 'False', reason: Pending, observedGeneration: 2}]}\n",
			deploy.HealthProgressing, "Programmed is False (Pending)"},
		{"a gateway that is refused", gatewayHead + "status: {conditions: [{type: Accepted, status: 'False', reason: Invalid, message: no class, observedGeneration: 2}]}\n", deploy.HealthDegraded, "Accepted is False (Invalid): no class"},
		{"a gateway", gatewayHead + "status: {conditions: [{type: Accepted, status: 'True', observedGeneration: 2}, {type: Programmed, status: 'True', observedGeneration: 2}]}\n", deploy.Healthy, ""},
		{"a route not processed yet", routeHead, deploy.HealthProgressing, "Gateway shop/edge has not reported a status yet"},
		{"a route that is refused", routeHead + "status: {parents: [{parentRef: {name: edge}, conditions: [{type: Accepted, status: 'True', observedGeneration: 2}, {type: ResolvedRefs, status: 'False', reason: BackendNotFound, message: no web, observedGeneration: 2}]}]}\n",
			deploy.HealthDegraded, "Gateway shop/edge says ResolvedRefs is False: BackendNotFound: no web"},
		{"a route", routeHead + "status: {parents: [{parentRef: {name: edge}, conditions: [{type: Accepted, status: 'True', observedGeneration: 2}, {type: ResolvedRefs, status: 'True', observedGeneration: 2}]}]}\n", deploy.Healthy, ""},
		{"a route that one of two refuses", "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web, namespace: shop, generation: 2}\nspec: {parentRefs: [{name: edge}, {name: inner}]}\n" +
			"status: {parents: [{parentRef: {name: edge}, conditions: [{type: Accepted, status: 'True', observedGeneration: 2}, {type: ResolvedRefs, status: 'True', observedGeneration: 2}]}, " +
			"{parentRef: {name: inner}, conditions: [{type: Accepted, status: 'False', reason: NotAllowedByListeners, message: other namespace, observedGeneration: 2}]}]}\n",
			deploy.HealthDegraded, "Gateway shop/inner says Accepted is False: NotAllowedByListeners: other namespace"},
		{"a route that is not in effect", routeHead + "status: {parents: [{parentRef: {name: edge}, conditions: [{type: Accepted, status: 'True', observedGeneration: 2}, {type: ResolvedRefs, status: 'True', observedGeneration: 2}, {type: Programmed, status: 'False', reason: Pending}]}]}\n",
			deploy.HealthProgressing, "Programmed is False (Pending)"},
		{"a route of an earlier generation", routeHead + "status: {parents: [{parentRef: {name: edge}, conditions: [{type: Accepted, status: 'False', observedGeneration: 1}, {type: ResolvedRefs, status: 'True', observedGeneration: 2}]}]}\n",
			deploy.HealthProgressing, "Gateway shop/edge has not processed the latest change yet (Accepted is of generation 1, the route has 2)"},
		{"what Istio has not reported on", istioHead, deploy.Healthy, ""},
		{"what Istio has read", istioHead + "status: {observedGeneration: '2', conditions: [{type: Reconciled, status: 'True'}]}\n", deploy.Healthy, ""},
		{"what Istio has not spread", istioHead + "status: {conditions: [{type: Reconciled, status: 'False', message: 1/2 proxies}]}\n", deploy.HealthProgressing, "Reconciled is False: 1/2 proxies"},
		{"what Istio finds wrong", istioHead + "status: {validationMessages: [{level: INFO}, {level: ERROR, type: {name: ReferencedResourceNotFound, code: IST0101}, documentationUrl: 'https://istio.io/x'}]}\n",
			deploy.HealthDegraded, "Istio finds a mistake in it: ReferencedResourceNotFound (IST0101), see https://istio.io/x"},

		{"what only describes", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", deploy.Healthy, ""},
		{"a custom resource without a status", customHead, deploy.Healthy, ""},
		{"a custom resource that is not ready", customHead + "status: {observedGeneration: 3, conditions: [{type: Ready, status: 'False', reason: Starting, message: one replica}]}\n", deploy.HealthProgressing, "one replica"},
		{"a custom resource that is ready", customHead + "status: {observedGeneration: 3, conditions: [{type: Ready, status: 'True'}]}\n", deploy.Healthy, ""},
		{"a custom resource that is at work", customHead + "status: {observedGeneration: 3, conditions: [{type: Reconciling, status: 'True', reason: Growing, message: a replica is added}]}\n", deploy.HealthProgressing, "a replica is added"},
		{"a custom resource not processed yet", customHead + "status: {observedGeneration: 2, conditions: [{type: Ready, status: 'True'}]}\n", deploy.HealthProgressing, "Database generation is 3, but latest observed generation is 2"},
		{"a custom resource that is stuck", customHead + "status: {conditions: [{type: Stalled, status: 'True', reason: NoDisk, message: no disk}]}\n", deploy.HealthDegraded, "no disk"},
		{"what a check calls healthy", queueHead + "status: {conditions: [{type: Online, status: 'True'}, {type: Ready, status: 'False'}]}\n", deploy.Healthy, ""},
		{"what a check calls failed", queueHead + "status: {conditions: [{type: Rejected, status: 'True', message: no room}]}\n", deploy.HealthDegraded, "Rejected is True: no room"},
		{"what a check waits for", queueHead, deploy.HealthProgressing, "it has no condition Online yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reason := Live(object(t, c.object), checks, now)
			if got != c.want || reason != c.reason {
				t.Errorf("%s, %q; want %s, %q", got, reason, c.want, c.reason)
			}
		})
	}
}

// TestReadWhole: objects that only describe something are read without their content.
func TestReadWhole(t *testing.T) {
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "Secret"}:                                      false,
		{Version: "v1", Kind: "ConfigMap"}:                                   false,
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}:    false,
		{Version: "v1", Kind: "Service"}:                                     true,
		{Group: "apps", Version: "v1", Kind: "Deployment"}:                   true,
		{Group: "example.com", Version: "v1", Kind: "Database"}:              true,
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}: true,
	} {
		if got := ReadWhole(kind, nil); got != want {
			t.Errorf("%s is read whole: %t", kind, got)
		}
	}
	checks := []config.HealthCheck{{Kind: "ConfigMap"}}
	if !ReadWhole(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, checks) {
		t.Error("a kind that a check is about is not read whole")
	}
}
