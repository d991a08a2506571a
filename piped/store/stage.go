package store

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// stageSpec is the JSON column of the values that the planner sets, stageState that of the
// values that a run changes.
type stageSpec struct {
	Desc      string          `json:"desc,omitempty"`
	Requires  []string        `json:"requires,omitempty"`
	Visible   bool            `json:"visible,omitempty"`
	Rollback  bool            `json:"rollback,omitempty"`
	Options   json.RawMessage `json:"options,omitempty"`
	SkipOn    json.RawMessage `json:"skipOn,omitempty"`
	Timeout   time.Duration   `json:"timeout,omitempty"`
	CreatedAt int64           `json:"createdAt,omitempty"`
}

type stageState struct {
	Reason    string            `json:"reason,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Deadline  int64             `json:"deadline,omitempty"`
	UpdatedAt int64             `json:"updatedAt,omitempty"`
}

// stageRow is a stage with the ID of its deployment.
type stageRow struct {
	deploymentID string
	stage        deploy.Stage
}

func scanStage(row scanner) (r stageRow, err error) {
	var spec, state string
	var startedAt, completedAt int64
	st := &r.stage
	if err := row.Scan(&r.deploymentID, &st.ID, &st.Name, &spec, &st.Status, &state, &startedAt, &completedAt); err != nil {
		return r, err
	}
	var sp stageSpec
	var ss stageState
	if err := decode(spec, &sp); err != nil {
		return r, err
	}
	if err := decode(state, &ss); err != nil {
		return r, err
	}
	st.Desc, st.Requires, st.Visible, st.Rollback, st.Options, st.SkipOn, st.Timeout = sp.Desc, sp.Requires, sp.Visible, sp.Rollback, sp.Options, sp.SkipOn, sp.Timeout
	st.StatusReason, st.Metadata = ss.Reason, ss.Metadata
	st.Deadline, st.StartedAt, st.CompletedAt = fromMilli(ss.Deadline), fromMilli(startedAt), fromMilli(completedAt)
	st.CreatedAt, st.UpdatedAt = fromMilli(sp.CreatedAt), fromMilli(ss.UpdatedAt)
	return r, nil
}

// loadStages sets the stages of these deployments.
func loadStages(ctx context.Context, q querier, ds []*deploy.Deployment) error {
	const perQuery = 500
	at := make(map[string]*deploy.Deployment, len(ds))
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.ID
		at[d.ID] = d
	}
	for chunk := range slices.Chunk(ids, perQuery) {
		rows, err := all(ctx, q, scanStage, "SELECT deployment_id, id, name, spec, status, state, started_at, completed_at FROM stages WHERE deployment_id IN ("+
			placeholders(len(chunk))+") ORDER BY deployment_id, position", anys(chunk)...)
		if err != nil {
			return err
		}
		for _, r := range rows {
			d := at[r.deploymentID]
			r.stage.Index = len(d.Stages)
			d.Stages = append(d.Stages, r.stage)
		}
	}
	return nil
}

// writeStages stores the stages of d that differ from those of prev.
func (t *tx) writeStages(ctx context.Context, prev, d *deploy.Deployment) error {
	if len(prev.Stages) == 0 {
		return t.insertStages(ctx, d)
	}
	for i := range d.Stages {
		st := &d.Stages[i]
		if old := prev.Stage(st.ID); old != nil && reflect.DeepEqual(*old, *st) {
			continue
		}
		state, err := encode(stateOf(st))
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, "UPDATE stages SET status = ?, state = ?, started_at = ?, completed_at = ? WHERE deployment_id = ? AND id = ?",
			string(st.Status), state, toMilli(st.StartedAt), toMilli(st.CompletedAt), d.ID, st.ID); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) insertStages(ctx context.Context, d *deploy.Deployment) error {
	rows := make([][]any, len(d.Stages))
	for i := range d.Stages {
		st := &d.Stages[i]
		spec, err := encode(stageSpec{st.Desc, st.Requires, st.Visible, st.Rollback, st.Options, st.SkipOn, st.Timeout, toMilli(st.CreatedAt)})
		if err != nil {
			return err
		}
		state, err := encode(stateOf(st))
		if err != nil {
			return err
		}
		rows[i] = []any{d.ID, st.ID, st.Name, i, spec, string(st.Status), state, toMilli(st.StartedAt), toMilli(st.CompletedAt)}
	}
	return t.insert(ctx, "stages", "deployment_id, id, name, position, spec, status, state, started_at, completed_at", "", rows)
}

func stateOf(st *deploy.Stage) stageState {
	return stageState{st.StatusReason, st.Metadata, toMilli(st.Deadline), toMilli(st.UpdatedAt)}
}
