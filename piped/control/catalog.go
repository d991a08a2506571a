package control

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// catalogStore is the part of the store that only the catalog reads.
type catalogStore interface {
	// Degradations returns the applications that were last reported as degraded.
	Degradations(ctx context.Context) ([]deploy.Degradation, error)
}

// entry is the searchable part of an application. It is immutable.
type entry struct {
	app      deploy.Application // only identity, Git path, labels and times
	status   deploy.AppStatus
	sync     deploy.SyncStatus
	health   deploy.Health
	last     *deploy.Deployment // the last triggered, without stages; nil before the first
	running  *deploy.DeploymentRef
	text     string // lower case, for words
	gone     bool   // deleted
	revision int64  // increases with each change of any entry
}

// Limits of the memory of an entry: the searchable text, and each text that is only shown.
const (
	maxEntryText  = 4096
	maxEntryValue = 512
)

// catalog indexes all applications in memory for search. It is filled at first use. Each read
// applies the changes committed before it, so that it sees every commit of this process.
// Memory is bounded by the number of applications.
type catalog struct {
	store Store // all applications: each reader filters what its caller may view

	mu       sync.Mutex
	watch    *store.Watch
	filled   bool
	stale    map[string]bool // IDs of applications to be read again
	entries  map[string]*entry
	sorted   []*entry // present applications by name, then ID; replaced on change, never modified
	revision int64
}

func newCatalog(s Store) *catalog {
	return &catalog{store: s, stale: map[string]bool{}, entries: map[string]*entry{}}
}

// catalogTopics are the changes that concern entries. Events report health.
func catalogTopics() []deploy.Topic {
	return []deploy.Topic{deploy.TopicApplication, deploy.TopicDeployment, deploy.TopicDrift, deploy.TopicEvent, deploy.TopicRegistration}
}

// all returns the present applications by name, then ID, and the revision, which increases with
// each change of any of them. The caller must not modify the list.
func (c *catalog) all(ctx context.Context) ([]*entry, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(ctx); err != nil {
		return nil, 0, err
	}
	return c.sorted, c.revision, nil
}

// byID returns the entries of applications, deleted ones included.
func (c *catalog) byID(ctx context.Context, ids []string) ([]*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	var out []*entry
	for _, id := range ids {
		if e := c.entries[id]; e != nil {
			out = append(out, e)
		}
	}
	return out, nil
}

// close ends the subscription.
func (c *catalog) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch != nil {
		c.watch.Close()
	}
}

// refresh applies pending changes, or reads everything at first. After an error the next call
// tries again. The caller holds mu.
func (c *catalog) refresh(ctx context.Context) error {
	if c.watch == nil {
		c.watch = c.store.Watch(catalogTopics()...)
	}
	for _, change := range c.watch.Take() {
		if change.ApplicationID != "" {
			c.stale[change.ApplicationID] = true
		}
	}
	if c.filled && len(c.stale) == 0 {
		return nil
	}
	apps, err := c.outdated(ctx)
	if err != nil {
		return err
	}
	now, err := c.read(ctx, apps)
	if err != nil {
		return err
	}
	c.replace(now)
	c.filled = true
	clear(c.stale)
	return nil
}

// outdated reads all applications at first, those in stale afterwards.
func (c *catalog) outdated(ctx context.Context) ([]deploy.Application, error) {
	if !c.filled {
		apps, _, err := c.store.ListApplications(ctx, store.ApplicationQuery{IncludeAll: true})
		return apps, err
	}
	var apps []deploy.Application
	for _, id := range slices.Sorted(maps.Keys(c.stale)) {
		app, err := c.store.Application(ctx, id)
		if deploy.IsKind(err, deploy.NotFound) {
			app, err = deploy.Application{ID: id, Deleted: true}, nil
		}
		if err != nil {
			return nil, err
		}
		apps = append(apps, app)
	}
	return apps, nil
}

// read returns the new entries of applications.
func (c *catalog) read(ctx context.Context, apps []deploy.Application) ([]*entry, error) {
	known, err := readSituations(ctx, c.store, apps)
	if err != nil {
		return nil, err
	}
	out := make([]*entry, len(apps))
	for i := range apps {
		out[i] = newEntry(known[i])
	}
	return out, nil
}

// perRead limits the deployments that are in memory at once while the catalog is filled.
const perRead = 500

// readSituations reads what is stored about applications.
func readSituations(ctx context.Context, s Store, apps []deploy.Application) ([]deploy.Situation, error) {
	degraded, err := s.Degradations(ctx)
	if err != nil {
		return nil, err
	}
	adoptions, err := s.Adoptions(ctx)
	if err != nil {
		return nil, err
	}
	health, awaited := map[string]deploy.Degradation{}, map[string]time.Time{}
	for _, d := range degraded {
		health[d.ApplicationID] = d
	}
	for _, a := range adoptions {
		awaited[a.ApplicationID] = a.Since
	}
	out := make([]deploy.Situation, 0, len(apps))
	for chunk := range slices.Chunk(apps, perRead) {
		found, err := deploymentsOf(ctx, s, chunk)
		if err != nil {
			return nil, err
		}
		for _, app := range chunk {
			known := situation(app, found)
			known.AdoptionSince = awaited[app.ID]
			if d, bad := health[app.ID]; bad {
				known.Health, known.HealthReason, known.HealthSince = deploy.HealthDegraded, d.Reason, d.Since
			}
			if app.Sync.Status == deploy.OutOfSync {
				if known.Drift, err = s.DriftReport(ctx, app.ID); err != nil && !deploy.IsKind(err, deploy.NotFound) {
					return nil, err
				}
			}
			out = append(out, known)
		}
	}
	return out, nil
}

