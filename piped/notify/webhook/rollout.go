package webhook

import "github.com/c785c783/piped/piped/deploy"

// rollout is a rollout or a scaling. Times are Unix milliseconds.
type rollout struct {
	Cluster   string `json:"cluster,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Phase     string `json:"phase,omitempty"`

	ID             string   `json:"id,omitempty"`
	Images         []string `json:"images,omitempty"`
	ImagesBefore   []string `json:"images_before,omitempty"`
	ChangedBy      string   `json:"changed_by,omitempty"`
	SupersededBy   string   `json:"superseded_by,omitempty"`
	Interrupts     string   `json:"interrupts,omitempty"`
	FoundLate      bool     `json:"found_late,omitempty"`
	StartedAt      int64    `json:"started_at_ms,omitempty"`
	CompletedAt    int64    `json:"completed_at_ms,omitempty"`
	DurationMillis *int64   `json:"duration_ms,omitempty"` // nil if it has not ended
	FromReplicas   *int32   `json:"from_replicas,omitempty"`
	ToReplicas     *int32   `json:"to_replicas,omitempty"`
}

// rolloutOf returns the workload of a rollout or scaling, its phase and what is known of it.
func rolloutOf(p deploy.EventPayload) *rollout {
	r := &rollout{Cluster: p.Cluster, Phase: string(p.Phase), Interrupts: p.Interrupts}
	if w := p.Workload; w != nil {
		r.Kind, r.Namespace, r.Name = w.Kind, w.Namespace, w.Name
	}
	e := p.Rollout
	if e == nil {
		return r
	}
	r.ID, r.Images, r.ImagesBefore, r.ChangedBy, r.SupersededBy = e.ID, e.Images, e.ImagesBefore, e.ChangedBy, e.SupersededBy
	r.FoundLate, r.StartedAt, r.CompletedAt = e.FoundLate, e.StartedAt, e.CompletedAt
	r.FromReplicas, r.ToReplicas = &e.FromReplicas, &e.ToReplicas
	if e.CompletedAt > 0 {
		r.DurationMillis = new(e.Took().Milliseconds())
	}
	return r
}
