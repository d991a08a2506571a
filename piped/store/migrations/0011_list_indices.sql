-- +goose Up
-- The newest deployments of a status, and those with a label: neither list reads
-- the deployments that it leaves out.
CREATE INDEX deployments_status_updated ON deployments (status, updated_at DESC, id);
CREATE INDEX deployment_labels_value ON deployment_labels (name, value, deployment_id);
