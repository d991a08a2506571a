package pipectl_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// ago returns the time d before now in unix milliseconds.
func ago(d time.Duration) int64 { return time.Now().Add(-d).UnixMilli() }

func object(kind, name string) *modelv1.ObjectRef {
	return &modelv1.ObjectRef{Cluster: "dev", Kind: kind, Namespace: "shop", Name: name}
}

func exampleDeployment() *modelv1.Deployment {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &modelv1.Deployment{
		Id: "d1", ApplicationId: "app-1", ApplicationName: "web", Status: modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK, StatusReason: "Stage ANALYSIS failed",
		Summary: "Sync with the pipeline", Trigger: &modelv1.DeploymentTrigger{Commander: "ada", Commit: &modelv1.Commit{Hash: "0123456789abcdef", Message: "Bump web\n\nmore"}},
		Stages: []*modelv1.PipelineStage{
			{Id: "s1", Name: "K8S_CANARY_ROLLOUT", Visible: true, Status: modelv1.StageStatus_STAGE_SUCCESS, StartedAtMs: 1000, CompletedAtMs: 13000},
			{Id: "s2", Name: "WAIT", Index: 1, Visible: true, Status: modelv1.StageStatus_STAGE_SKIPPED},
			{Id: "s3", Name: "WAIT", Index: 2, Visible: true},
			{Id: "s4", Name: "ROLLBACK", Index: 3},
		},
		Transitions: []*modelv1.Transition{
			{To: "DEPLOYMENT_PENDING", AtMs: at.UnixMilli(), Reason: "A new commit"},
			{From: "STAGE_NOT_STARTED_YET", To: "STAGE_SUCCESS", AtMs: at.Add(time.Second).UnixMilli(), StageId: "s1"},
		},
	}
}

func exampleFigures() *controlv1.GetDeliveryFiguresResponse {
	const minute, hour, day = 60_000, 3_600_000, 86_400_000
	return &controlv1.GetDeliveryFiguresResponse{
		Total: &controlv1.DeliveryFigures{
			Succeeded: 42, Failed: 3, Cancelled: 5, DeploymentFrequency: proto.Float64(1.4), ChangeFailureRate: proto.Float64(3.0 / 45),
			LeadTimeMedianMs: proto.Int64(8*minute + 4500), LeadTimeP90Ms: proto.Int64(3*hour + 20*minute), TimeToRestoreMedianMs: proto.Int64(5 * day),
		},
		Applications: []*controlv1.DeliveryFigures{
			{ApplicationId: "app-1", ApplicationName: "a, \"quoted\" name", Succeeded: 42, Failed: 2, DeploymentFrequency: proto.Float64(1.4), ChangeFailureRate: proto.Float64(2.0 / 44),
				LeadTimeMedianMs: proto.Int64(59_949), LeadTimeP90Ms: proto.Int64(59*minute + 59_700), TimeToRestoreMedianMs: proto.Int64(0)},
			{ApplicationId: "app-2", ApplicationName: "web", Failed: 1, Cancelled: 5, DeploymentFrequency: proto.Float64(0), ChangeFailureRate: proto.Float64(1)},
		},
	}
}

// exampleBuckets returns figures of one and a half days, of which the first has no deployment.
func exampleBuckets() *controlv1.GetDeliveryFiguresResponse {
	resp := exampleFigures()
	day := func(hour int) int64 { return time.Date(2026, time.January, 30, hour, 0, 0, 0, time.UTC).UnixMilli() }
	resp.Buckets = []*controlv1.FiguresInterval{
		{FromMs: day(12), ToMs: day(24), Total: &controlv1.DeliveryFigures{DeploymentFrequency: proto.Float64(0)}},
		{FromMs: day(24), ToMs: day(48), Total: resp.Total, Applications: resp.Applications},
	}
	return resp
}

// at returns the time d before a fixed time.
func at(d time.Duration) int64 {
	return time.Date(2026, time.January, 31, 12, 0, 0, int(7*time.Millisecond), time.UTC).Add(-d).UnixMilli()
}

