-- What is kept of the past has a limit. The logs of a deployment go before it, and once;
-- what was asked of it goes with it.

-- +goose Up
ALTER TABLE deployments ADD COLUMN logs_removed BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX deployments_logged ON deployments (completed_at) WHERE completed_at > 0 AND logs_removed = FALSE;
CREATE INDEX inventory_deployment ON inventory (deployment_id);
CREATE INDEX commands_deployment ON commands (deployment_id, handled_at) WHERE deployment_id <> '';
