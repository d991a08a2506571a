package trace

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/google/uuid"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// record is the stored data of an ended deployment.
type record struct {
	deployment  deploy.Deployment
	transitions []deploy.Transition
	rollouts    []deploy.Rollout
}

// spans returns the trace of the deployment, the root span first.
func (r record) spans() []*otlp.Span {
	d := r.deployment
	root := r.span(nil, "deploy "+d.ApplicationName, "deployment", d.CreatedAt, r.end())
	root.Status = statusOf(d.Status == deploy.Success, d.Status == deploy.Failure, d.StatusReason)
	root.Attributes = append(root.Attributes,
		text("piped.status", string(d.Status)), text("piped.reason", d.StatusReason), text("piped.trigger", string(d.Trigger.Kind)),
		text("piped.strategy", string(d.Strategy)), text("piped.summary", d.Summary), text("piped.branch", d.Trigger.Commit.Branch))
	return append([]*otlp.Span{root}, r.phases(root)...)
}

// end returns when the deployment ended. All times come from the transition log, so that
// each span lies within its parent.
func (r record) end() time.Time {
	if n := len(r.transitions); n > 0 {
		return r.transitions[n-1].At
	}
	return r.deployment.CompletedAt
}

// ran returns when a stage started and ended; ok is false if it never ran.
func (r record) ran(stage string) (from, to time.Time, ok bool) {
	to = r.end()
	for _, t := range r.transitions {
		switch {
		case t.StageID != stage:
		case t.To == string(deploy.StageRunning):
			from, ok = t.At, true
		case ok:
			to = t.At
		}
	}
	return from, to, ok
}

// phases returns a span for each status of the deployment, each followed by the spans of
// the stages that started in it.
func (r record) phases(root *otlp.Span) (out []*otlp.Span) {
	own := slices.DeleteFunc(slices.Clone(r.transitions), func(t deploy.Transition) bool { return t.StageID != "" })
	for i, t := range own[:max(0, len(own)-1)] { // the last entry is the end
		phase := r.span(root, t.To, "status/"+t.To, t.At, own[i+1].At)
		phase.Attributes = append(phase.Attributes, text("piped.status", t.To))
		out = append(out, phase)
		out = append(out, r.stages(phase, deploy.Status(t.To))...)
	}
	return out
}

// stages returns the spans of the stages that ran in a status, each followed by the spans
// of its rollouts.
func (r record) stages(phase *otlp.Span, status deploy.Status) (out []*otlp.Span) {
	for _, s := range r.deployment.Stages {
		from, to, ok := r.ran(s.ID)
		if !ok || s.Rollback != (status == deploy.RollingBack) || status.Phase() != deploy.PhaseRunning {
			continue
		}
		span := r.span(phase, s.Name, "stage/"+s.ID, from, to)
		span.Status = statusOf(s.Status == deploy.StageSuccess, s.Status == deploy.StageFailure, s.StatusReason)
		span.Attributes = append(span.Attributes, text("piped.stage", s.ID), text("piped.status", string(s.Status)), text("piped.reason", s.StatusReason))
		out = append(out, span)
		out = append(out, r.stageRollouts(span, s.ID)...)
	}
	return out
}

// stageRollouts returns the spans of the rollouts of a stage.
func (r record) stageRollouts(stage *otlp.Span, id string) (out []*otlp.Span) {
	for _, ro := range r.rollouts {
		if ro.StageID != id || !ro.Phase.Terminal() || ro.Phase == deploy.RolloutNoRollout {
			continue
		}
		span := r.span(stage, "rollout "+ro.Workload.Kind+" "+ro.Workload.Name, "rollout/"+ro.ID, ro.StartedAt, ro.CompletedAt)
		span.Status = statusOf(ro.Phase == deploy.RolloutComplete, ro.Phase == deploy.RolloutFailed || ro.Phase == deploy.RolloutTimedOut, ro.Reason)
		span.Attributes = append(span.Attributes, text("piped.stage", id), text("piped.workload", ro.Workload.String()),
			text("piped.status", string(ro.Phase)), text("piped.reason", ro.Reason))
		out = append(out, span)
	}
	return out
}

// span returns a span; key is unique within the trace.
func (r record) span(parent *otlp.Span, name, key string, from, to time.Time) *otlp.Span {
	d := r.deployment
	s := &otlp.Span{
		TraceId: traceID(d.ID), SpanId: spanID(d.ID, key), Name: name, Kind: otlp.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nanos(from), EndTimeUnixNano: nanos(later(from, to)),
		Attributes: []*common.KeyValue{
			text("piped.app", d.ApplicationName), text("piped.deployment", d.ID), text("piped.commit", d.Trigger.Commit.Hash), text("piped.cluster", d.Provider),
		},
	}
	if parent != nil {
		s.ParentSpanId = parent.SpanId
	}
	return s
}

// traceID returns the deployment's ID if it is a UUID, else a hash of it.
func traceID(deployment string) []byte {
	if id, err := uuid.Parse(deployment); err == nil {
		return id[:]
	}
	sum := sha256.Sum256([]byte(deployment))
	return sum[:16]
}

func spanID(deployment, key string) []byte {
	sum := sha256.Sum256([]byte(deployment + "/" + key))
	return sum[:8]
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func statusOf(good, bad bool, reason string) *otlp.Status {
	switch {
	case good:
		return &otlp.Status{Code: otlp.Status_STATUS_CODE_OK}
	case bad:
		return &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: reason}
	}
	return &otlp.Status{}
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
