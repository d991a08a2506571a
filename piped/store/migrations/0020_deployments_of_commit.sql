-- +goose Up

-- A pull request's comment lists what its commit led to.
CREATE INDEX deployments_commit ON deployments (commit_hash, updated_at DESC, id);
