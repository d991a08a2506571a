package page

import (
	"fmt"
	"strings"
	"unicode/utf8"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of a plan by attribute: attributes of an object, and characters of a value.
const (
	shownAttributes = 1000
	shownValue      = 500
)

// shownChange is a change of an object with as much of it as is shown: its attributes if the plan
// has them, else its diff.
type shownChange struct {
	*controlv1.PlannedChange
	diff       shownDiff
	attributes []*controlv1.PlannedAttribute
}

// wholeChanges returns changes with their whole diffs.
func wholeChanges(list []*controlv1.PlannedChange) []shownChange {
	var out []shownChange
	for _, c := range list {
		if len(c.Attributes) > 0 {
			n := min(len(c.Attributes), shownAttributes)
			out = append(out, shownChange{c, shownDiff{left: len(c.Attributes) - n}, c.Attributes[:n]})
			continue
		}
		out = append(out, shownChange{c, shownDiff{text: c.Diff}, nil})
	}
	return out
}

// cutChange returns a change with the beginning of its diff or of its attributes, and subtracts
// their lines from those that are left.
func cutChange(c *controlv1.PlannedChange, left *int) shownChange {
	if len(c.Attributes) == 0 {
		return shownChange{c, cutDiff(c.Diff, left), nil}
	}
	n := min(len(c.Attributes), objectLines, *left)
	*left -= n
	return shownChange{c, shownDiff{left: len(c.Attributes) - n}, c.Attributes[:n]}
}

// name returns the name of the object of a change.
func (c shownChange) name() string {
	if c.Address != "" {
		return withoutEscapes(c.Address)
	}
	return objectName(c.Object)
}

// planMark returns the mark of what a plan of a platform's program does to an object.
func planMark(a controlv1.PlannedAction) mark {
	switch a {
	case controlv1.PlannedAction_PLANNED_ACTION_CREATE:
		return mark{icon: "plus", word: "Create", role: roleOK}
	case controlv1.PlannedAction_PLANNED_ACTION_UPDATE:
		return mark{icon: "differs", word: "Update", role: roleActive}
	case controlv1.PlannedAction_PLANNED_ACTION_DELETE:
		return mark{icon: "minus", word: "Delete", role: roleBad}
	case controlv1.PlannedAction_PLANNED_ACTION_REPLACE:
		return mark{icon: "sync", word: "Replace", role: roleBad}
	case controlv1.PlannedAction_PLANNED_ACTION_FORGET:
		return mark{icon: "skip", word: "Forget", role: roleWarn}
	case controlv1.PlannedAction_PLANNED_ACTION_IMPORT:
		return mark{icon: "plus", word: "Import", role: roleActive}
	case controlv1.PlannedAction_PLANNED_ACTION_MOVE:
		return mark{icon: "differs", word: "Move", role: roleMuted}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// valueText returns a value of an attribute for users, cut if it is long.
func valueText(value string) string {
	value = withoutEscapes(value)
	if n := utf8.RuneCountInString(value); n > shownValue {
		return fmt.Sprintf("%s … (%d characters)", string([]rune(value)[:shownValue]), n)
	}
	return value
}

// actionWord returns what a plan does to an object.
func actionWord(a controlv1.PlannedAction) string {
	switch a {
	case controlv1.PlannedAction_PLANNED_ACTION_CREATE:
		return "is created"
	case controlv1.PlannedAction_PLANNED_ACTION_UPDATE:
		return "is changed"
	case controlv1.PlannedAction_PLANNED_ACTION_DELETE:
		return "is deleted"
	case controlv1.PlannedAction_PLANNED_ACTION_LEAVE:
		return "is gone from Git and stays, because pruning is off"
	case controlv1.PlannedAction_PLANNED_ACTION_REPLACE:
		return "is deleted and created again"
	case controlv1.PlannedAction_PLANNED_ACTION_FORGET:
		return "stays, and is not managed any more"
	case controlv1.PlannedAction_PLANNED_ACTION_IMPORT:
		return "exists, and is managed from then on"
	case controlv1.PlannedAction_PLANNED_ACTION_MOVE:
		return "stays as it is, under another address"
	}
	return ""
}

// planned says in numbers what a plan does.
func planned(p *controlv1.Plan) string {
	if p.GetChangesSummary() != "" {
		return sentence(p.ChangesSummary)
	}
	counts := map[controlv1.PlannedAction]int{}
	for _, c := range p.GetChanges() {
		counts[c.Action]++
	}
	var parts []string
	for _, a := range []struct {
		action controlv1.PlannedAction
		word   string
	}{
		{controlv1.PlannedAction_PLANNED_ACTION_CREATE, "created"}, {controlv1.PlannedAction_PLANNED_ACTION_UPDATE, "changed"},
		{controlv1.PlannedAction_PLANNED_ACTION_DELETE, "deleted"}, {controlv1.PlannedAction_PLANNED_ACTION_LEAVE, "left"},
	} {
		if n := counts[a.action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", plural(n, "object", "objects"), a.word))
		}
	}
	if len(parts) == 0 {
		return "No object changes."
	}
	return sentence(strings.Join(parts, ", "))
}

// subjectKey is the key of the metadata of a stage for what an approval after it permits, such as a
// plan with its digest.
const subjectKey = "subject"

// permits returns what an approval of a stage permits: what the last stage before it has named, ""
// for nothing in particular.
func permits(d *modelv1.Deployment, s *modelv1.PipelineStage) (out string) {
	if s.Name != "WAIT_APPROVAL" {
		return ""
	}
	for _, before := range d.Stages {
		if before.Id == s.Id {
			return withoutEscapes(out)
		}
		if named := before.Metadata[subjectKey]; named != "" {
			out = named
		}
	}
	return ""
}

// destroyed names the objects that a plan deletes or replaces.
func destroyed(changes []*controlv1.PlannedChange) (out []string) {
	for _, c := range changes {
		if c.Address == "" || c.Object.GetKind() == "output" {
			continue
		}
		switch c.Action {
		case controlv1.PlannedAction_PLANNED_ACTION_DELETE, controlv1.PlannedAction_PLANNED_ACTION_REPLACE:
			out = append(out, withoutEscapes(c.Address)+" "+actionWord(c.Action))
		}
	}
	return out
}
