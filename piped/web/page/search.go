package page

import (
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Limits of a search.
const (
	searchedApplications = 8
	searchedActions      = 5 // applications for which an action is offered
	searchedText         = 200
)

// hit is something that a search has found: a link, or the dialog of an action.
type hit struct {
	mark   mark
	label  string
	hint   string
	path   string
	action bool
}

// hits are the results of one kind.
type hits struct {
	title string
	list  []hit
}

// found are the results of a search.
type found struct {
	text   string
	groups []hits
}

// showSearch shows what a text means: views, applications, deployments, commits and actions. The
// command palette shows the same.
func showSearch(v *visit) (*screen, error) {
	text := strings.TrimSpace(v.query().Get("q"))
	if len(text) > searchedText {
		return nil, status.Errorf(codes.InvalidArgument, "the text to search for is longer than %d bytes", searchedText)
	}
	f, err := v.search(text)
	if err != nil {
		return nil, err
	}
	return &screen{title: "Search", body: searchPage(f), part: searchResults(f)}, nil
}

// search looks a text up everywhere.
func (v *visit) search(text string) (*found, error) {
	f := &found{text: text}
	f.add("Views", v.views(text))
	if text == "" {
		f.add("Actions", v.verbHits())
		return f, nil
	}
	apps, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Text: text, Limit: searchedApplications})
	if err != nil {
		return nil, err
	}
	list := make([]hit, 0, len(apps.Applications)+1)
	for _, e := range apps.Applications {
		list = append(list, hit{mark: markOf(e.Status), label: e.Name, hint: e.PlatformProvider, path: applicationPath(e.Id, e.Name)})
	}
	if int(apps.Total) > len(apps.Applications) {
		list = append(list, hit{mark: mark{icon: "search", role: roleMuted}, label: "All " + plural(apps.Total, "application", "applications") + " that match", path: withQuery("/applications", url.Values{"q": {text}})})
	}
	f.add("Applications", list)
	actions, err := v.actionHits(text)
	if err != nil {
		return nil, err
	}
	f.add("Actions", actions)
	changes, err := v.changeHits(text)
	f.add("Changes", changes)
	return f, err
}

func (f *found) add(title string, list []hit) {
	if len(list) > 0 {
		f.groups = append(f.groups, hits{title, list})
	}
}

// count returns the number of results.
func (f *found) count() int {
	n := 0
	for _, g := range f.groups {
		n += len(g.list)
	}
	return n
}

// headline is the first sentence of the results.
func (f *found) headline() string {
	switch {
	case f.text == "":
		return "Search for an application, a deployment, a commit or an action."
	case f.count() == 0:
		return "Nothing is called “" + f.text + "”."
	}
	return plural(f.count(), "result", "results") + " for “" + f.text + "”."
}

// views returns the views and the tabs of the view Agent whose label contains a text.
func (v *visit) views(text string) []hit {
	var out []hit
	add := func(label, hint, path string) {
		if strings.Contains(strings.ToLower(label), strings.ToLower(text)) {
			out = append(out, hit{mark: mark{icon: "right", role: roleMuted}, label: label, hint: hint, path: path})
		}
	}
	for _, r := range routes() {
		if r.nav != "" {
			add(r.nav, "g "+r.key, r.path())
		}
	}
	if text != "" {
		for _, t := range agentTabs() {
			if t.permitted(v) {
				add(t.label, "Agent", agentPath(t.name))
			}
		}
		add("Trace", "Events", "/trace")
	}
	return out
}

// verb is an action that a search offers. One about an application follows its name.
type verb struct {
	word, label string
	permission  string
	agent       bool // it is about no application
}

func verbs() []verb {
	return []verb{
		{"sync", "Sync", "sync", false}, {"rollback", "Roll back", "rollback", false}, {"heal", "Heal", "sync", false},
		{"enable", "Enable", "enable", false}, {"disable", "Disable", "enable", false}, {"delete", "Delete", "delete", false},
		{"create-key", "Create an API key", "keys", true}, {"disable-user", "Disable a user", "keys", true},
	}
}

