package page

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Sizes of the tree.
const (
	treeLevelSize = 50  // objects of one kind that a level shows at first
	treeStep      = 500 // further ones that a folded row opens

	maxOpened     = 100 // levels that an address opens, as in the API
	maxOpenedRows = 10_000
)

// idleMark follows the kind of ReplicaSets without pods in addresses. No kind has a dot.
const idleMark = ".idle"

// opening is a level of the tree that the user has opened: all that an object created, or more of
// one kind of it.
type opening struct {
	under *modelv1.ObjectRef // nil for the objects of the application
	kind  string             // "" for all
	idle  bool
	limit int // "" for all kinds: 0
}

// String returns the text of the opening in addresses.
func (o opening) String() string {
	u, limit := o.under, ""
	kind := o.kind
	if o.idle {
		kind += idleMark
	}
	if o.limit > 0 {
		limit = strconv.Itoa(o.limit)
	}
	return strings.Join([]string{u.GetCluster(), u.GetGroup(), u.GetKind(), u.GetNamespace(), u.GetName(), kind, limit}, "/")
}

// openingOf reads the text of an opening.
func openingOf(text string) (o opening, err error) {
	parts := strings.Split(text, "/")
	invalid := status.Errorf(codes.InvalidArgument, "under=%s does not name a level of the tree; write CLUSTER/GROUP/KIND/NAMESPACE/NAME/KIND/NUMBER", text)
	if len(parts) != 7 {
		return o, invalid
	}
	o.kind, o.idle = strings.CutSuffix(parts[5], idleMark)
	if parts[6] != "" {
		if o.limit, err = strconv.Atoi(parts[6]); err != nil || o.limit < 1 {
			return o, invalid
		}
	}
	o.limit = min(o.limit, maxOpenedRows)
	if parts[2] != "" || parts[4] != "" {
		o.under = &modelv1.ObjectRef{Cluster: parts[0], Group: parts[1], Kind: parts[2], Namespace: parts[3], Name: parts[4]}
	}
	if (o.kind == "") != (o.limit == 0) || o.under == nil && o.kind == "" {
		return o, invalid
	}
	return o, nil
}

// openingsOf reads the openings of an address. If they exceed the limits, the last ones count.
func openingsOf(texts []string) (list []opening, err error) {
	rows := 0
	for _, text := range slices.Backward(texts) {
		o, err := openingOf(text)
		if err != nil {
			return nil, err
		}
		same := slices.IndexFunc(list, func(have opening) bool { have.limit = o.limit; return have.String() == o.String() })
		if same >= 0 {
			rows, list[same].limit = rows-list[same].limit, max(o.limit, list[same].limit)
			rows += list[same].limit
			continue
		}
		if len(list) == maxOpened || rows+o.limit > maxOpenedRows {
			break
		}
		list, rows = append(list, o), rows+o.limit
	}
	slices.Reverse(list)
	return list, nil
}

// texts returns the openings as addresses have them.
func texts(list []opening) (out []string) {
	for _, o := range list {
		out = append(out, o.String())
	}
	return out
}

// tree is the live objects as the view shows them.
type tree struct {
	a          *applicationView
	now        time.Time
	incomplete string
	top        *treeLevel
	opened     []opening
	levels     map[string]*treeLevel // by ID
	logs       bool                  // the caller may open objects, and the platform has them
}

// treeLevel is the objects that one object created, or those of the application.
type treeLevel struct {
	id    string
	rows  []*treeRow
	folds []*treeFold
}

// foldsAfter returns the folded rows that follow the last row of their kind; with the number of
// rows those of kinds without one.
func (l *treeLevel) foldsAfter(i int) (out []*treeFold) {
	for _, f := range l.folds {
		if f.after == i {
			out = append(out, f)
		}
	}
	return out
}

// treeRow is one object.
type treeRow struct {
	id     string
	object *modelv1.LiveObject
	level  *treeLevel // nil: it created nothing
	open   bool
	first  bool // the first row that a folded row opened
}

