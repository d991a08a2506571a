package page

import (
	"fmt"
	"time"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// strip is the line below the bar: what needs a person, on every view.
type strip struct {
	items []stripItem
}

type stripItem struct {
	mark mark
	text string
	path string
}

// stripStates are the states that the strip counts, with their nouns.
func stripStates() []struct{ state, one, many string } {
	return []struct{ state, one, many string }{
		{"WAITING_FOR_APPROVAL", "approval", "approvals"},
		{"FAILED", "failed", "failed"},
		{"DEGRADED", "degraded", "degraded"},
		{"INVALID_CONFIG", "invalid config", "invalid configs"},
		{"DRIFTED", "drifted", "drifted"},
	}
}

// readStrip reads what the strip shows.
func (v *visit) readStrip() (*strip, error) {
	found, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Facets: []string{"state"}, Limit: 1})
	if err != nil {
		return nil, err
	}
	state, err := v.agentState()
	if err != nil {
		return nil, err
	}
	return newStrip(found.Facets, state, v.now), nil
}

// liveStrip is the stream of the views that have nothing else that changes.
func liveStrip(*visit) (source, error) { return stripSource{}, nil }

type stripSource struct{ everyApplication }

func (stripSource) parts(v *visit) ([]part, error) {
	s, err := v.readStrip()
	if err != nil {
		return nil, err
	}
	return []part{s.part()}, nil
}

// agentState returns the state of the agent, nil for a caller who may not see it.
func (v *visit) agentState() (*controlv1.GetStatusResponse, error) {
	if !v.everywhere("view") {
		return nil, nil
	}
	return v.control.GetStatus(v.ctx, &controlv1.GetStatusRequest{MaxAgeMs: min(v.age, stateAge).Milliseconds()})
}

func newStrip(facets []*controlv1.Facet, state *controlv1.GetStatusResponse, now time.Time) *strip {
	counts := countsOf(facets, "state")
	s := &strip{}
	for _, c := range stripStates() {
		if n := counts[c.state]; n > 0 {
			s.items = append(s.items, stripItem{mark: stateMark(c.state), text: plural(n, c.one, c.many), path: filterPath(c.state)})
		}
	}
	for _, p := range problemsOf(state, now) {
		s.items = append(s.items, stripItem{mark: p.mark, text: p.short, path: "/#now-not-well"})
	}
	return s
}

// countsOf returns the counts of a facet.
func countsOf(facets []*controlv1.Facet, name string) map[string]int32 {
	counts := map[string]int32{}
	for _, f := range facets {
		if f.Name != name {
			continue
		}
		for _, v := range f.Values {
			counts[v.Value] = v.Count
		}
	}
	return counts
}

// problem is something about the agent itself that needs a person.
type problem struct {
	mark   mark
	short  string // for the strip
	title  string
	reason string
	since  int64
}

// problemsOf returns what is wrong with the agent, its clusters, repositories and receivers.
func problemsOf(s *controlv1.GetStatusResponse, now time.Time) []problem {
	away, bad := mark{icon: "cloud-off", word: "Away", role: roleMuted}, mark{icon: "warning", word: "Problem", role: roleBad}
	var out []problem
	add := func(m mark, title, short, reason string, since int64) {
		if since > 0 {
			short += " since " + time.UnixMilli(since).In(now.Location()).Format("15:04")
		}
		out = append(out, problem{m, short, title, reason, since})
	}
	for _, c := range s.GetClusters() {
		if !c.Reachable && c.Error != "" {
			add(away, "Cluster "+c.Name+" cannot be reached", "cluster "+c.Name+" away", c.Error, c.FailingSinceMs)
		}
	}
	for _, r := range s.GetRepositories() {
		if r.Error != "" {
			add(away, "Repository "+r.Id+" cannot be read", "repository "+r.Id+" away", r.Error, r.FailingSinceMs)
		}
	}
	for _, r := range s.GetReceivers() {
		if r.DeadLetterCount > 0 {
			add(bad, "Receiver "+r.Name+" did not get "+plural(r.DeadLetterCount, "notification", "notifications"), fmt.Sprintf("%s to %s lost", plural(r.DeadLetterCount, "notification", "notifications"), r.Name), r.Error, 0)
		}
	}
	if text := s.GetStore().GetError(); text != "" {
		add(bad, "The store does not answer", "store away", text, 0)
	}
	if text := s.GetAgent().GetConfigError(); text != "" {
		add(bad, "The new configuration of the agent was refused", "configuration refused", text, 0)
	}
	if text := s.GetScripts().GetError(); text != "" {
		add(bad, "Stages with scripts fail", "scripts fail", text, 0)
	}
	if s.GetAgent().GetDisabled() {
		add(mark{icon: "pause", word: "Disabled", role: roleAttention}, "The agent is disabled", "agent disabled", "Nothing is deployed until it is enabled: pipectl piped enable.", 0)
	}
	return out
}

// part returns the strip as a live part.
func (s *strip) part() part { return part{"strip", keyOf(s.items), stripLine(s)} }
