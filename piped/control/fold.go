package control

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of folded trees.
const (
	maxLevelLimit = 500
	maxLevels     = 100
	maxUnfolded   = 10_000 // objects of all unfolded levels

	wholeTree = 4  // a tree of this many times the level limit is shown with what healthy objects created
	maxFolded = 10 // times the level limit: objects without those of unfolded levels
)

func validGetLiveState(r *controlv1.GetLiveStateRequest) error {
	errs := []error{
		required("GetLiveStateRequest.ApplicationId", r.ApplicationId),
		notNegative("GetLiveStateRequest.LevelLimit", r.LevelLimit),
		validMaxAge("GetLiveStateRequest.MaxAgeMs", r.MaxAgeMs),
	}
	switch {
	case r.LevelLimit > maxLevelLimit:
		errs = append(errs, broken("GetLiveStateRequest.LevelLimit", fmt.Sprintf("value must be at most %d", maxLevelLimit)))
	case len(r.Levels) > maxLevels:
		errs = append(errs, broken("GetLiveStateRequest.Levels", fmt.Sprintf("value must contain no more than %d items", maxLevels)))
	case len(r.Levels) > 0 && r.LevelLimit == 0:
		errs = append(errs, broken("GetLiveStateRequest.Levels", "value needs a level_limit"))
	case r.MaxAgeMs > 0 && r.LevelLimit == 0:
		errs = append(errs, broken("GetLiveStateRequest.MaxAgeMs", "value needs a level_limit"))
	}
	total := int64(0)
	for _, l := range r.Levels {
		errs = append(errs, validLiveLevel(l))
		total += int64(max(l.GetLimit(), 0))
	}
	if total > maxUnfolded {
		errs = append(errs, broken("GetLiveStateRequest.Levels", fmt.Sprintf("value must contain limits of at most %d in total", maxUnfolded)))
	}
	return first(errs...)
}

func validLiveLevel(l *controlv1.LiveLevel) error {
	switch {
	case l.Under != nil && (l.Under.Kind == "" || l.Under.Name == ""):
		return broken("LiveLevel.Under", "value must have a kind and a name")
	case l.Kind == "" && (l.Limit != 0 || l.Idle):
		return broken("LiveLevel.Kind", "value is required with a limit")
	case l.Kind != "" && l.Limit < 1:
		return broken("LiveLevel.Limit", "value must be greater than or equal to 1")
	}
	return nil
}

// levelKind is the objects of one kind on a level; idle ones are counted apart.
type levelKind struct {
	kind string
	idle bool
}

func (k levelKind) compare(o levelKind) int {
	if k.kind == o.kind && k.idle != o.idle {
		if k.idle {
			return 1
		}
		return -1
	}
	return cmp.Compare(k.kind, o.kind)
}

// levelKey is the object below which a level is; the zero value is the level of the roots.
type levelKey struct{ cluster, object string } // "" for any cluster

// unfolding is the limits of what a request unfolds on a level; the zero key is all kinds.
type unfolding map[levelKind]int

// folder folds the tree of live objects.
type folder struct {
	limit    int
	whole    bool // also show what healthy objects created
	left     int  // objects that may still be shown, without those of unfolded levels
	unfolded map[levelKey]unfolding
	leads    map[*deploy.LiveObject]bool // the objects that lead to an unfolded level
}

// folded returns the tree of a state as a request folds it. The state is shared and not changed.
func folded(s deploy.LiveState, req *controlv1.GetLiveStateRequest) *modelv1.LiveState {
	limit := int(req.LevelLimit)
	f := &folder{
		limit: limit, whole: count(s.Objects) <= wholeTree*limit, left: maxFolded * limit,
		unfolded: map[levelKey]unfolding{}, leads: map[*deploy.LiveObject]bool{},
	}
	for _, l := range req.Levels {
		f.unfold(l)
	}
	f.markLeads(s.Objects)
	m := liveHead(s)
	m.Objects, m.Folded = f.level(s.Objects, f.unfolded[levelKey{}], limit, false)
	return m
}

// count returns the number of objects in a tree, without idle ones.
func count(objects []deploy.LiveObject) (n int) {
	for i := range objects {
		if !objects[i].Idle {
			n += 1 + count(objects[i].Children)
		}
	}
	return n
}

func (f *folder) unfold(l *controlv1.LiveLevel) {
	at := levelKey{cluster: l.Under.GetCluster()}
	if l.Under != nil {
		at.object = deploy.ObjectRef{Group: l.Under.Group, Kind: l.Under.Kind, Namespace: l.Under.Namespace, Name: l.Under.Name}.Key()
	}
	if f.unfolded[at] == nil {
		f.unfolded[at] = unfolding{}
	}
	kind := levelKind{l.Kind, l.Idle}
	f.unfolded[at][kind] = max(f.unfolded[at][kind], int(l.Limit))
}

