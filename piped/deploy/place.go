package deploy

import (
	"fmt"
	"iter"
	"path"

	"github.com/google/uuid"
)

// Place returns p without remote and branch, which may change without making it another
// application.
func (p GitPath) Place() GitPath {
	return GitPath{RepoID: p.RepoID, Dir: path.Clean(p.Dir), ConfigFile: p.ConfigFile, PullRequest: p.PullRequest}
}

// Places maps locations in Git to known applications. An application's ID does not
// always derive from its location: the application was moved, or PipeCD assigned the
// ID. Hence the ID derived from a location may belong to another application.
type Places struct {
	at    map[GitPath]Application // by place
	taken map[string]bool         // IDs
}

// NewPlaces indexes these applications, deleted ones included. If several share a
// location, an application with a retained ID (see Application.KeepsID) takes
// precedence over one with a derived ID, and deleted applications come last.
func NewPlaces(apps iter.Seq[Application]) Places {
	p := Places{at: map[GitPath]Application{}, taken: map[string]bool{}}
	for a := range apps {
		p.taken[a.ID] = true
		place := a.Git.Place()
		if other, ok := p.at[place]; !ok || a.precedes(other) {
			p.at[place] = a
		}
	}
	return p
}

// At returns the application at a location, if there is one.
func (p Places) At(at GitPath) (app Application, ok bool) {
	app, ok = p.at[at.Place()]
	return app, ok
}

// ID returns the ID of the application at a location, or the ID for a new one.
func (p Places) ID(at GitPath) string {
	if app, ok := p.At(at); ok {
		return app.ID
	}
	id := ApplicationID(at)
	for n := 2; p.taken[id]; n++ {
		id = uuid.NewSHA1(applicationNamespace, fmt.Appendf(nil, "%s\x00%d", placeKey(at), n)).String()
	}
	return id
}

// placeKey returns the text from which the ID of an application at p derives.
func placeKey(p GitPath) string {
	key := p.RepoID + "\x00" + path.Clean(p.Dir) + "\x00" + p.ConfigFile
	if p.PullRequest != 0 {
		key += fmt.Sprintf("\x00pull request %d", p.PullRequest)
	}
	return key
}

// KeepsID reports whether the application's ID does not derive from its location, such
// as one assigned by PipeCD.
func (a Application) KeepsID() bool { return a.ID != ApplicationID(a.Git) }

// precedes reports whether a takes precedence over b at their common location.
func (a Application) precedes(b Application) bool {
	switch {
	case a.Deleted != b.Deleted:
		return b.Deleted
	case a.KeepsID() != b.KeepsID():
		return a.KeepsID()
	}
	return a.ID < b.ID // a stable order
}
