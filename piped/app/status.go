package app

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/observe/capabilities"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/trigger"
)

// agentStatus collects the state of all components. It implements control.Status.
type agentStatus struct {
	version, commit string
	started         time.Time

	store   *store.Store
	phases  phases
	serves  *capabilities.Reader
	live    *live
	courier *notify.Courier
	disk    *writable
}

// State returns the last known state of the components.
func (s agentStatus) State(ctx context.Context) deploy.AgentState {
	out := deploy.AgentState{
		Name: *s.live.name.Load(), Version: s.version, BuildCommit: s.commit, GoVersion: runtime.Version(), StartedAt: s.started, Store: s.store.State(ctx),
	}
	out.ConfigLoadedAt, out.ConfigError = s.live.configuration.get()
	applications, err := s.store.ApplicationsIn(ctx)
	syncStates, syncErr := s.store.SyncStates(ctx)
	pending, commands, waitingErr := s.store.Waiting(ctx)
	record, recordErr := s.store.Agent(ctx)
	receivers, receiversErr := s.courier.Status(ctx)
	out.Name, out.Disabled = cmp.Or(record.Name, out.Name), record.Disabled
	if err = cmp.Or(err, syncErr, waitingErr, recordErr, receiversErr); err != nil && out.Store.Error == "" {
		out.Store.Error = err.Error()
	}
	if problem := s.disk.Problem(); problem != nil && out.Store.Error == "" {
		out.Store.Error = errorText(problem)
	}
	busy, limit := s.phases.planner.Busy()
	out.Queues = append([]deploy.QueueState{
		{Name: "commands", Waiting: commands.Count, OldestWaiting: commands.Since},
		{Name: "planner", Waiting: pending.Count, Active: busy, Limit: limit, OldestWaiting: pending.Since},
	}, s.phases.scheduler.Queues()...)
	out.Repositories = s.live.repositories.states(applications, s.live.follower)
	out.SyncStates, out.Receivers = syncStates, receivers
	out.Scripts = s.phases.scripts.State()
	out.Clusters = s.live.clusters.states(s.serves.Versions())
	return out
}

// followedBy says which repositories are watched here, and what the last pass has met; *follower implements
// it.
type followedBy interface {
	Watches(repoID string) bool
	Problem(repoID string) *trigger.Problem
}

// states returns the states of the configured repositories; applications counts by repository
// ID. The problem of the last pass counts if the repository itself has none. What is known of a mirror is
// old where another replica watches the repository, and is omitted.
func (r *repositories) states(applications map[string]int, by followedBy) []deploy.RepositoryState {
	r.mu.Lock()
	configured := r.configured
	r.mu.Unlock()
	var out []deploy.RepositoryState
	for _, c := range configured {
		state := deploy.RepositoryState{
			ID: c.config.RepoID, Remote: git.ShownRemote(c.config.Remote), Branch: c.config.Branch, Applications: applications[c.config.RepoID],
		}
		if c.mirror != nil && by.Watches(c.config.RepoID) {
			known := c.mirror.State()
			state.Head, state.CheckedAt, state.FetchedAt, state.FailingSince = known.Head, known.CheckedAt, known.FetchedAt, known.FailingSince
			state.Error = errorText(known.Err)
		}
		if c.problem != nil {
			state.Error = errorText(c.problem)
		}
		if p := by.Problem(c.config.RepoID); p != nil && state.Error == "" {
			state.Error, state.FailingSince = errorText(p.Err), p.Since
		}
		out = append(out, state)
	}
	return out
}

// states returns the states of the configured clusters, by name; versions are the last known
// ones.
func (c *clusters) states(versions map[string]string) []deploy.ClusterState {
	c.mu.Lock()
	configured := maps.Clone(c.configured)
	c.mu.Unlock()
	var out []deploy.ClusterState
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		conn := configured[name]
		state := deploy.ClusterState{Name: name, Version: versions[name], Error: errorText(conn.problem), FailingSince: conn.problemSince}
		if conn.problem == nil {
			contact := conn.cluster.Contact()
			state.Reachable, state.Error, state.FailingSince = contact.Answered, errorText(contact.Err), contact.FailingSince
			state.WatchedKinds, state.WatchedObjects = conn.controller.Watched()
			if state.Reachable { // otherwise all of them fail
				state.WatchProblems = conn.members.Problems()
			}
			if err := conn.refused(); err != nil {
				state.Error = errorText(err)
			}
		}
		out = append(out, state)
	}
	return out
}

// errorText returns the text of an error, "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// configuration records when the configuration in effect was loaded, and why a newer one was
// rejected. It is safe for concurrent use.
type configuration struct {
	mu      sync.Mutex
	loaded  time.Time
	refused string
}

func (c *configuration) load(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded, c.refused = at, ""
}

func (c *configuration) refuse(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = why.Error()
}

func (c *configuration) get() (loaded time.Time, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded, c.refused
}
