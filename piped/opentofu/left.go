package opentofu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// key identifies a change among those of a plan: a deposed resource has the address of its successor.
func (c Change) key() string { return c.Address + " " + c.Name }

// what names what changes, for users.
func (c Change) what() string {
	if c.Address == "" {
		return "output " + c.Name
	}
	return c.Address
}

// all returns the changes of resources and of outputs.
func (p Plan) all() []Change { return slices.Concat(p.Changes, p.Outputs) }

// LeftOf returns "" if a plan does nothing that the approved one did not do: it is what is left of
// that after an apply was interrupted. Otherwise it returns what is new.
func (p Plan) LeftOf(approved Plan) string {
	byKey, byAddress := map[string]Change{}, map[string]Change{}
	for _, c := range approved.all() {
		byKey[c.key()], byAddress[c.Address] = c, c
	}
	var news []string
	for _, c := range p.all() {
		before, there := byKey[c.key()]
		if !there && c.Action == Delete && c.Address != "" && byAddress[c.Address].Action == Replace {
			before = byAddress[c.Address] // the old one, whose successor was made first
		}
		if why := c.leftOf(before); why != "" {
			news = append(news, fmt.Sprintf("%s %s (%s)", c.Action, c.what(), why))
		}
	}
	return strings.Join(news, "; ")
}

// leftOf returns "" if a change is the rest of the approved one, else what is new.
func (c Change) leftOf(approved Change) string {
	switch {
	case approved.Action == "":
		return "it was not planned"
	case c.Action == approved.Action:
	case approved.Action == Replace && (c.Action == Create || c.Action == Delete):
	case approved.Action == Create && c.Action == Replace: // it was made in part, and is tainted
	default:
		return fmt.Sprintf("it was planned to %s", approved.Action)
	}
	if c.Origin != "" && c.Origin != approved.Origin { // a move or an import that is done is in no plan any more
		return c.Origin
	}
	if c.Action == Delete {
		return ""
	}
	planned, open := map[string]Attribute{}, map[string]bool{}
	for _, a := range approved.Attributes {
		planned[a.Path] = a
		if a.Unknown {
			open[a.Path] = true
		}
	}
	for _, a := range c.Attributes {
		was, there := planned[a.Path]
		switch {
		case under(open, a.Path): // it is known now, or still not
		case there && !a.Unknown && a.After == was.After: // as planned
		case a.After == "" && !a.Unknown && approved.Action == Create: // of what was made in part
		case approved.Action == Replace && c.Action == Create && !there: // a created resource lists all attributes, a replaced one those that change
		default:
			return cmp.Or(a.Path, "its value") + " differs from what was planned"
		}
	}
	return ""
}

// Moved describes how a plan that is made now differs from the approved one, for users.
func (p Plan) Moved(approved Plan) string {
	was, is := map[string]Change{}, map[string]Change{}
	for _, c := range approved.all() {
		was[c.key()] = c
	}
	var out []string
	for _, c := range p.all() {
		is[c.key()] = c
		switch before := was[c.key()]; {
		case before.Action == "":
			out = append(out, fmt.Sprintf("now also %s %s", c.Action, c.what()))
		case before.Action != c.Action:
			out = append(out, fmt.Sprintf("%s: now %s instead of %s", c.what(), c.Action, before.Action))
		case before.String() != c.String():
			out = append(out, fmt.Sprintf("%s: the values differ", c.what()))
		}
	}
	for _, c := range approved.all() {
		if is[c.key()].Action == "" {
			out = append(out, fmt.Sprintf("no longer %s %s", c.Action, c.what()))
		}
	}
	if len(out) == 0 {
		return "a new plan would do the same"
	}
	return strings.Join(out, "; ")
}