// deploymentsOf returns the last triggered and active deployments of applications, by ID.
func deploymentsOf(ctx context.Context, s Store, apps []deploy.Application) (map[string]*deploy.Deployment, error) {
	var ids []string
	for _, a := range apps {
		if a.LastTriggered != nil {
			ids = append(ids, a.LastTriggered.DeploymentID)
		}
		ids = append(ids, a.ActiveID)
	}
	ids = nonEmpty(ids)
	slices.Sort(ids)
	list, err := s.DeploymentsByID(ctx, slices.Compact(ids))
	found := make(map[string]*deploy.Deployment, len(list))
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, err
}

// situation combines an application with its deployments.
func situation(app deploy.Application, found map[string]*deploy.Deployment) deploy.Situation {
	known := deploy.Situation{App: app, Current: found[app.ActiveID]}
	if app.LastTriggered != nil {
		known.Last = found[app.LastTriggered.DeploymentID]
	}
	if known.Current == nil && known.Last != nil && !known.Last.Status.Completed() {
		known.Current = known.Last
	}
	return known
}

// replace puts new entries in place of those with the same IDs. The caller holds mu.
func (c *catalog) replace(now []*entry) {
	now = slices.DeleteFunc(now, c.unchanged)
	for _, e := range now {
		c.revision++
		e.revision = c.revision
		c.entries[e.app.ID] = e
	}
	now = slices.DeleteFunc(now, func(e *entry) bool { return e.gone })
	slices.SortFunc(now, byName)
	sorted := make([]*entry, 0, len(c.sorted)+len(now))
	for _, e := range c.sorted {
		if c.entries[e.app.ID] != e {
			continue // replaced
		}
		for len(now) > 0 && byName(now[0], e) < 0 {
			sorted, now = append(sorted, now[0]), now[1:]
		}
		sorted = append(sorted, e)
	}
	c.sorted = append(sorted, now...)
}

// unchanged reports whether an application has an equal entry already. The caller holds mu.
func (c *catalog) unchanged(e *entry) bool {
	was := c.entries[e.app.ID]
	if was == nil {
		return false
	}
	e.revision = was.revision
	return reflect.DeepEqual(was, e)
}

// byName compares names, then IDs.
func byName(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.app.Name, b.app.Name), cmp.Compare(a.app.ID, b.app.ID))
}

// newEntry returns the entry of an application, without its revision.
func newEntry(known deploy.Situation) *entry {
	app := known.App
	if app.Deleted {
		return &entry{app: deploy.Application{ID: app.ID}, gone: true}
	}
	e := &entry{
		app: deploy.Application{
			ID: app.ID, Name: app.Name, Kind: app.Kind, Git: app.Git, Provider: app.Provider, Labels: app.Labels, Disabled: app.Disabled, UpdatedAt: app.UpdatedAt,
		},
		status: deploy.StateOf(known), sync: app.ShownSync().Status, health: known.Health, running: app.LastSuccessful,
	}
	e.text = searchText(known, e.status.Reason)
	if d := known.Last; d != nil {
		e.last = &deploy.Deployment{
			ID: d.ID, Status: d.Status, StatusReason: cut(d.StatusReason, maxEntryValue), Trigger: deploy.Trigger{Kind: d.Trigger.Kind, Commit: d.Trigger.Commit, Commander: d.Trigger.Commander},
			CreatedAt: d.CreatedAt, CompletedAt: d.CompletedAt,
		}
		e.last.Trigger.Commit.Message = cut(d.Trigger.Commit.Message, maxEntryValue)
	}
	if r := app.LastSuccessful; r != nil {
		e.running = &deploy.DeploymentRef{Trigger: deploy.Trigger{Commit: deploy.Commit{Hash: r.Trigger.Commit.Hash}}, Versions: r.Versions}
	}
	return e
}

// searchText returns the text in which words are searched. Line breaks separate its parts, so
// that no word matches across two of them.
func searchText(known deploy.Situation, reason string) string {
	app := known.App
	parts := []string{app.Name, app.Git.RepoID + "/" + app.Git.ConfigPath(), app.Provider}
	if r := app.LastSuccessful; r != nil {
		parts = append(parts, r.Trigger.Commit.Hash)
		for _, version := range r.Versions {
			parts = append(parts, version.Name+":"+version.Version)
		}
	}
	if d := known.Last; d != nil {
		parts = append(parts, d.Trigger.Commit.Hash)
	}
	parts = append(parts, reason)
	for _, name := range slices.Sorted(maps.Keys(app.Labels)) {
		parts = append(parts, name+":"+app.Labels[name])
	}
	return strings.ToLower(cut(strings.Join(append(parts, app.Description), "\n"), maxEntryText))
}

// cut shortens s to at most n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}
