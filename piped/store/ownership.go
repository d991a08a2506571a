package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Ownership of the partitions of the work. A replica is alive until its row expires by the
// clock of the database, and holds the partitions that name it. To take partitions of an
// expired replica means to delete its row first: that row is locked by a renewal in progress,
// so that one of both happens, never half of each. The rows of partitions change only when
// they change hands; each write of a holder locks them for reading (see fence).

// Join adds a replica. It is alive for the time in expiry, and holds nothing. In a store that was
// opened with Options.Share, the error is Invalid if the agent that has the database is another one,
// has another key or does not share its work, and Unavailable if none has it.
func (s *Store) Join(ctx context.Context, r deploy.Replica, expiry time.Duration) error {
	err := s.write(ctx, func(t *tx) error {
		if s.share {
			if err := t.checkShare(ctx); err != nil {
				return err
			}
		}
		_, err := t.exec(ctx, "INSERT INTO replicas (id, host, version, started_at, expires_at) VALUES (?, ?, ?, ?, "+s.dialect.clock()+" + ?)",
			r.ID, r.Host, r.Version, toMilli(r.StartedAt), expiry.Milliseconds())
		return err
	})
	return s.fail(err, "join as a replica")
}

// Renew lets a replica live for the time in expiry from now on, and returns who holds what.
// NotFound if it has expired: the replica holds nothing then, and must join under a new ID. Renew also
// stores how often something was refused since the last one because another replica had the work.
func (s *Store) Renew(ctx context.Context, id string, expiry time.Duration) (o deploy.Ownership, err error) {
	fenced := s.fenced.Load()
	err = s.write(ctx, func(t *tx) error {
		renewed, err := t.exec(ctx, "UPDATE replicas SET expires_at = "+s.dialect.clock()+" + ? WHERE id = ? AND expires_at > "+s.dialect.clock(), expiry.Milliseconds(), id)
		if err != nil {
			return err
		}
		if renewed == 0 {
			return deploy.Errorf(deploy.NotFound, "replica %s was not renewed in time", id)
		}
		if fenced > 0 {
			if err := t.count(ctx, "fenced", fenced); err != nil {
				return err
			}
		}
		o, err = ownership(ctx, s.dialect, t)
		return err
	})
	if err == nil {
		s.fenced.Add(-fenced)
	}
	return o, s.fail(err, "renew the replica")
}

// Ownership returns who holds what.
func (s *Store) Ownership(ctx context.Context) (o deploy.Ownership, err error) {
	err = s.readTogether(ctx, func(q querier) error {
		o, err = ownership(ctx, s.dialect, q)
		return err
	})
	return o, s.fail(err, "read who holds what")
}

func ownership(ctx context.Context, d dialect, q querier) (o deploy.Ownership, err error) {
	live, err := all(ctx, q, scanLive, "SELECT id, host, version, started_at, expires_at - "+d.clock()+" FROM replicas WHERE expires_at > "+d.clock()+" ORDER BY id")
	if err != nil {
		return o, err
	}
	for _, r := range live {
		o.Replicas = append(o.Replicas, r.Replica)
		if o.NextExpiry == 0 || r.left < o.NextExpiry {
			o.NextExpiry = r.left
		}
	}
	o.Terms, err = all(ctx, q, scanHeldTerm, "SELECT id, term, holder FROM partitions ORDER BY id")
	return o, err
}

// Take gives a replica those of the partitions that are free, each with a new term, and returns
// these terms. A partition is not free yet while a write of its last holder is in progress.
func (s *Store) Take(ctx context.Context, id string, wanted []deploy.Partition) (taken []deploy.Term, err error) {
	err = s.write(ctx, func(t *tx) error {
		taken = nil
		if err := t.removeExpired(ctx); err != nil {
			return err
		}
		free, err := all(ctx, t, scanTerm, "SELECT id, term FROM partitions WHERE holder NOT IN (SELECT id FROM replicas) AND id IN ("+
			placeholders(len(wanted))+") ORDER BY id"+s.dialect.skipLocked(), numbers(wanted)...)
		for _, term := range free {
			term.Number++
			if _, err := t.exec(ctx, "UPDATE partitions SET holder = ?, term = ?, taken_at = "+s.dialect.clock()+" WHERE id = ?", id, term.Number, int64(term.Partition)); err != nil {
				return err
			}
			taken = append(taken, term)
		}
		if err != nil || len(taken) == 0 {
			return err
		}
		return t.count(ctx, "handovers", int64(len(taken)))
	})
	return taken, s.fail(err, "take partitions")
}

// count adds to a number that State returns.
func (t *tx) count(ctx context.Context, name string, n int64) error {
	_, err := t.exec(ctx, "UPDATE counters SET value = value + ? WHERE name = ?", n, name)
	return err
}

// removeExpired removes the replicas that have expired, but for one whose renewal is in
// progress.
func (t *tx) removeExpired(ctx context.Context) error {
	d := t.store.dialect
	_, err := t.exec(ctx, "DELETE FROM replicas WHERE id IN (SELECT id FROM replicas WHERE expires_at <= "+d.clock()+d.skipLocked()+")")
	return err
}

// Release ends terms of a replica. Others learn of it by TopicOwnership. It waits for writes
// in progress, and does nothing for a term that is over.
func (s *Store) Release(ctx context.Context, id string, terms []deploy.Term) error {
	err := s.write(ctx, func(t *tx) error {
		for _, term := range terms {
			if _, err := t.exec(ctx, "UPDATE partitions SET holder = '' WHERE id = ? AND term = ? AND holder = ?", int64(term.Partition), term.Number, id); err != nil {
				return err
			}
		}
		t.changed(deploy.TopicOwnership, id, "")
		return nil
	})
	return s.fail(err, "release partitions")
}

// Leave removes a replica. Everything that it holds is free then.
func (s *Store) Leave(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		t.changed(deploy.TopicOwnership, id, "")
		_, err := t.exec(ctx, "DELETE FROM replicas WHERE id = ?", id)
		return err
	})
	return s.fail(err, "leave as a replica")
}

// liveReplica is a replica that has not expired, and how long it lives unless it is renewed.
type liveReplica struct {
	deploy.Replica
	left time.Duration
}

func scanLive(row scanner) (r liveReplica, err error) {
	var startedAt, left int64
	err = row.Scan(&r.ID, &r.Host, &r.Version, &startedAt, &left)
	r.StartedAt, r.left = fromMilli(startedAt), time.Duration(left)*time.Millisecond
	return r, err
}

func scanTerm(row scanner) (t deploy.Term, err error) {
	return t, row.Scan(&t.Partition, &t.Number)
}

func scanHeldTerm(row scanner) (t deploy.HeldTerm, err error) {
	return t, row.Scan(&t.Partition, &t.Number, &t.HeldBy)
}

func numbers(partitions []deploy.Partition) []any {
	out := make([]any, len(partitions))
	for i, p := range partitions {
		out[i] = int64(p)
	}
	return out
}
