package store

import (
	"context"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/jackc/pgx/v5"
)

// The work of an agent is shared if the agent that has the database, and those that stand by, are
// opened with Options.Share. A standby then works on the partitions that it holds, with a store of
// its own that is not exclusive. An agent that takes the database over and does not share ends all
// terms first, so that it works alone.

// boolean returns the number that the database stores for b.
func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// endTerms ends the work of all replicas. It waits for their writes in progress.
func endTerms(ctx context.Context, t pgx.Tx) error {
	if _, err := t.Exec(ctx, "DELETE FROM replicas"); err != nil {
		return err
	}
	_, err := t.Exec(ctx, "UPDATE partitions SET holder = '', term = term + 1")
	return err
}

// sharing is what the agent that has the database has stored about itself.
type sharing struct {
	agent, key, host string
	shares           int64
}

func scanSharing(row scanner) (v sharing, err error) {
	return v, row.Scan(&v.agent, &v.key, &v.host, &v.shares)
}

// checkShare returns an error unless the agent that has the database shares its work with this one.
// The lock on the row makes an agent that takes the database over wait until t has ended.
func (t *tx) checkShare(ctx context.Context) error {
	s := t.store
	active, found, err := one(ctx, t, scanSharing, "SELECT agent, key_fingerprint, host, shares FROM store_owner"+s.dialect.forShare())
	switch {
	case err != nil:
		return err
	case !found:
		return deploy.Errorf(deploy.Unavailable, "no agent works with %s yet", s.dialect.name())
	case active.agent != s.agent:
		return deploy.Errorf(deploy.Invalid, "%s belongs to the agent with projectID/pipedID %q, and this one is %q: give each agent a store.dsn of its own", s.dialect.name(), active.agent, s.agent)
	case active.key != s.keyPrint:
		return deploy.Errorf(deploy.Invalid, "%s is in use by a replica of this agent (%s) with another key: give all replicas the same store.keyFile", s.dialect.name(), active.host)
	case active.shares == 0:
		return deploy.Errorf(deploy.Invalid, "the replica that works with %s (%s) does not share its work: set store.replicas to share in the configuration of all replicas", s.dialect.name(), active.host)
	}
	return nil
}

// RequestPoll has the replica that watches a repository poll it now.
func (s *Store) RequestPoll(ctx context.Context, repoID string) error {
	err := s.write(ctx, func(t *tx) error {
		t.changed(deploy.TopicPoll, repoID, "")
		return nil
	})
	return s.fail(err, "request a poll of repository "+repoID)
}

// replicaStates returns the replicas that share the work, ordered by host. The one that has the
// database is among them, also before it has joined.
func (s *Store) replicaStates(ctx context.Context) (out []deploy.ReplicaState, err error) {
	err = s.readTogether(ctx, func(q querier) error {
		o, err := ownership(ctx, s.dialect, q)
		if err != nil {
			return err
		}
		taken, err := all(ctx, q, scanNumber, "SELECT taken_at FROM partitions ORDER BY id")
		if err != nil {
			return err
		}
		active, _, err := one(ctx, q, scanText, "SELECT host FROM store_owner")
		out = describe(o, taken, active)
		return err
	})
	return out, err
}

// describe returns the states of processes; taken is when each partition was taken last, and active
// the process that has the database. A process that has joined again may have two replicas until the
// first expires.
func describe(o deploy.Ownership, taken []int64, active string) []deploy.ReplicaState {
	states := map[string]*deploy.ReplicaState{active: {Host: active, Active: true}}
	holders := map[string]*deploy.ReplicaState{}
	for _, r := range o.Replicas {
		state := states[r.Host]
		if state == nil {
			state = &deploy.ReplicaState{Host: r.Host}
			states[r.Host] = state
		}
		state.Version, state.StartedAt, holders[r.ID] = r.Version, r.StartedAt, state
	}
	for i, t := range o.Terms {
		if state := holders[t.HeldBy]; state != nil {
			state.Partitions++
			if at := fromMilli(taken[i]); at.After(state.LastHandover) {
				state.LastHandover = at
			}
		}
	}
	var out []deploy.ReplicaState
	for _, host := range slices.Sorted(maps.Keys(states)) {
		out = append(out, *states[host])
	}
	return out
}

// StartDeployment is UpdateDeploymentFrom for a transition to RUNNING, with limits for what runs in
// all replicas: in total and on the platform provider of the deployment; 0 is no limit. It returns
// false, and changes nothing, if a limit is reached. Concurrent calls wait for one another.
func (s *Store) StartDeployment(ctx context.Context, known deploy.Deployment, total, onProvider int, fn func(*deploy.Deployment) error) (d deploy.Deployment, started bool, err error) {
	next, _, err := nextOf(known, fn)
	if err != nil {
		return d, false, s.fail(err, "start deployment "+known.ID)
	}
	next.UpdatedAt, next.Revision = s.now(), known.Revision+1
	err = s.write(ctx, func(t *tx) error {
		free, err := t.slotFree(ctx, known.Provider, total, onProvider)
		if started = free; err != nil || !free {
			return err
		}
		return t.compareAndSwap(ctx, &known, &next)
	})
	if err == errLostRace {
		err = deploy.Errorf(deploy.Conflict, "deployment %s was changed concurrently", known.ID)
	}
	return next, started && err == nil, s.fail(err, "start deployment "+known.ID)
}

// slotFree reports whether one more deployment may run on a platform provider. No other one starts
// until the end of the transaction.
func (t *tx) slotFree(ctx context.Context, provider string, total, onProvider int) (bool, error) {
	if total == 0 && onProvider == 0 {
		return true, nil
	}
	if _, err := t.exec(ctx, "UPDATE counters SET value = value + 1 WHERE name = 'starts'"); err != nil {
		return false, err
	}
	running, err := all(ctx, t, scanOrigin, "SELECT origin FROM deployments WHERE status IN (?, ?)", string(deploy.Running), string(deploy.RollingBack))
	if err != nil {
		return false, err
	}
	there := 0
	for _, o := range running {
		if o.Provider == provider {
			there++
		}
	}
	return (total == 0 || len(running) < total) && (onProvider == 0 || there < onProvider), nil
}

func scanOrigin(row scanner) (o origin, err error) {
	text, err := scanText(row)
	if err != nil {
		return o, err
	}
	return o, decode(text, &o)
}