// treeFold is a row in place of objects.
type treeFold struct {
	id, text string
	opens    opening
	lazy     bool // it opens with its level
	after    int  // index of the row that it follows
}

// readTree reads the tree with the levels that the address opens.
func (v *visit) readTree(a *applicationView) (*tree, error) {
	opened, err := openingsOf(append(slices.Clone(a.query["under"]), a.query["level"]...))
	if err != nil {
		return nil, err
	}
	a.query["under"] = texts(opened)
	req := &controlv1.GetLiveStateRequest{ApplicationId: a.id, LevelLimit: treeLevelSize, MaxAgeMs: v.age.Milliseconds()}
	for _, o := range opened {
		req.Levels = append(req.Levels, &controlv1.LiveLevel{Under: o.under, Kind: o.kind, Idle: o.idle, Limit: int32(o.limit)})
	}
	resp, err := v.control.GetLiveState(v.ctx, req)
	if err != nil {
		return nil, err
	}
	state := resp.GetLiveState()
	v.saw(state.GetReadAtMs())
	t := &tree{a: a, now: v.now, incomplete: state.GetIncompleteReason(), opened: opened, levels: map[string]*treeLevel{}, logs: v.can("view-logs", a.id) && a.app.GetKind() == modelv1.ApplicationKind_KUBERNETES}
	t.top = t.level(nil, state.GetObjects(), state.GetFolded())
	return t, nil
}

// nothing says why there are no objects.
func (t *tree) nothing() string {
	if t.a.app.GetKind() != modelv1.ApplicationKind_KUBERNETES {
		return "The state of the last successful deployment has no resources and outputs."
	}
	return "Nothing that this application applied is in the cluster. Sync it to apply what Git wants."
}

// treeID returns the ID of an element about an object.
func treeID(prefix string, o *modelv1.ObjectRef, more ...any) string {
	return prefix + "-" + keyOf(append([]any{o.GetCluster(), objectValue(o)}, more...)...)
}

// level returns the level below an object.
func (t *tree) level(under *modelv1.ObjectRef, objects []*modelv1.LiveObject, folds []*modelv1.LiveFold) *treeLevel {
	l := &treeLevel{id: treeID("level", under)}
	for _, o := range objects {
		row := &treeRow{id: treeID("object", o.GetObject()), object: o}
		if len(o.Children)+len(o.Folded) > 0 {
			row.level = t.level(o.GetObject(), o.Children, o.Folded)
			row.open = len(o.Children) > 0 && (under == nil || o.Health != modelv1.Health_HEALTH_HEALTHY || t.opens(o.GetObject()) || t.opens(under))
		}
		l.rows = append(l.rows, row)
	}
	if under != nil {
		under = &modelv1.ObjectRef{Cluster: t.elsewhere(under), Group: under.Group, Kind: under.Kind, Namespace: under.Namespace, Name: under.Name}
	}
	l.folds = foldsOf(l.id, under, len(objects) == 0 && under != nil, folds)
	last := map[string]int{}
	for i, row := range l.rows {
		last[row.object.GetObject().GetKind()] = i
	}
	for _, f := range l.folds {
		f.after = len(l.rows)
		if i, ok := last[f.opens.kind]; ok {
			f.after = i
		}
	}
	t.levels[l.id] = l
	return l
}

// elsewhere returns the cluster of an object if it is not that of the application.
func (t *tree) elsewhere(o *modelv1.ObjectRef) string {
	if o.GetCluster() == t.a.app.GetPlatformProvider() {
		return ""
	}
	return o.GetCluster()
}

// opens reports whether the user has opened the level below an object.
func (t *tree) opens(o *modelv1.ObjectRef) bool {
	return slices.ContainsFunc(t.opened, func(have opening) bool {
		return have.under != nil && objectValue(have.under) == objectValue(o) && (have.under.Cluster == "" || have.under.Cluster == o.GetCluster())
	})
}

