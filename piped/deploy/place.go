package deploy

import (
	"fmt"
	"iter"
	"path"

	"github.com/google/uuid"
)

// Place is p without what may change while the application stays the same: its
// remote and its branch.
func (p GitPath) Place() GitPath {
	return GitPath{RepoID: p.RepoID, Dir: path.Clean(p.Dir), ConfigFile: p.ConfigFile}
}

// Places says which application the configuration at a place belongs to, as far as
// applications are known. An application may have an ID that does not derive from its
// place: it was moved, or PipeCD gave it the ID. So the ID that derives from a place may
// be another application's.
type Places struct {
	at    map[GitPath]Application // by place
	taken map[string]bool         // IDs
}

// NewPlaces returns the places of these applications, deleted ones included. At one place,
// an application that keeps its ID (see Application.KeepsID) comes before the one whose ID
// derives from the place, and a deleted one behind both.
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

// At returns the application that a place belongs to, if there is one.
func (p Places) At(at GitPath) (app Application, ok bool) {
	app, ok = p.at[at.Place()]
	return app, ok
}

// ID returns the ID of the application at a place: of the one that it belongs to, or else
// the ID that a new one gets.
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

func placeKey(p GitPath) string { return p.RepoID + "\x00" + path.Clean(p.Dir) + "\x00" + p.ConfigFile }

// KeepsID reports whether the application has an ID that does not derive from its
// place, such as one that PipeCD gave it.
func (a Application) KeepsID() bool { return a.ID != ApplicationID(a.Git) }

// precedes reports whether a, rather than b, is the application of their place.
func (a Application) precedes(b Application) bool {
	switch {
	case a.Deleted != b.Deleted:
		return b.Deleted
	case a.KeepsID() != b.KeepsID():
		return a.KeepsID()
	}
	return a.ID < b.ID // stable, whatever their order
}