// below returns what is unfolded below an object.
func (f *folder) below(o *deploy.LiveObject) (unfolding, bool) {
	u, ok := f.unfolded[levelKey{o.Cluster, o.Object.Key()}]
	if !ok {
		u, ok = f.unfolded[levelKey{object: o.Object.Key()}]
	}
	return u, ok
}

// markLeads marks the objects that lead to an unfolded level, and reports whether one does.
func (f *folder) markLeads(objects []deploy.LiveObject) (any bool) {
	for i := range objects {
		o := &objects[i]
		_, leads := f.below(o)
		if f.markLeads(o.Children) || leads {
			f.leads[o], any = true, true
		}
	}
	return any
}

// level returns the objects of a level that are shown, up to a limit for each kind, and what is
// folded. alone has the children of a single object shown, too.
func (f *folder) level(objects []deploy.LiveObject, u unfolding, limit int, alone bool) (shown []*modelv1.LiveObject, folds []*modelv1.LiveFold) {
	kinds := map[levelKind][]*deploy.LiveObject{}
	for i := range objects {
		o := &objects[i]
		kind := levelKind{o.Object.Kind, o.Idle}
		kinds[kind] = append(kinds[kind], o)
	}
	var chosen []*deploy.LiveObject
	for _, kind := range f.sortedKinds(kinds) {
		own := limit
		if kind.idle {
			own = 0
		}
		own = min(own, f.left)
		some, rest := f.choose(kinds[kind], max(own, u[kind]))
		f.left -= min(len(some), own)
		chosen = append(chosen, some...)
		if len(rest) > 0 {
			folds = append(folds, foldOf(kind, len(some), rest))
		}
	}
	for _, o := range chosen {
		shown = append(shown, f.object(o, alone && active(objects) == 1))
	}
	return shown, folds
}

// active returns the number of objects that are not idle.
func active(objects []deploy.LiveObject) (n int) {
	for i := range objects {
		if !objects[i].Idle {
			n++
		}
	}
	return n
}

// sortedKinds returns the kinds of a level by name. In a large tree, those with an object in
// trouble come first.
func (f *folder) sortedKinds(kinds map[levelKind][]*deploy.LiveObject) (out []levelKind) {
	troubled := map[levelKind]bool{}
	for kind, objects := range kinds {
		out = append(out, kind)
		troubled[kind] = !f.whole && slices.ContainsFunc(objects, func(o *deploy.LiveObject) bool { return o.Health.WorseThan(deploy.HealthProgressing) })
	}
	slices.SortFunc(out, func(a, b levelKind) int {
		switch {
		case troubled[a] && !troubled[b]:
			return -1
		case troubled[b] && !troubled[a]:
			return 1
		}
		return a.compare(b)
	})
	return out
}

// choose divides objects of a kind into those that are shown and those that are folded. If not all
// are shown, the least healthy ones and those that lead to unfolded levels are.
func (f *folder) choose(objects []*deploy.LiveObject, limit int) (shown, rest []*deploy.LiveObject) {
	if len(objects) <= limit {
		return objects, nil
	}
	slices.SortStableFunc(objects, func(a, b *deploy.LiveObject) int {
		switch {
		case a.Health.WorseThan(b.Health):
			return -1
		case b.Health.WorseThan(a.Health):
			return 1
		}
		return 0
	})
	for i, o := range objects {
		if i < limit || f.leads[o] {
			shown = append(shown, o)
		} else {
			rest = append(rest, o)
		}
	}
	return shown, rest
}

// object returns an object with its children, unless these are folded.
func (f *folder) object(o *deploy.LiveObject, unfold bool) *modelv1.LiveObject {
	m := liveLine(*o)
	u, _ := f.below(o)
	_, all := u[levelKind{}]
	limit := f.limit
	if fine := o.Health == deploy.Healthy || o.Health == deploy.HealthSuspended; fine && !f.whole && !all && !unfold {
		limit = 0
	}
	m.Children, m.Folded = f.level(o.Children, u, limit, all || unfold)
	for _, fold := range m.Folded {
		for _, c := range fold.Counts {
			m.ChildrenLeftOut += c.Count
		}
	}
	return m
}

// bestFirst is the order in which healths are counted.
var bestFirst = []deploy.Health{deploy.Healthy, deploy.HealthSuspended, deploy.HealthProgressing, "", deploy.HealthMissing, deploy.HealthDegraded}

func foldOf(kind levelKind, shown int, rest []*deploy.LiveObject) *modelv1.LiveFold {
	fold := &modelv1.LiveFold{Kind: text(kind.kind), Idle: kind.idle, Shown: int32(shown)}
	counts, deleting := map[deploy.Health]int32{}, map[deploy.Health]int32{}
	for _, o := range rest {
		counts[o.Health]++
		if o.Deleting {
			deleting[o.Health]++
		}
	}
	for _, h := range bestFirst {
		if counts[h] > 0 {
			fold.Counts = append(fold.Counts, &modelv1.HealthCount{Health: healths[h], Count: counts[h], Deleting: deleting[h]})
		}
	}
	return fold
}