// foldsOf returns the folded rows of a level. A level without rows has one row for all of its
// kinds.
func foldsOf(id string, under *modelv1.ObjectRef, closed bool, folds []*modelv1.LiveFold) (out []*treeFold) {
	var all []*modelv1.LiveFold
	for _, f := range folds {
		if closed && !f.Idle {
			all = append(all, f)
			continue
		}
		row := &treeFold{text: foldText(f), opens: opening{under, f.Kind, f.Idle, min(int(f.Shown)+treeStep, maxOpenedRows)}}
		row.id = "fold-" + id + "-" + rowID(f.Kind, strconv.FormatBool(f.Idle))
		out = append(out, row)
	}
	if len(all) > 0 {
		out = append([]*treeFold{{id: "fold-" + id, text: closedText(all), opens: opening{under: under}, lazy: true}}, out...)
	}
	return out
}

// foldText says what a folded row stands for.
func foldText(f *modelv1.LiveFold) string {
	n := foldedCount(f)
	switch {
	case f.Idle:
		return kindPlural(n, "", f.Kind) + " of earlier revisions, without pods"
	case f.Shown == 0:
		return kindPlural(n, "", f.Kind) + ": " + healthCounts([]*modelv1.LiveFold{f})
	}
	return kindPlural(n, "more ", f.Kind) + ": " + healthCounts([]*modelv1.LiveFold{f})
}

// closedText says what a level contains that is not opened.
func closedText(folds []*modelv1.LiveFold) string {
	var kinds []string
	for _, f := range folds {
		kinds = append(kinds, kindPlural(foldedCount(f), "", f.Kind))
	}
	return strings.Join(kinds, ", ") + ": " + healthCounts(folds)
}

func foldedCount(f *modelv1.LiveFold) (n int32) {
	for _, c := range f.Counts {
		n += c.Count
	}
	return n
}

// healthCounts returns the numbers of objects by health, such as `7 healthy, 2 degraded`.
func healthCounts(folds []*modelv1.LiveFold) string {
	counts := map[modelv1.Health]int32{}
	for _, f := range folds {
		for _, c := range f.Counts {
			counts[c.Health] += c.Count
		}
	}
	var out []string
	total := int32(0)
	for _, h := range []modelv1.Health{
		modelv1.Health_HEALTH_HEALTHY, modelv1.Health_HEALTH_SUSPENDED, modelv1.Health_HEALTH_PROGRESSING,
		modelv1.Health_HEALTH_UNSPECIFIED, modelv1.Health_HEALTH_MISSING, modelv1.Health_HEALTH_DEGRADED,
	} {
		if total += counts[h]; counts[h] > 0 {
			out = append(out, grouped(counts[h])+" "+strings.ToLower(healthMark(h).word))
		}
	}
	if len(out) == 1 {
		_, word, _ := strings.Cut(out[0], " ")
		out[0] = strings.Repeat("all ", min(int(total)-1, 1)) + word
	}
	return strings.Join(out, ", ")
}

// kindPlural returns a number of objects of a kind, such as `1,950 more Pods`.
func kindPlural(n int32, more, kind string) string {
	name := kind
	if n != 1 {
		switch {
		case strings.HasSuffix(kind, "ss"), strings.HasSuffix(kind, "x"), strings.HasSuffix(kind, "ch"):
			name += "es"
		case strings.HasSuffix(kind, "s"):
		case strings.HasSuffix(kind, "cy"), strings.HasSuffix(kind, "ry"), strings.HasSuffix(kind, "ty"):
			name = strings.TrimSuffix(kind, "y") + "ies"
		default:
			name += "s"
		}
	}
	return grouped(n) + " " + more + name
}

