package deploy

import "time"

// Delivers reports whether a deployment that was triggered so brings a change: a
// commit that it is made for because it is new in Git, and not because somebody or
// something asked for it again, or because it was found running.
func (t Trigger) Delivers() bool { return t.Kind == OnCommit && !t.TakeOver }

// FiguresQuery selects the deployments that delivery figures are made of. Conditions
// hold together; empty ones hold always.
type FiguresQuery struct {
	ApplicationIDs []string          // one must match
	Labels         map[string]string // of the application, as it is now; all must match
	From, To       time.Time         // ended at From or later, and before To
}

// DeploymentOutcome is what delivery figures need of a deployment that has ended.
type DeploymentOutcome struct {
	ApplicationID   string
	ApplicationName string // as it is now
	Status          Status // Success, Failure or Cancelled
	CompletedAt     time.Time
	// CommittedAt is when its commit was made, by the committer's clock: zero unless
	// its trigger Delivers.
	CommittedAt time.Time
	// RestoredAt is, of a Failure, the end of the application's next success, whether
	// that lies in the range or after it: zero while there is none.
	RestoredAt time.Time
}

// DeliveryFigures tell how well changes are delivered over a range of time. What was
// not measured is nil.
type DeliveryFigures struct {
	ApplicationID   string // "" for several applications together
	ApplicationName string

	Succeeded, Failed int
	Cancelled         int // those in the place of which a newer one came too; they count in no other figure

	DeploymentFrequency *float64       // successes per 24 hours of the range
	LeadTimeMedian      *time.Duration // commit until success
	LeadTimeP90         *time.Duration
	ChangeFailureRate   *float64       // failures among failures and successes, 0 to 1
	TimeToRestoreMedian *time.Duration // end of a failure until the end of the next success
}

// DeliveryReport holds the figures of a range of time.
type DeliveryReport struct {
	From, To     time.Time
	Total        DeliveryFigures   // of all deployments together
	Applications []DeliveryFigures // each with a deployment that ended in the range, by name, then by ID
}
