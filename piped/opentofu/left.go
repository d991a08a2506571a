package opentofu

import (
	"fmt"
	"strings"
)

// LeftOf returns "" if a plan does nothing that the approved one did not do: it is what is left of
// that after an apply was interrupted. Otherwise it returns what is new.
func (p Plan) LeftOf(approved Plan) string {
	byName, byAddress := map[string]Change{}, map[string]Change{}
	for _, c := range approved.Changes {
		byName[c.Address+c.Name], byAddress[c.Address] = c, c
	}
	var news []string
	for _, c := range p.Changes {
		before, there := byName[c.Address+c.Name]
		if !there && c.Action == Delete && byAddress[c.Address].Action == Replace {
			before = byAddress[c.Address] // the old one, whose successor was made first
		}
		if why := c.leftOf(before); why != "" {
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
	case approved.Action == Create && c.Action == Replace: // it was made in part, and is tainted
	default:
		return fmt.Sprintf("it was planned to %s", approved.Action)
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
			return a.Path + " differs from what was planned"
		}
	}
	return ""
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
