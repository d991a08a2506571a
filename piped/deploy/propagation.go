package deploy

import "time"

// PropagationPhase says what is still to be done with the pods of a workload.
type PropagationPhase string

// The phases of a propagation.
const (
	PropagationDone   PropagationPhase = ""       // the pods know all of Configs
	PropagationNudge  PropagationPhase = "nudge"  // they are to be nudged
	PropagationSecond PropagationPhase = "second" // they were, and are to be nudged again soon
	PropagationRepeat PropagationPhase = "repeat" // and once more, for the last time
)

// Propagation is what the pods of one workload have been told of the ConfigMaps and
// Secrets whose changes they see while they run: one row for each workload. It is
// stored before anything is done, so that neither a change nor a pod is forgotten, and
// nothing is done twice, over restarts of the agent.
type Propagation struct {
	ApplicationID string
	Cluster       string
	Workload      ObjectRef
	User          string // in whose name pods are read and written; "" is the agent's own
	Selector      string // of the workload's pods

	// Configs holds the hash of each object's content, by ObjectRef.Key, "" for one
	// that is not there: what the pods know, or in any phase but PropagationDone what
	// they are being told.
	Configs map[string]string
	// Named are those of Configs that are not in Git, with the resource version that
	// their hash is of.
	Named map[string]string
	Off   bool // what changes is noted, and nobody told

	Phase     PropagationPhase
	Value     string    // of the annotation: it names the content of Configs
	Changed   []string  // keys of what has changed, sorted
	ChangedAt time.Time // by the cluster's clock; later pods know it already
	NextAt    time.Time // when to go on; zero when there is nothing to do
	Attempts  int       // that failed in this phase

	// Settings are those of the application when the change was applied.
	Settings NudgeSettings
	Outcome  NudgeOutcome // of the last nudge

	Version int64 // counts the writes of the row; compared and swapped
}

// NudgeSettings says how pods are nudged.
type NudgeSettings struct {
	Delay                  time.Duration // from the change to the first nudge
	RepeatAfter            time.Duration // from the first nudge to the last; 0: there is one only
	MaxPods, RatePerSecond int
}

// Longest returns how long one nudge of all pods of a workload may take by its rate.
func (s NudgeSettings) Longest() time.Duration {
	return time.Duration(s.MaxPods) * time.Second / time.Duration(max(s.RatePerSecond, 1))
}

// NudgeOutcome says how the first nudge of a change went.
type NudgeOutcome struct {
	Pods    int      // that know it
	Names   []string // of the first of them
	Over    int      // that were left out: more than MaxPods
	Problem string   // why some were not told, "" without a problem
}
