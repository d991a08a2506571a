-- Whether the agent that has the database shares its work with its standbys, and the row that
-- starts of deployments lock to count what runs.

-- +goose Up
ALTER TABLE store_owner ADD COLUMN shares BIGINT NOT NULL DEFAULT 0;
INSERT INTO counters (name, value) VALUES ('starts', 0);
