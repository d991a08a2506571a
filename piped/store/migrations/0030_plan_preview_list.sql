-- A list of plan previews: what was requested, and what came of each application without the
-- differences. Plan previews that earlier versions requested are not listed.

-- +goose Up
CREATE TABLE plan_preview_requests (
    command_id   TEXT   NOT NULL PRIMARY KEY REFERENCES commands (id) ON DELETE CASCADE,
    repo_id      TEXT   NOT NULL,
    head_branch  TEXT   NOT NULL,
    pull_request BIGINT NOT NULL,
    commander    TEXT   NOT NULL,
    requested_at BIGINT NOT NULL
);
CREATE INDEX plan_preview_requests_at ON plan_preview_requests (requested_at);
ALTER TABLE plan_previews ADD COLUMN outline TEXT NOT NULL DEFAULT '';
