package opentofu

import (
	"fmt"
	"strings"
)

// LeftOf returns "" if a plan does nothing that the approved one did not do: it is what is left of
// that after an apply was interrupted. Otherwise it returns what is new.
func (p Plan) LeftOf(approved Plan) string {
	byAddress := map[string]Change{}
	for _, c := range approved.Changes {
		byAddress[c.Address+c.Name] = c
	}
	var news []string
	for _, c := range p.Changes {
		if why := c.leftOf(byAddress[c.Address+c.Name]); why != "" {
			news = append(news, fmt.Sprintf("%s %s (%s)", c.Action, c.Address, why))
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
	default:
		return fmt.Sprintf("it was planned to %s", approved.Action)
	}
	if c.Action == Delete {
		return ""
	}
	planned := map[string]Attribute{}
	for _, a := range approved.Attributes {
		planned[a.Path] = a
	}
	for _, a := range c.Attributes {
		was, there := planned[a.Path]
		switch {
		case a.Unknown, a.After == was.After && there: // as planned
		case there && was.Unknown, coveredUnknown(planned, a.Path): // it is known now
		case !there && a.After == a.Before:
		case approved.Action == Replace && !there: // a created resource lists all attributes, a replaced one those that change
		default:
			return a.Path + " differs from what was planned"
		}
	}
	return ""
}

// coveredUnknown reports whether the value at a path was part of one that was unknown.
func coveredUnknown(planned map[string]Attribute, at string) bool {
	for path, a := range planned {
		if a.Unknown && strings.HasPrefix(at, path) {
			return true
		}
	}
	return false
}

// Moved describes how a plan that is made now differs from the approved one, for users.
func (p Plan) Moved(approved Plan) string {
	was, is := map[string]Change{}, map[string]Change{}
	for _, c := range approved.Changes {
		was[c.Address+c.Name] = c
	}
	var out []string
	for _, c := range p.Changes {
		is[c.Address+c.Name] = c
		switch before := was[c.Address+c.Name]; {
		case before.Action == "":
			out = append(out, fmt.Sprintf("now also %s %s", c.Action, c.Address))
		case before.Action != c.Action:
			out = append(out, fmt.Sprintf("%s: now %s instead of %s", c.Address, c.Action, before.Action))
		case before.String() != c.String():
			out = append(out, fmt.Sprintf("%s: the values differ", c.Address))
		}
	}
	for _, c := range approved.Changes {
		if is[c.Address+c.Name].Action == "" {
			out = append(out, fmt.Sprintf("no longer %s %s", c.Action, c.Address))
		}
	}
	if len(out) == 0 {
		return "a new plan would do the same"
	}
	return strings.Join(out, "; ")
}
