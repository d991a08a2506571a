-- Who has the database, for agents that stand by: the agent (the same for its replicas), the
-- process, the fingerprint of its key, and where it listens. Used on PostgreSQL.

-- +goose Up
ALTER TABLE store_owner ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE store_owner ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE store_owner ADD COLUMN key_fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE store_owner ADD COLUMN api_address TEXT NOT NULL DEFAULT '';
ALTER TABLE store_owner ADD COLUMN web_address TEXT NOT NULL DEFAULT '';
