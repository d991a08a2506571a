package sandbox

import (
	"errors"
	"fmt"
	"syscall"
)

// Mode is how scripts are isolated.
type Mode string

// The modes, from the strongest.
const (
	Namespaces Mode = "namespaces"
	Landlock   Mode = "landlock"
	OtherUser  Mode = "user" // each run as a user of its own
	None       Mode = "none"
)

// EndedBy is what ends every process that a script started.
type EndedBy string

// The ways to end all processes of a script.
const (
	ByPIDNamespace EndedBy = "PID namespace" // the kernel kills all when the first process ends
	ByCgroup       EndedBy = "cgroup"        // the kernel kills all at once
	BySupervisor   EndedBy = "supervisor"    // it kills what descends from it; orphans do
	ByUser         EndedBy = "user"          // that, and all that runs as the script's user
	ByProcessGroup EndedBy = "process group" // and marks in the environment: a script can leave both
)

// ways returns how a mode ends scripts, the strongest way first.
func (m Mode) ways() []EndedBy {
	switch m {
	case Namespaces:
		return []EndedBy{ByPIDNamespace}
	case Landlock:
		return []EndedBy{ByCgroup, BySupervisor}
	case OtherUser:
		return []EndedBy{ByCgroup, ByUser}
	}
	return nil
}

// Way is how scripts run: how they are isolated, and what ends them. The zero value
// refuses scripts.
type Way struct {
	Mode    Mode    `json:"mode"`
	EndedBy EndedBy `json:"endedBy"`
}

// Holds returns what a mode guarantees, in one sentence for people.
func (m Mode) Holds() string {
	switch m {
	case Namespaces:
		return "a script sees its own files and processes only, and ends as a whole"
	case Landlock:
		return "a script opens its own files only, reaches no process of the agent, and ends as a whole; " +
			"it sees which processes run, and can change the mode and times of files of the agent's user"
	case OtherUser:
		return "a script opens what every user of the machine can, with its /tmp, reaches no process of the agent, and ends as a whole; it sees which processes run"
	case None:
		return "a script can do what the agent's user can, reads the agent's secrets, and may outlive its stage"
	}
	return "scripts are refused"
}

// Command is a script to run.
type Command struct {
	Way
	Script string   `json:"script"`
	Dir    string   `json:"dir"` // where it runs, below Own
	Env    []string `json:"env"` // the whole environment
	Own    string   `json:"own"` // its own directory, read and written
	Tmp    string   `json:"tmp"` // below Own; its /tmp with Namespaces
	// Allow are further paths that it reads and writes as their permissions say.
	Allow []string `json:"allow"`
	// Root is an empty directory on which the script's root is built.
	Root string `json:"root"`

	// With OtherUser, the script runs with these IDs and no further group, and does not
	// start where they can open one of Hidden. No other process has the UID.
	UID    int      `json:"uid,omitempty"`
	GID    int      `json:"gid,omitempty"`
	Hidden []string `json:"hidden,omitempty"`
}

// Ended is the error of a script that did not exit with 0.
type Ended struct {
	Code   int
	Signal syscall.Signal // 0 when it exited
}

func (e *Ended) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("it was ended by signal %d (%s)", e.Signal, e.Signal)
	}
	return fmt.Sprintf("it exited with code %d", e.Code)
}

// report is what the launcher says about the end.
type report struct {
	Error  string         `json:"error,omitempty"` // why the script could not be started
	Code   int            `json:"code,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

// result returns nil for a script that exited with 0, an *Ended for another, and
// another error for one that could not be started.
func (r report) result() error {
	switch {
	case r.Error != "":
		return errors.New(r.Error)
	case r.Code != 0 || r.Signal != 0:
		return &Ended{r.Code, r.Signal}
	}
	return nil
}