// exampleRollouts are a rollout by a deployment, an external one, and an active
// scaling.
func exampleRollouts(ago func(time.Duration) int64) *controlv1.ListRolloutsResponse {
	object := func(kind string) *modelv1.ObjectRef {
		return &modelv1.ObjectRef{Cluster: "dev", Kind: kind, Namespace: "shop", Name: "web", Uid: "u1"}
	}
	return &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{
		{
			Id: "r1", Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, ApplicationId: "app-1", ApplicationName: "web", DeploymentId: "d1", StageId: "s1",
			Workload: object("Deployment"), Revision: 7, RevisionName: "web-7d9f", Commit: "0123456789abcdef", Images: []string{"web:2", "log:1"},
			Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE, Reason: "web: 3 of 3 pods available",
			StartedAtMs: ago(90 * time.Minute), CompletedAtMs: ago(90*time.Minute) + 1500, MarkedAtMs: ago(90*time.Minute) + 1520,
			ScheduleMs: proto.Int64(0), PullMs: proto.Int64(1000), FromReplicas: 2, ToReplicas: 3,
		},
		{
			Id: "r2", Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, ApplicationName: "web", Workload: object("Deployment"),
			Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED, CausedBy: "kubectl", SupersededBy: "piped", Reason: "a \"newer\", template\nfollowed",
			StartedAtMs: ago(time.Hour), CompletedAtMs: ago(59 * time.Minute), MarkedAtMs: ago(59 * time.Minute),
		},
		{
			Id: "r3", Kind: modelv1.RolloutKind_ROLLOUT_KIND_SCALING, ApplicationName: "web", Workload: object("StatefulSet"),
			Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, CausedBy: "kube-controller-manager", StartedAtMs: ago(5 * time.Minute), FromReplicas: 2, ToReplicas: 5,
		},
		{
			Id: "r4", Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, Workload: object("DaemonSet"), Images: []string{"agent:2"}, ImagesBefore: []string{"agent:1"},
			Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, CausedBy: "helm", FoundLate: true, StartedAtMs: ago(2 * time.Minute), FromReplicas: 3, ToReplicas: 3,
		},
	}}
}

func held() *modelv1.ApplicationHold {
	return &modelv1.ApplicationHold{Commit: "0123456789abcdef", HeldBy: "jane", SinceMs: ago(5 * time.Minute), Reason: "broken"}
}

// waiting is a deployment that waits for approval, failure one that failed.
func waiting() *modelv1.ApplicationDeployment {
	return &modelv1.ApplicationDeployment{
		DeploymentId: "d2", Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, Commit: "fedcba9876543210", CreatedAtMs: ago(5 * time.Minute),
		Wait: &modelv1.DeploymentWait{WaitsFor: "1 approval of jane", SinceMs: ago(4 * time.Minute), StageId: "s1", Approval: true},
	}
}

func failure() *modelv1.ApplicationDeployment {
	return &modelv1.ApplicationDeployment{
		DeploymentId: "d1", Status: modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, StatusReason: "Stage K8S_SYNC failed: web: ImagePullBackOff", Commit: "0123456789abcdef",
		CreatedAtMs: ago(4 * time.Hour), CompletedAtMs: ago(3 * time.Hour),
	}
}

