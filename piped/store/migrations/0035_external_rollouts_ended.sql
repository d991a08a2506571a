-- By which retention finds old rollouts that no deployment began. The first column, always NULL, has
-- SQLite prefer it to rollouts_deployment.

-- +goose Up
CREATE INDEX rollouts_external_ended ON rollouts (deployment_id, completed_at) WHERE deployment_id IS NULL AND terminal = TRUE;
