package sandbox

import (
	"errors"
	"fmt"
	"syscall"
)

// Mode is the isolation of scripts.
type Mode string

// The modes, from the strongest.
const (
	Namespaces Mode = "namespaces"
	Landlock   Mode = "landlock"
	OtherUser  Mode = "user" // each script runs as its own user
	None       Mode = "none"
)

// EndedBy is the mechanism that ends all processes of a script.
type EndedBy string

// The mechanisms.
const (
	ByPIDNamespace EndedBy = "PID namespace" // the kernel kills all when the first process ends
	ByCgroup       EndedBy = "cgroup"        // the kernel kills all at once
	BySupervisor   EndedBy = "supervisor"    // kills its descendants, including orphans
	ByUser         EndedBy = "user"          // in addition kills all processes of the script's user
)

// ways returns the mechanisms available for a mode, the strongest first.
func (m Mode) ways() []EndedBy {
	switch m {
	case Namespaces:
		return []EndedBy{ByPIDNamespace}
	case Landlock:
		return []EndedBy{ByCgroup, BySupervisor}
	case OtherUser:
		return []EndedBy{ByCgroup, ByUser}
	case None:
		return []EndedBy{BySupervisor} // which the script can kill
	}
	return nil
}

// Way is the isolation of scripts and the mechanism that ends them. The zero value
// rejects scripts.
type Way struct {
	Mode    Mode    `json:"mode"`
	EndedBy EndedBy `json:"endedBy"`
}

// Holds describes the guarantees of a mode, in one sentence for users.
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
		return "a script can do what the agent's user can, and reads the agent's secrets"
	}
	return "scripts are refused"
}

// Command is a script to run.
type Command struct {
	Way
	Script string   `json:"script"`
	Dir    string   `json:"dir"` // working directory, below Own
	Env    []string `json:"env"` // the whole environment
	Own    string   `json:"own"` // its own directory, readable and writable
	Tmp    string   `json:"tmp"` // below Own; mounted as /tmp with Namespaces
	// Allow are additional accessible paths, subject to their permissions.
	Allow []string `json:"allow"`
	// Root is an empty directory, the mount point of the script's root directory.
	Root string `json:"root"`

	// With OtherUser, the script runs with these IDs and no other group. It is not
	// started if they can open any of Hidden. No other process has the UID.
	UID    int      `json:"uid,omitempty"`
	GID    int      `json:"gid,omitempty"`
	Hidden []string `json:"hidden,omitempty"`
}

// Ended is the error of a script that did not exit with 0.
type Ended struct {
	Code   int
	Signal syscall.Signal // 0 if it exited
}

func (e *Ended) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("it was ended by signal %d (%s)", e.Signal, e.Signal)
	}
	return fmt.Sprintf("it exited with code %d", e.Code)
}

// report is the launcher's report about the end.
type report struct {
	Error  string         `json:"error,omitempty"` // why the script could not be started
	Code   int            `json:"code,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

// result returns nil for exit code 0, an *Ended for other ends, and another error if
// the script could not be started.
func (r report) result() error {
	switch {
	case r.Error != "":
		return errors.New(r.Error)
	case r.Code != 0 || r.Signal != 0:
		return &Ended{r.Code, r.Signal}
	}
	return nil
}
