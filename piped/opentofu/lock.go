package opentofu

import (
	"fmt"
	"regexp"
	"strings"
)

// Locked is the error of a command that could not lock the state.
type Locked struct {
	ID        string
	Who       string // user@host
	Operation string
	Created   string // as the program writes it
}

// Error says who holds the lock, since when, and what can be done.
func (l *Locked) Error() string {
	return fmt.Sprintf("the state is locked by %s since %s (%s, lock %s); the lock can be released if that run was killed", l.Who, l.Created, l.Operation, l.ID)
}

// keepsLock reports whether the only error of a command is that it could not release the lock of
// the state at its end.
func keepsLock(text string) bool {
	return strings.Contains(text, "Error releasing the state lock") && strings.Count(text, "Error: ") == 1
}

var lockLine = regexp.MustCompile(`^\s*[│|]?\s*(ID|Who|Operation|Created):\s+(.*?)\s*$`)

// lockIn returns the lock that the output of a command describes, nil if it is about none.
func lockIn(text string) *Locked {
	if !strings.Contains(text, "Error acquiring the state lock") {
		return nil
	}
	l := &Locked{}
	for line := range strings.Lines(text) {
		m := lockLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		switch m[1] {
		case "ID":
			l.ID = m[2]
		case "Who":
			l.Who = m[2]
		case "Operation":
			l.Operation = m[2]
		case "Created":
			l.Created = m[2]
		}
	}
	if l.ID == "" && l.Who == "" {
		return nil
	}
	return l
}
