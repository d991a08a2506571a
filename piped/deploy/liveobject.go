package deploy

import "time"

// ObjectSelector selects an object of an application. Cluster, Group and Namespace match any
// value if they are "" or nil. Kind is compared without regard to case.
type ObjectSelector struct {
	Cluster   string
	Group     *string
	Kind      string
	Namespace *string
	Name      string
}

// ObjectQuery describes what is read of one live object.
type ObjectQuery struct {
	ObjectSelector
	Diff          bool // also compare it with Git
	ManagedFields bool // also return who manages which fields
}

// ObjectDetail is a live object with its content. Secrets in it are masked.
type ObjectDetail struct {
	Object LiveObject // without children

	Live      string // YAML without managed fields; "" if the object does not exist
	Git       string // YAML of its declaration; "" if it is not declared
	GitCommit string // of Git
	Drift     *ObjectDrift
	Compared  bool
	Managers  []FieldManager
	Note      string // what is missing and why, for users
}

// FieldManager is a manager of fields of a live object.
type FieldManager struct {
	Manager     string
	Operation   string // Apply or Update
	Subresource string
	ChangedAt   time.Time
	Fields      []string // paths, as in FieldDrift
	LeftOut     int      // further fields
}

// EventQuery describes which Kubernetes events of an application are listed.
type EventQuery struct {
	Object *ObjectSelector // nil for all objects
	Limit  int
}

// ObjectEvents are Kubernetes events, the last that occurred first.
type ObjectEvents struct {
	Events     []ObjectEvent
	LeftOut    int    // older events
	Incomplete string // why events may be missing; "" if the list is complete
}

// ObjectEvent is a Kubernetes event about an object.
type ObjectEvent struct {
	Cluster string
	Object  ObjectRef
	UID     string

	Type    string // Normal or Warning
	Reason  string
	Message string
	Source  string // the component that reported it
	Count   int32
	FirstAt time.Time
	LastAt  time.Time
}

// PodLogQuery describes which lines of a container's log are read.
type PodLogQuery struct {
	Pod       ObjectSelector // Kind is Pod
	Container string         // "" for the only or the default one
	Previous  bool           // of the previous instance
	Since     time.Time
	After     time.Time // only lines written after it
	Tail      int64     // only the last lines; 0 means all
	Follow    bool
}

// PodLog are lines of a container's log.
type PodLog struct {
	Cluster   string
	Pod       ObjectRef
	UID       string
	Container string
	Lines     []PodLogLine
	End       string // why the log ended; set in the last one of a log that is followed
}

// PodLogLine is a line of a container's log, without its end.
type PodLogLine struct {
	At        time.Time // zero if unknown
	Text      string
	Truncated bool
}