// verbHits explains what can be done by typing.
func (v *visit) verbHits() []hit {
	var out []hit
	for _, o := range verbs() {
		if !v.somewhere(o.permission) {
			continue
		}
		if o.agent {
			out = append(out, hit{mark: mark{icon: "right", role: roleMuted}, label: o.label + "…", path: "/actions/" + o.word, action: true})
		} else {
			out = append(out, hit{mark: mark{icon: "right", role: roleMuted}, label: o.label + " an application", hint: "type " + o.word + " and a name", path: withQuery("/search", url.Values{"q": {o.word + " "}})})
		}
	}
	return out
}

// actionHits returns the actions that a text such as `sync web` names, as far as the caller may
// take them.
func (v *visit) actionHits(text string) ([]hit, error) {
	word, name, _ := strings.Cut(strings.ToLower(text), " ")
	var out []hit
	for _, o := range verbs() {
		switch {
		case !v.somewhere(o.permission):
		case o.agent && strings.Contains(strings.ToLower(o.label), strings.ToLower(text)):
			out = append(out, hit{mark: mark{icon: "right", role: roleMuted}, label: o.label + "…", path: "/actions/" + o.word, action: true})
		case !o.agent && len(word) > 1 && strings.HasPrefix(o.word, word):
			apps, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Text: strings.TrimSpace(name), Limit: searchedActions})
			if err != nil {
				return nil, err
			}
			for _, e := range apps.Applications {
				if v.can(o.permission, e.Id) && possible(o, e) {
					out = append(out, hit{mark: markOf(e.Status), label: o.label + " " + e.Name + "…", hint: e.PlatformProvider, path: applicationAction(o.word, e.Id), action: true})
				}
			}
		}
	}
	return out, nil
}

// possible reports whether an action makes sense for an application as it is.
func possible(o verb, e *controlv1.ApplicationEntry) bool {
	switch o.word {
	case "enable":
		return e.Disabled
	case "disable", "sync", "rollback":
		return !e.Disabled
	case "heal":
		return e.GetStatus().GetState() == controlv1.ApplicationState_APPLICATION_STATE_DRIFTED
	}
	return true
}

// changeHits returns the deployments and commits that a text names.
func (v *visit) changeHits(text string) ([]hit, error) {
	resp, err := v.control.Resolve(v.ctx, &controlv1.ResolveRequest{Deployment: text})
	if err != nil {
		return nil, err
	}
	var out []hit
	for _, m := range resp.Matches {
		label := "Deployment " + m.Id
		if !strings.HasPrefix(m.Id, text) { // it is the newest one of an application
			label = "Last deployment of " + m.ApplicationName
		}
		out = append(out, hit{mark: mark{icon: "clock", role: roleMuted}, label: label, hint: m.ApplicationName, path: deploymentPath(m.Id)})
	}
	if hash := strings.ToLower(text); commitPattern.MatchString(hash) {
		commits, err := v.commitHits(hash)
		return slices.Concat(commits, out), err
	}
	if repository, digits, ok := strings.Cut(text, "#"); ok && digits != "" {
		out = append(out, hit{mark: mark{icon: "right", role: roleMuted}, label: "Trace of pull request " + text, hint: repository, path: withQuery("/trace", url.Values{"q": {text}})})
	}
	return out, nil
}

// commitHits returns the commits of which a hash is the beginning, none if there is no such commit.
func (v *visit) commitHits(hash string) ([]hit, error) {
	resp, err := v.control.GetDeploymentTrace(v.ctx, &controlv1.GetDeploymentTraceRequest{Commit: hash})
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition: // also an ambiguous one
		return nil, nil
	default:
		return nil, err
	}
	var out []hit
	for _, c := range resp.GetTrace().GetCommits() {
		if strings.HasPrefix(c.Hash, hash) {
			out = append(out, hit{mark: mark{icon: "dot", role: roleMuted}, label: short(c.Hash) + " " + withoutEscapes(c.Message), hint: plural(len(c.Deployments), "deployment", "deployments"), path: tracePath("commit", c.Hash)})
		}
	}
	return out, nil
}

// dialog returns what makes the link of an action open its dialog.
func (h hit) dialog() templ.Attributes {
	if !h.action {
		return nil
	}
	return templ.Attributes{"hx-get": h.path, "hx-target": "#dialog-body", "hx-swap": "innerHTML", "data-dialog": true}
}
