package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Default and maximal page size.
const (
	rolloutsPage    = 100
	maxRolloutsPage = 1000
)

// ListRollouts lists rollouts of deployments and external ones.
func (s *controlService) ListRollouts(ctx context.Context, req *controlv1.ListRolloutsRequest) (*controlv1.ListRolloutsResponse, error) {
	phases, err := phasesOf(req.Outcomes)
	if err != nil {
		return nil, err
	}
	kind, ok := rolloutKinds()[req.Kind]
	if !ok {
		return nil, deploy.Errorf(deploy.Invalid, "there is no rollout kind %d: use one that model/v1/rollout.proto names", req.Kind)
	}
	limit := min(int(cmp.Or(req.Limit, rolloutsPage)), maxRolloutsPage)
	rollouts, cursor, err := pageOf(limit, func(limit int) ([]deploy.Rollout, string, error) {
		return s.store.ListRollouts(ctx, store.RolloutList{
			ApplicationIDs: nonEmpty(req.ApplicationIds), Labels: req.Labels, DeploymentIDs: nonEmpty([]string{req.DeploymentId}), Kind: kind, Phases: phases,
			Namespaces: nonEmpty(req.Namespaces), Workloads: nonEmpty(req.Workloads),
			From: timeOf(req.FromMs), To: timeOf(req.ToMs), Limit: limit, Cursor: req.Cursor,
		})
	}, rollout)
	if err != nil {
		return nil, err
	}
	return &controlv1.ListRolloutsResponse{Rollouts: rollouts, Cursor: cursor}, nil
}

// validListRollouts validates the request itself.
func validListRollouts(r *controlv1.ListRolloutsRequest) error {
	return first(
		notNegative("ListRolloutsRequest.Limit", r.Limit),
		bounded("ListRolloutsRequest.ApplicationIds", "items", len(r.ApplicationIds)),
		bounded("ListRolloutsRequest.Outcomes", "items", len(r.Outcomes)),
		bounded("ListRolloutsRequest.Labels", "pairs", len(r.Labels)),
		bounded("ListRolloutsRequest.Namespaces", "items", len(r.Namespaces)),
		validNamespaces("ListRolloutsRequest.Namespaces", r.Namespaces),
		bounded("ListRolloutsRequest.Workloads", "items", len(r.Workloads)),
		validWorkloads("ListRolloutsRequest.Workloads", r.Workloads))
}

// validWorkloads returns an error if a name cannot be that of a workload. The empty name is
// ignored.
func validWorkloads(field string, names []string) error {
	for _, name := range names {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return broken(field, fmt.Sprintf("%.70q is not the name of a workload: use lower case letters, digits, dots and dashes, such as web", name))
		}
	}
	return nil
}

// validNamespaces returns an error if a name cannot be that of a namespace. The empty name is
// ignored, as elsewhere in lists.
func validNamespaces(field string, names []string) error {
	for _, name := range names {
		if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
			return broken(field, fmt.Sprintf("%.70q is not the name of a namespace: use lower case letters, digits and dashes, such as shop-prod", name))
		}
	}
	return nil
}

// outcomes maps rollout phases to their wire values.
var outcomes = map[deploy.RolloutPhase]modelv1.RolloutOutcome{
	deploy.RolloutIntent:      modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING,
	deploy.RolloutApplied:     modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING,
	deploy.RolloutProgressing: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING,
	deploy.RolloutHeld:        modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD,
	deploy.RolloutNoRollout:   modelv1.RolloutOutcome_ROLLOUT_OUTCOME_NO_ROLLOUT,
	deploy.RolloutComplete:    modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE,
	deploy.RolloutFailed:      modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED,
	deploy.RolloutSuperseded:  modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED,
	deploy.RolloutGone:        modelv1.RolloutOutcome_ROLLOUT_OUTCOME_GONE,
	deploy.RolloutTimedOut:    modelv1.RolloutOutcome_ROLLOUT_OUTCOME_TIMED_OUT,
}

// phasesOf returns the phases of outcomes; UNSPECIFIED is ignored.
func phasesOf(wanted []modelv1.RolloutOutcome) (phases []deploy.RolloutPhase, err error) {
	for _, outcome := range wanted {
		if _, ok := modelv1.RolloutOutcome_name[int32(outcome)]; !ok {
			return nil, deploy.Errorf(deploy.Invalid, "there is no rollout outcome %d: use one that model/v1/rollout.proto names", outcome)
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(outcomes)) {
		if slices.Contains(wanted, outcomes[phase]) {
			phases = append(phases, phase)
		}
	}
	return phases, nil
}

// rolloutKinds maps wire values to kinds of records; "" means all.
func rolloutKinds() map[modelv1.RolloutKind]deploy.RolloutKind {
	return map[modelv1.RolloutKind]deploy.RolloutKind{
		modelv1.RolloutKind_ROLLOUT_KIND_UNSPECIFIED: "",
		modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT:     deploy.RolloutKindRollout,
		modelv1.RolloutKind_ROLLOUT_KIND_SCALING:     deploy.RolloutKindScaling,
	}
}

// rollout converts the record of a rollout or scaling.
func rollout(r deploy.Rollout) *modelv1.Rollout {
	m := &modelv1.Rollout{
		Id: text(r.ID), Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT,
		ApplicationId: text(r.ApplicationID), ApplicationName: text(r.ApplicationName),
		DeploymentId: text(r.DeploymentID), StageId: text(r.StageID), Commit: text(r.Commit),
		Workload: objectRef(r.Cluster, r.Workload), Revision: r.Revision, Images: strings.Fields(text(r.Images)),
		Outcome: outcomes[r.Phase], Reason: text(r.Reason), CausedBy: text(r.ChangedBy),
		StartedAtMs: millis(r.StartedAt), CompletedAtMs: millis(r.CompletedAt),
		ScheduleMs: r.Parts.Schedule.Millis(), PullMs: r.Parts.Pull.Millis(), ReadyMs: r.Parts.Ready.Millis(),
		FromReplicas: r.ReplicasBefore, ToReplicas: r.ReplicasAfter,
		RevisionName: text(r.TargetName), SupersededBy: text(r.SupersededBy),
		ImagesBefore: strings.Fields(text(r.ImagesBefore)), FoundLate: r.FoundLate,
	}
	if r.Kind == deploy.RolloutKindScaling {
		m.Kind = modelv1.RolloutKind_ROLLOUT_KIND_SCALING
	}
	m.Workload.Uid = text(r.UID)
	if r.Phase.Terminal() {
		m.MarkedAtMs = millis(r.UpdatedAt)
	}
	return m
}

// timeOf returns the time of Unix milliseconds, the zero time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