// TestApplicationWithItsHealth: an application is shown with its live state, or with
// the reason why that is unknown.
func TestApplicationWithItsHealth(t *testing.T) {
	tests := map[string]struct {
		live any
		want string
	}{
		"degraded": {&controlv1.GetLiveStateResponse{LiveState: &modelv1.LiveState{Health: modelv1.Health_HEALTH_DEGRADED, Objects: []*modelv1.LiveObject{
			{Object: object("Deployment", "api"), Health: modelv1.Health_HEALTH_HEALTHY, Images: []string{"web:2", "api:1"}},
			{Object: object("Deployment", "web"), Health: modelv1.Health_HEALTH_DEGRADED, HealthReason: "ImagePullBackOff", Images: []string{"web:2"}},
		}}}, `(?s)Health: +DEGRADED: Deployment shop/web: ImagePullBackOff\nImages: +api:1, web:2\n`},
		"away":    {status.Error(codes.Unavailable, "cluster dev does not answer"), `Health: +UNKNOWN: cluster dev does not answer\n`},
		"nothing": {&controlv1.GetLiveStateResponse{LiveState: &modelv1.LiveState{}}, `State: +OUT_OF_SYNC\nCluster:`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server := answering(t, map[string][]any{"GetApplication": {&apiservice.GetApplicationResponse{Application: exampleApplication()}}, "GetLiveState": {tc.live}})
			code, stdout, stderr := server.run(t, "application", "get", "--app-id=app-1", "--output=table")
			if code != 0 || stderr != "" || !regexp.MustCompile(tc.want).MatchString(stdout) {
				t.Errorf("exit code %d, stderr %q, stdout does not match %s:\n%s", code, stderr, tc.want, stdout)
			}
		})
	}
}

// tableCase is a command, the method that it calls, and the answer.
type tableCase struct {
	args   []string
	method string
	answer proto.Message
}

