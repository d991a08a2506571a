-- Scalings are recorded beside rollouts, and are listed apart from them.

-- +goose Up
ALTER TABLE rollouts ADD COLUMN kind TEXT NOT NULL DEFAULT 'ROLLOUT';
DROP INDEX rollouts_workload;
CREATE INDEX rollouts_workload ON rollouts (cluster, workload, kind, created_at DESC, id);
CREATE INDEX rollouts_kind ON rollouts (kind, started_at DESC, id);
