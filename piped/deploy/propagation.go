package deploy

import "time"

// PropagationPhase is the next step for the pods of a workload.
type PropagationPhase string

// The phases of a propagation.
const (
	PropagationDone   PropagationPhase = ""       // the pods have seen all of Configs
	PropagationNudge  PropagationPhase = "nudge"  // notify the pods
	PropagationSecond PropagationPhase = "second" // notified; a second notification follows shortly
	PropagationRepeat PropagationPhase = "repeat" // notified twice; a last notification follows
)

// Propagation records which ConfigMap and Secret changes the running pods of one workload have
// seen. There is one row per workload. It is written before each action, so that restarts
// neither lose nor repeat a notification.
type Propagation struct {
	ApplicationID string
	Cluster       string
	Workload      ObjectRef
	User          string // impersonated for reads and writes of pods; "" is the agent itself
	Selector      string // of the workload's pods

	// Configs holds the hash of each object's content by ObjectRef.Key, "" for a
	// missing object. In PropagationDone the pods have seen it; in other phases they
	// are being notified of it.
	Configs map[string]string
	// Named holds the resource versions behind the hashes of those Configs that are not
	// in Git.
	Named map[string]string
	Off   bool // changes are recorded without notifying pods

	Phase     PropagationPhase
	Value     string    // of the annotation: identifies the content of Configs
	Changed   []string  // sorted keys of the changed objects
	ChangedAt time.Time // by the cluster's clock; pods created later have seen the change
	NextAt    time.Time // time of the next step; zero when there is none
	Attempts  int       // failed attempts in this phase

	// Settings are the application's settings when the change was applied.
	Settings NudgeSettings
	Outcome  NudgeOutcome // of the last nudge

	Version int64 // counts the writes of the row for compare-and-swap
}

// NudgeSettings configures how pods are notified ("nudged").
type NudgeSettings struct {
	Delay                  time.Duration // from the change to the first notification
	RepeatAfter            time.Duration // from the first notification to the last; 0 sends only one
	MaxPods, RatePerSecond int
}

// Longest returns the maximum duration of one notification of all pods at the
// configured rate.
func (s NudgeSettings) Longest() time.Duration {
	return time.Duration(s.MaxPods) * time.Second / time.Duration(max(s.RatePerSecond, 1))
}

// NudgeOutcome is the result of the first notification of a change.
type NudgeOutcome struct {
	Pods    int      // number of notified pods
	Names   []string // of the first notified pods
	Over    int      // skipped pods beyond MaxPods
	Problem string   // why some pods were not notified, "" if all were
}