// tables returns a command for each table. The times of the answers are relative to one moment, the
// present one.
func tables() map[string]tableCase {
	now := time.Now()
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	return map[string]tableCase{
		"application-list": {
			[]string{"application", "list", "--output=table", "--limit=2"}, "ListApplications",
			&apiservice.ListApplicationsResponse{Cursor: "next", Applications: []*modelv1.Application{
				{Id: "app-1", Name: "web", PlatformProvider: "dev", RunningCommit: "0123456789abcdef", Labels: map[string]string{"env": "dev"},
					GitPath: &modelv1.ApplicationGitPath{Path: "shop/web"}, Hold: held(),
					SyncState: &modelv1.ApplicationSyncState{Status: modelv1.ApplicationSyncStatus_SYNCED}, UpdatedAt: ago(3*time.Hour) / 1000},
				{Id: "app-2", Name: "a name with \x1b[31mcolour\nand lines", Disabled: true},
			}},
		},
		"application-list-waits": {
			[]string{"application", "list", "--output=table"}, "ListApplications",
			&apiservice.ListApplicationsResponse{Applications: []*modelv1.Application{
				{Id: "app-1", Name: "web", LastDeployment: waiting()},
				{Id: "app-2", Name: "api", LastDeployment: failure()},
				{Id: "app-3", Name: "db"},
			}},
		},
		"application-list-cut": { // the answer is limited in size
			[]string{"application", "list", "--output=table"}, "ListApplications",
			&apiservice.ListApplicationsResponse{Cursor: "next", Applications: []*modelv1.Application{{Id: "app-1", Name: "web", Description: strings.Repeat("d", 1<<20)}}},
		},
		"application-list-empty": {[]string{"application", "list", "--output=table"}, "ListApplications", &apiservice.ListApplicationsResponse{}},
		"application-get":        {[]string{"application", "get", "--app-id=app-1", "--output=table"}, "GetApplication", &apiservice.GetApplicationResponse{Application: withoutUpdate(exampleApplication())}},
		"application-get-failed": {
			[]string{"application", "get", "--app-id=app-1", "--output=table"}, "GetApplication", &apiservice.GetApplicationResponse{Application: &modelv1.Application{
				Id: "app-1", Name: "web", LastDeployment: waiting(), LastFailure: failure(), Hold: held(),
				MostRecentlyTriggeredDeployment: &modelv1.ApplicationDeploymentReference{DeploymentId: "d2"},
			}},
		},
		"application-get-yaml": {[]string{"application", "get", "--app-id=app-1", "--output=yaml"}, "GetApplication", &apiservice.GetApplicationResponse{Application: exampleApplication()}},
		"application-candidates": {
			[]string{"application", "candidates"}, "ListCandidates",
			&controlv1.ListCandidatesResponse{Candidates: []*controlv1.Candidate{{
				ApplicationId: "app-9", Name: "other", Kind: "KubernetesApp", Reason: controlv1.CandidateReason_CANDIDATE_REASON_UNREGISTERED, Detail: "no discover selects it",
				GitPath: &modelv1.ApplicationGitPath{Repo: &modelv1.ApplicationGitRepository{Id: "apps"}, Path: "other", ConfigFilename: "app.pipecd.yaml"},
			}}},
		},
		"application-drift": {
			[]string{"application", "drift", "--app-id=app-1", "--diff", "--refresh"}, "GetDriftReport",
			&controlv1.GetDriftReportResponse{Report: &modelv1.DriftReport{
				ApplicationId: "app-1", ApplicationName: "web", Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, Commit: "0123456789abcdef", ComparedObjects: 3, Hold: held(),
				IncompleteReason: "metrics.k8s.io does not answer", UndeployedCommits: []string{"fedcba9876543210", "edcba98"},
				Objects: []*modelv1.ObjectDrift{
					{Object: object("ConfigMap", "old"), Kind: modelv1.DriftKind_DRIFT_KIND_EXTRA, Note: "prune is off: a sync leaves it"},
					{Object: object("Deployment", "web"), Kind: modelv1.DriftKind_DRIFT_KIND_CHANGED, Diff: "@@ -1 +1 @@\n-replicas: 2\n+replicas: 5\n", Fields: []*modelv1.FieldDrift{
						{Path: "spec.replicas", GitValue: "2", LiveValue: "5", Manager: "kubectl", ChangedAtMs: ago(90 * time.Minute)},
						{Path: "spec.template.spec.containers[name=web].env[name=MODE].value", LiveValue: `"debug"`},
					}},
					{Object: object("Secret", "key"), Kind: modelv1.DriftKind_DRIFT_KIND_CHANGED, Fields: []*modelv1.FieldDrift{{Path: "data.key", GitValue: "***", LiveValue: "***", Masked: true}}},
				},
			}},
		},
		"application-drift-none": {
			[]string{"application", "drift", "--app-id=app-1", "--exit-code"}, "GetDriftReport",
			&controlv1.GetDriftReportResponse{Report: &modelv1.DriftReport{ApplicationId: "app-1", ApplicationName: "web", Cluster: "dev", Status: modelv1.ApplicationSyncStatus_SYNCED, Commit: "0123456789abcdef"}},
		},
		"application-drift-ended": {
			[]string{"application", "drift", "--app-id=app-1"}, "GetDriftReport",
			&controlv1.GetDriftReportResponse{Report: &modelv1.DriftReport{
				Id: "r", ApplicationId: "app-1", Status: modelv1.ApplicationSyncStatus_UNKNOWN, IncompleteReason: "cluster dev does not answer since 3:04", End: modelv1.DriftEnd_DRIFT_END_REVERTED,
			}},
		},
		"application-get-out-of-sync": {
			[]string{"application", "get", "--app-id=app-1", "--output=table"}, "GetApplication", &apiservice.GetApplicationResponse{Application: &modelv1.Application{
				Id: "app-1", Name: "web", SyncStateSinceMs: ago(90 * time.Hour),
				SyncState: &modelv1.ApplicationSyncState{Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, ShortReason: "1 object differs", Reason: "Diff between the live (-) and Git (+)\n\n#1 Deployment shop/web\n- spec.replicas: 5\n+ spec.replicas: 2\n"},
			}},
		},
		"application-resources": {
			[]string{"application", "resources", "--app-id=app-1", "--children"}, "GetLiveState",
			&controlv1.GetLiveStateResponse{LiveState: &modelv1.LiveState{Health: modelv1.Health_HEALTH_DEGRADED, Objects: []*modelv1.LiveObject{{
				Object: object("Deployment", "web"), Health: modelv1.Health_HEALTH_DEGRADED, HealthReason: "ImagePullBackOff", Replicas: 3, AvailableReplicas: 2, CreatedAtMs: ago(72 * time.Hour), Variant: "canary", ChildrenLeftOut: 7,
				Children: []*modelv1.LiveObject{{Object: object("ReplicaSet", "web-1"), Health: modelv1.Health_HEALTH_HEALTHY, CreatedAtMs: ago(5 * time.Minute)}},
			}}}},
		},
		"application-rollouts": {
			[]string{"application", "rollouts", "--app-id=app-1", "--kind=rollout", "--outcome=COMPLETE,ROLLOUT_OUTCOME_FAILED"}, "ListRollouts",
			exampleRollouts(ago),
		},
		"rollout-list":               {[]string{"rollout", "list", "--namespace=shop", "--workload=web"}, "ListRollouts", exampleRollouts(ago)},
		"application-rollouts-csv":   {[]string{"application", "rollouts", "--since=2026-01-01", "--output=csv"}, "ListRollouts", exampleRollouts(at)},
		"application-rollouts-jsonl": {[]string{"application", "rollouts", "--since=30d", "--until=1h", "--output=jsonl"}, "ListRollouts", exampleRollouts(at)},
		"application-rollouts-yaml":  {[]string{"application", "rollouts", "--kind=scaling", "--output=yaml"}, "ListRollouts", exampleRollouts(at)},
		"figures": {
			[]string{"figures", "--app-id=app-1", "--label=env:prod", "--since=2026-01-01", "--until=2026-01-31T12:00:00Z"}, "GetDeliveryFigures", exampleFigures(),
		},
		"figures-by-day": {
			[]string{"figures", "--by=day", "--per=application", "--since=2026-01-30", "--until=2026-02-01"}, "GetDeliveryFigures", exampleBuckets(),
		},
		"figures-by-day-csv": {
			[]string{"figures", "--by=day", "--since=2026-01-30", "--until=2026-02-01", "--output=csv"}, "GetDeliveryFigures", exampleBuckets(),
		},
		"figures-csv":  {[]string{"figures", "--since=2026-01-01", "--until=2026-01-31", "--output=csv"}, "GetDeliveryFigures", exampleFigures()},
		"figures-json": {[]string{"figures", "--since=4w", "--output=json"}, "GetDeliveryFigures", exampleFigures()},
		"figures-none": {
			[]string{"figures", "--since=2026-01-01", "--until=2026-01-31"}, "GetDeliveryFigures",
			&controlv1.GetDeliveryFiguresResponse{Total: &controlv1.DeliveryFigures{DeploymentFrequency: proto.Float64(0)}},
		},
		"application-adoptions": {
			[]string{"application", "adoptions"}, "ListAdoptions",
			&controlv1.ListAdoptionsResponse{Adoptions: []*controlv1.Adoption{{
				ApplicationId: "app-1", ApplicationName: "web", RunningCommit: "0123456789abcdef", Token: "token-1",
				Objects: []*controlv1.AdoptedObject{
					{Object: object("Deployment", "web"), Changes: true, Managers: []string{"kubectl", "hpa"}, OwnerApplicationId: "app-0"},
					{Object: object("Service", "web")},
				},
			}}},
		},
		"application-adoptions-none": {[]string{"application", "adoptions"}, "ListAdoptions", &controlv1.ListAdoptionsResponse{}},
		"application-delete-dry-run": {
			[]string{"application", "delete", "--app-id=app-1", "--cascade", "--dry-run"}, "DeleteApplication",
			&controlv1.DeleteApplicationResponse{Objects: []*modelv1.ObjectRef{object("Deployment", "web"), {Cluster: "dev", Kind: "ClusterRole", Name: "web"}}},
		},
		"deployment-list": {
			[]string{"deployment", "list", "-o", "table"}, "ListDeployments",
			&apiservice.ListDeploymentsResponse{Deployments: []*modelv1.Deployment{exampleDeployment()}},
		},
		"deployment-list-waits": {
			[]string{"deployment", "list", "-o", "table"}, "ListDeployments",
			&apiservice.ListDeploymentsResponse{Deployments: []*modelv1.Deployment{{Id: "d2", ApplicationName: "web", Status: modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, StatusReason: "The deployment is running", Wait: waiting().Wait}}},
		},
		"deployment-get": {[]string{"deployment", "get", "--deployment-id=d1"}, "GetDeployment", &apiservice.GetDeploymentResponse{Deployment: exampleDeployment()}},
		"deployment-plan": {
			[]string{"deployment", "plan", "--app-id=app-1", "--diff"}, "GetPlan",
			&controlv1.GetPlanResponse{Plan: &controlv1.Plan{
				ApplicationId: "app-1", Commit: "0123456789abcdef", Strategy: modelv1.SyncStrategy_PIPELINE, Reason: "Pods change", Summary: "3 to change", HoldReason: "a sync window",
				Stages: exampleDeployment().Stages[2:],
				Changes: []*controlv1.PlannedChange{
					{Object: object("Deployment", "web"), Action: controlv1.PlannedAction_PLANNED_ACTION_UPDATE, Diff: "-image: v1\n+image: v2\n"},
					{Object: object("ConfigMap", "old"), Action: controlv1.PlannedAction_PLANNED_ACTION_LEAVE},
				},
			}},
		},
		"deployment-plan-opentofu": {
			[]string{"deployment", "plan", "--deployment-id=d1", "--diff"}, "GetPlan",
			&controlv1.GetPlanResponse{Plan: &controlv1.Plan{
				ApplicationId: "app-1", DeploymentId: "d1", Commit: "0123456789abcdef", Strategy: modelv1.SyncStrategy_PIPELINE, ChangesSummary: "1 to replace", ChangesDigest: "0a1b2c", ChangesNote: "for a test",
				Changes: []*controlv1.PlannedChange{
					{Object: object("aws_vpc", "a"), Address: "module.net.aws_vpc.a", Action: controlv1.PlannedAction_PLANNED_ACTION_REPLACE, Diff: "# module.net.aws_vpc.a must be replaced\n~ cidr = 1 -> 2 # forces replacement\n"},
				},
			}},
		},
		"deployment-chain": {
			[]string{"deployment", "chain", "--chain-id=c1"}, "GetDeploymentChain",
			&controlv1.GetDeploymentChainResponse{Chain: &controlv1.DeploymentChain{Id: "c1", State: controlv1.ChainState_CHAIN_STATE_CANCELLED, Blocks: []*controlv1.DeploymentChainBlock{
				{Members: []*controlv1.DeploymentChainMember{{ApplicationName: "db", DeploymentId: "d1", Status: modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, Reason: "it failed"}}},
				{Members: []*controlv1.DeploymentChainMember{{ApplicationName: "web"}, {ApplicationName: "api"}}},
			}}},
		},
		"event-list": {
			[]string{"event", "list", "--status=FAILURE,EVENT_SUCCESS", "--label=app:web"}, "ListEvents",
			&controlv1.ListEventsResponse{Events: []*modelv1.Event{{
				Id: "e1", Name: "image", Data: "v2", Labels: map[string]string{"app": "web"}, Status: modelv1.EventStatus_EVENT_SUCCESS, PushedCommit: "0123456789abcdef", StatusDescription: "1 file",
			}, {
				Id: "e2", Name: "image", Data: "v3", Status: modelv1.EventStatus_EVENT_SUCCESS, StatusDescription: "opened pull request https://host/1", PullRequestUrl: "https://host/1",
			}, {
				Id: "e3", Name: "image", Data: "v4", Status: modelv1.EventStatus_EVENT_FAILURE, StatusDescription: "late", PullRequestUrl: "https://host/2",
			}}},
		},
		"plan-preview-list": {
			[]string{"plan-preview", "list", "--repository=apps", "--status=succeeded,COMMAND_FAILED"}, "ListPlanPreviews",
			&controlv1.ListPlanPreviewsResponse{PlanPreviews: []*controlv1.PlanPreviewBrief{{
				CommandId: "c2", RepositoryId: "apps", HeadBranch: "feature", HeadCommit: "0123456789abcdef", BaseBranch: "main", PullRequest: 12, RequestedBy: "pull request",
				Status: modelv1.CommandStatus_COMMAND_SUCCEEDED, RequestedAtMs: ago(5 * time.Minute), Applications: 3, ChangedApplications: 1, FailedApplications: 1,
			}, {
				CommandId: "c1", RepositoryId: "apps", HeadBranch: "old", HeadCommit: "0123456789abcdef", RequestedBy: "ann",
				Status: modelv1.CommandStatus_COMMAND_FAILED, RequestedAtMs: ago(2 * time.Hour), Error: "web/app.yaml conflicts",
			}}},
		},
		"preview-list": {
			[]string{"preview", "list", "--repository=apps", "--state=ready,failed"}, "ListPreviews",
			&controlv1.ListPreviewsResponse{Previews: []*controlv1.Preview{{
				RepositoryId: "apps", PullRequest: 12, HeadBranch: "feature", HeadCommit: "0123456789abcdef", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY, SinceMs: ago(5 * time.Minute),
				Applications: []*controlv1.PreviewOfApplication{
					{ApplicationName: "web-pr-12", Url: "https://web-pr-12.example.com", Header: "X-Preview: pr-12-apps"},
					{ApplicationName: "api-pr-12", Url: "https://api-pr-12.example.com", Header: "X-Preview: pr-12-apps"},
				},
			}, {
				RepositoryId: "apps", PullRequest: 13, HeadBranch: "old", HeadCommit: "0123456789abcdef", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_FAILED, SinceMs: ago(2 * time.Hour),
				Reason: "web-pr-13: its pods crash",
			}}},
		},
		"preview-get": {
			[]string{"preview", "get", "--repository=apps", "--pull-request=12"}, "GetPreview",
			&controlv1.GetPreviewResponse{Preview: &controlv1.Preview{
				RepositoryId: "apps", PullRequest: 12, HeadBranch: "feature", HeadCommit: "0123456789abcdef", BaseBranch: "main", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY,
				Reason: "a reason", SinceMs: ago(10 * time.Minute), CreatedAtMs: ago(2 * time.Hour), ReadyAtMs: ago(time.Hour), ExpiresAtMs: 1790000000000,
				Applications: []*controlv1.PreviewOfApplication{
					{ApplicationName: "web-pr-12", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY, DeploymentId: "d1", Header: "X-Preview: pr-12-apps", Hostnames: []string{"*.example.com", "shop.example.com"}},
					{ApplicationName: "api-pr-12", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY, DeploymentId: "d2", Url: "https://api-pr-12.example.com", Reason: "another reason"},
				},
			}},
		},
		"preview-logs": {
			[]string{"preview", "logs", "--repository=apps", "--pull-request=12", "--tail=2"}, "GetPreviewLogs",
			&controlv1.GetPreviewLogsResponse{LogsLeftOut: 1, Logs: []*controlv1.PreviewLog{
				{ApplicationName: "web-pr-12", Lines: []string{"cannot pull \x1b[31mimage"}},
				{ApplicationName: "web-pr-12", Pod: "web-6c9f", Container: "main", Previous: true, Lines: []string{"panic: nil", "exit status 2"}},
				{ApplicationName: "api-pr-12", Error: "the cluster does not answer"},
			}},
		},
		"apikey-list": {
			[]string{"apikey", "list", "--include-disabled"}, "ListAPIKeys",
			&controlv1.ListAPIKeysResponse{ApiKeys: []*modelv1.APIKey{
				{Id: "k1", Name: "ci", Subject: "ci", Role: modelv1.APIKey_READ_WRITE, Creator: "owner", CreatedAt: ago(49*time.Hour) / 1000, LastUsedAt: ago(5*time.Minute) / 1000},
				{Id: "k2", Name: "old", Disabled: true},
			}},
		},
		"status-scripts-refused": {
			[]string{"status"}, "GetStatus", &controlv1.GetStatusResponse{Scripts: &controlv1.ScriptsStatus{Error: "scripts cannot be isolated on this machine"}},
		},
		"status-scripts-json": {
			[]string{"status", "--output=json"}, "GetStatus", &controlv1.GetStatusResponse{Scripts: &controlv1.ScriptsStatus{Isolation: "user", EndedBy: "cgroup", Holds: "a script ends as a whole"}},
		},
		"status": {
			[]string{"status"}, "GetStatus",
			&controlv1.GetStatusResponse{
				Agent:        &controlv1.AgentStatus{PipedId: "piped-1", Name: "main", Disabled: true, Version: "v1", GoVersion: "go1.26.7", ConfigError: "piped.yaml:3: unknown key"},
				Approvals:    []*controlv1.WaitingDeployment{{DeploymentId: "d2", ApplicationId: "app-1", ApplicationName: "web", Wait: waiting().Wait}},
				Queues:       []*controlv1.QueueStatus{{Name: "planner", Waiting: 1, Active: 2, Limit: 16, OldestWaitingSinceMs: ago(30 * time.Minute)}, {Name: "commands"}},
				Repositories: []*controlv1.RepositoryStatus{{Id: "apps", Remote: "git@example.com:apps.git", Branch: "main", Head: "0123456789abcdef", Applications: 12, Error: "host key"}},
				Clusters: []*controlv1.ClusterStatus{{
					Name: "dev", Version: "v1.37.2", Reachable: true, WatchedObjects: 120,
					WatchProblems: []*controlv1.WatchProblem{{Kind: "Cache.example.com", Error: "objects of kind Cache cannot be watched", FailingSinceMs: ago(5 * time.Minute)}},
				}, {Name: "prod"}},
				SyncStates: []*controlv1.SyncStateCount{{Status: modelv1.ApplicationSyncStatus_SYNCED, Applications: 7}, {Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, Applications: 2}},
				Scripts:    &controlv1.ScriptsStatus{Isolation: "landlock", EndedBy: "cgroup", Holds: "a script opens its own files only"},
				Store: &controlv1.StoreStatus{Engine: "postgres", SchemaVersion: 12, SizeBytes: 3 << 20, Standbys: []string{"node-b pid 7", "node-c pid 1"}, Replicas: []*controlv1.ReplicaStatus{
					{Host: "node-a pid 3", Version: "v1", StartedAtMs: ago(2 * time.Hour), Active: true, Partitions: 64, LastHandoverAtMs: ago(5 * time.Minute)},
					{Host: "node-b pid 7", Version: "v0.9", StartedAtMs: ago(30 * time.Minute)},
				}},
				Receivers: []*controlv1.ReceiverStatus{{
					Name: "slack", Pending: 1, OldestPendingSinceMs: ago(5 * time.Minute), DeadLetterCount: 2, Error: "Slack answers not_in_channel",
					DeadLetters: []*controlv1.DeadLetter{{
						Key: "d1//FAILURE", Event: "DEPLOYMENT_FAILED", DeploymentId: "d1", Attempts: 300, Error: "Slack answers not_in_channel", GivenUpAtMs: ago(2 * time.Hour),
					}},
				}},
			},
		},
	}
}

// TestTables compares the tables of all commands with golden files.
func TestTables(t *testing.T) {
	for name := range tables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc := tables()[name] // made now: those before may have taken longer than a minute, which shows in a table
			server := answering(t, map[string][]any{tc.method: {tc.answer}})
			code, stdout, stderr := server.run(t, tc.args...)
			if code != 0 || stderr != "" {
				t.Errorf("exit code %d, stderr %q, want 0 and nothing", code, stderr)
			}
			if strings.ContainsRune(stdout, '\x1b') {
				t.Errorf("there are orders to a terminal in %q", stdout)
			}
			golden(t, "table-"+name+".txt", moment.ReplaceAllString(stdout, "(then)"))
		})
	}
}

// moment matches an absolute time after a relative one.
var moment = regexp.MustCompile(`\(\d{4}-[^)]*Z\)`)

// withoutUpdate removes the time that is shown relative to now.
func withoutUpdate(a *modelv1.Application) *modelv1.Application {
	a.UpdatedAt = 0
	return a
}
