package deploy

import "time"

// Delivers reports whether the trigger delivers a change: a new commit in Git, as opposed to a
// manual sync, a retry, or taking over a running application.
func (t Trigger) Delivers() bool { return t.Kind == OnCommit && !t.TakeOver }

// FiguresQuery selects the deployments for delivery figures. All conditions must match;
// an empty condition always matches.
type FiguresQuery struct {
	ApplicationIDs []string          // one must match
	Labels         map[string]string // of the application's current labels; all must match
	Scope          *Scope            // must contain the application; nil for no restriction
	From, To       time.Time         // of the completion: From is inclusive, To exclusive

	Bucket             FiguresBucket  // also divides the range; "" for no buckets
	Zone               *time.Location // of the buckets; nil for UTC
	BucketApplications bool           // each bucket contains the figures of its applications
}

// FiguresBucket is the length of the buckets of delivery figures.
type FiguresBucket string

// The buckets: calendar days, and calendar weeks that begin on Monday.
const (
	BucketDay  FiguresBucket = "DAY"
	BucketWeek FiguresBucket = "WEEK"
)

// DeploymentOutcome is the input of delivery figures from one completed deployment.
type DeploymentOutcome struct {
	ApplicationID   string
	ApplicationName string // current name
	Status          Status // Success, Failure or Cancelled
	CompletedAt     time.Time
	// CommittedAt is the committer time of the commit; zero unless Trigger.Delivers.
	CommittedAt time.Time
	// RestoredAt of a Failure is the end of the application's next success, even if
	// that is after the range; zero without one.
	RestoredAt time.Time
}

// DeliveryFigures measure the delivery of changes over a range of time. Figures without
// data are nil.
type DeliveryFigures struct {
	ApplicationID   string // "" for several applications together
	ApplicationName string

	Succeeded, Failed int
	Cancelled         int // including superseded deployments; counted in no other figure

	DeploymentFrequency *float64       // successes per 24 hours of the range
	LeadTimeMedian      *time.Duration // from commit to success
	LeadTimeP90         *time.Duration
	ChangeFailureRate   *float64       // failures among failures and successes, 0 to 1
	TimeToRestoreMedian *time.Duration // from the end of a failure to the end of the next success
}

// DeliveryReport contains the figures of a range of time.
type DeliveryReport struct {
	From, To     time.Time
	Total        DeliveryFigures   // of all deployments
	Applications []DeliveryFigures // with a deployment that ended in the range, by name and ID
	// Buckets divide the range without gaps, the oldest first. They have no buckets themselves.
	Buckets []DeliveryReport
}