// grouped returns a number with its digits in groups of three.
func grouped[N int | int32 | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// path returns the address of the view with a folded row opened.
func (t *tree) path(f *treeFold) string {
	q := url.Values{"tab": {"objects"}, "under": append(texts(t.opened), f.opens.String())}
	return withQuery(applicationPath(t.a.id, t.a.app.GetName()), q)
}

// loads returns what makes a folded row open in place. The levels that are open already are in
// the form that #tree includes.
func (t *tree) loads(f *treeFold) templ.Attributes {
	path := withQuery(applicationPath(t.a.id, t.a.app.GetName()), url.Values{"tab": {"objects"}, "level": {f.opens.String()}})
	attributes := templ.Attributes{"hx-get": path, "hx-target": "closest ul", "hx-swap": "outerMorph", "hx-push-url": "false", "hx-sync": "#tree:queue all"}
	if f.lazy {
		attributes["hx-trigger"] = "click, toggle from:'closest details' once"
	}
	return attributes
}

// parts returns the parts of the tree: rows are replaced alone unless their level has others.
func (t *tree) parts() []part {
	out := []part{{"tree", keyOf(t.incomplete, len(t.top.rows) == 0), within{objectTree(t), "tab"}}}
	if len(t.top.rows) == 0 {
		return out
	}
	return t.levelParts(out, t.top, "tree")
}

func (t *tree) levelParts(out []part, l *treeLevel, in string) []part {
	var shape []string
	at := len(out)
	out = append(out, part{id: l.id, body: within{levelOf(t, l), in}})
	for _, row := range l.rows {
		shape = append(shape, fmt.Sprint(row.id, row.level != nil))
		line := proto.CloneOf(&modelv1.LiveObject{
			Object: row.object.Object, Health: row.object.Health, HealthReason: row.object.HealthReason, CreatedAtMs: row.object.CreatedAtMs,
			Replicas: row.object.Replicas, AvailableReplicas: row.object.AvailableReplicas, Variant: row.object.Variant,
		})
		out = append(out, part{row.id, keyOf(line), within{rowLine(t, row), l.id}})
		if row.level != nil {
			out = t.levelParts(out, row.level, l.id)
		}
	}
	for _, f := range l.folds {
		shape = append(shape, f.id)
		out = append(out, part{f.id, keyOf(f.text, f.opens.String()), within{foldRow(t, f), l.id}})
	}
	out[at].key = keyOf(strings.Join(shape, " "))
	return out
}

// answer sets the screen's answer to a folded row that a script opens: its level, and the
// stream, which includes it from now on.
func (t *tree) answer(v *visit, s *screen, level string) error {
	clicked, err := openingOf(level)
	if err != nil {
		return err
	}
	here, err := url.Parse(v.here()) // with an object that is open
	if err != nil {
		return err
	}
	q := here.Query()
	q["under"] = texts(t.opened)
	v.w.Header().Set("HX-Replace-Url", withQuery(here.Path, q))
	if s.strip, err = v.readStrip(); err != nil {
		return err
	}
	under := clicked.under
	if under != nil && under.Cluster == "" {
		under.Cluster = t.a.app.GetPlatformProvider()
	}
	shown := t.levels[treeID("level", under)]
	if shown == nil { // its object is gone
		v.w.Header().Set("HX-Retarget", "#tree")
		s.part = treeAnswer(t, objectTree(t), s.stream())
		return nil
	}
	if clicked.kind != "" {
		markFirst(shown.rows, clicked)
	}
	s.part = treeAnswer(t, levelOf(t, shown), s.stream())
	return nil
}

// markFirst marks the first row that an opening added.
func markFirst(rows []*treeRow, o opening) {
	before := max(o.limit-treeStep, 0)
	for _, row := range rows {
		if row.object.GetObject().GetKind() != o.kind || o.idle && row.object.Replicas > 0 {
			continue
		}
		if before--; before < 0 {
			row.first = true
			return
		}
	}
}

// readObjects reads the tree, and the object that is open beside it.
func readObjects(v *visit, a *applicationView) (_ templ.Component, _ string, err error) {
	if !a.beside {
		if a.tree, err = v.readTree(a); err != nil {
			return nil, "", err
		}
		a.live = a.tree.parts()
	}
	if a.query.Has("object") && !a.query.Has("level") {
		if a.object, err = v.readObject(a, a.query); err != nil {
			return nil, "", err
		}
	}
	return objectsTab(v, a), "objects", nil
}
