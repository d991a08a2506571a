-- Deployment chains, candidates, and what an application says the agent has
-- stopped doing for it.

-- +goose Up
ALTER TABLE applications ADD COLUMN notice TEXT NOT NULL DEFAULT '';
ALTER TABLE applications ADD COLUMN notice_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX applications_drifted ON applications (id) WHERE sync_status = 'OUT_OF_SYNC' OR notice <> '';

CREATE TABLE chains (
    id         TEXT   NOT NULL PRIMARY KEY,
    body       TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

-- All candidates of a repository are one row: they are replaced and listed together.
CREATE TABLE candidates (
    repo_id TEXT NOT NULL PRIMARY KEY,
    body    TEXT NOT NULL
);
