package store

import (
	"context"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// WatchedCluster says since when the rollouts of all workloads of a cluster are recorded.
type WatchedCluster struct {
	Cluster    string
	Namespaces string    // the watched ones, as configured
	Since      time.Time // by the cluster's clock
}

// WatchedCluster returns the record of a watched cluster and the revisions of its workloads,
// by the key of the workload. NotFound if the cluster was never watched.
func (s *Store) WatchedCluster(ctx context.Context, cluster string) (WatchedCluster, map[string]deploy.WorkloadRevision, error) {
	w, ok, err := one(ctx, s, scanWatchedCluster, "SELECT cluster, namespaces, since FROM watched_clusters WHERE cluster = ?", cluster)
	if err == nil && !ok {
		err = deploy.Errorf(deploy.NotFound, "cluster %s was never watched as a whole", cluster)
	}
	if err != nil {
		return w, nil, s.fail(err, "read since when cluster "+cluster+" is watched")
	}
	rows, err := all(ctx, s, scanWorkloadRevision, "SELECT cluster, workload, uid, revision, images FROM workload_revisions WHERE cluster = ?", cluster)
	revisions := make(map[string]deploy.WorkloadRevision, len(rows))
	for _, r := range rows {
		revisions[r.Workload] = r
	}
	return w, revisions, s.fail(err, "list the revisions of the workloads of cluster "+cluster)
}

func scanWatchedCluster(row scanner) (w WatchedCluster, err error) {
	var since int64
	err = row.Scan(&w.Cluster, &w.Namespaces, &since)
	w.Since = fromMilli(since)
	return w, err
}

func scanWorkloadRevision(row scanner) (r deploy.WorkloadRevision, err error) {
	return r, row.Scan(&r.Cluster, &r.Workload, &r.UID, &r.Revision, &r.Images)
}

// WatchCluster records that a cluster is watched, with the present revisions of its
// workloads, in one transaction. It replaces what was recorded of the cluster before.
func (s *Store) WatchCluster(ctx context.Context, w WatchedCluster, revisions []deploy.WorkloadRevision) error {
	err := s.write(ctx, func(t *tx) error {
		for _, table := range []string{"watched_clusters", "workload_revisions"} {
			if _, err := t.exec(ctx, "DELETE FROM "+table+" WHERE cluster = ?", w.Cluster); err != nil {
				return err
			}
		}
		if _, err := t.exec(ctx, "INSERT INTO watched_clusters (cluster, namespaces, since) VALUES (?, ?, ?)", w.Cluster, w.Namespaces, toMilli(w.Since)); err != nil {
			return err
		}
		rows := make([][]any, len(revisions))
		for i, r := range revisions {
			rows[i] = []any{w.Cluster, r.Workload, r.UID, r.Revision, r.Images}
		}
		return t.insert(ctx, "workload_revisions", "cluster, workload, uid, revision, images", "", rows)
	})
	return s.fail(err, "record that cluster "+w.Cluster+" is watched")
}

// SaveWorkloadRevision records the newest revision of a workload.
func (s *Store) SaveWorkloadRevision(ctx context.Context, r deploy.WorkloadRevision) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO workload_revisions (cluster, workload, uid, revision, images) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (cluster, workload) DO UPDATE SET uid = excluded.uid, revision = excluded.revision, images = excluded.images`,
			r.Cluster, r.Workload, r.UID, r.Revision, r.Images)
		return err
	})
	return s.fail(err, "record the revision of workload "+r.Workload)
}

// ForgetClusters deletes what is recorded of the workloads of clusters other than some.
func (s *Store) ForgetClusters(ctx context.Context, except []string) error {
	err := s.write(ctx, func(t *tx) error {
		others, args := "", make([]any, len(except))
		if len(except) > 0 {
			others = " WHERE cluster NOT IN (?" + strings.Repeat(", ?", len(except)-1) + ")"
		}
		for i, name := range except {
			args[i] = name
		}
		for _, table := range []string{"watched_clusters", "workload_revisions"} {
			if _, err := t.exec(ctx, "DELETE FROM "+table+others, args...); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(err, "delete the revisions of the workloads of removed clusters")
}

// ForgetWorkload deletes the revision of a workload that no longer exists.
func (s *Store) ForgetWorkload(ctx context.Context, cluster, workload string) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "DELETE FROM workload_revisions WHERE cluster = ? AND workload = ?", cluster, workload)
		return err
	})
	return s.fail(err, "delete the revision of workload "+workload)
}
