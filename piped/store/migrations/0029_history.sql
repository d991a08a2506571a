-- The history of a change: which events wrote a commit, which pull requests it belongs to, and
-- the checks of an analysis. Events that were handled by earlier versions are found from
-- the event, but not from the commit.

-- +goose Up
ALTER TABLE registered_events ADD COLUMN source_commit TEXT NOT NULL DEFAULT '';
CREATE INDEX registered_events_source ON registered_events (source_commit) WHERE source_commit <> '';

CREATE TABLE event_commits (
    event_id    TEXT NOT NULL REFERENCES registered_events (id) ON DELETE CASCADE,
    repo_id     TEXT NOT NULL,
    commit_hash TEXT NOT NULL,
    PRIMARY KEY (event_id, repo_id, commit_hash)
);
CREATE INDEX event_commits_commit ON event_commits (commit_hash, repo_id, event_id);

CREATE TABLE pull_request_commits (
    repo_id      TEXT   NOT NULL,
    pull_request BIGINT NOT NULL,
    commit_hash  TEXT   NOT NULL,
    link         TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (repo_id, pull_request, commit_hash)
);
CREATE INDEX pull_request_commits_commit ON pull_request_commits (commit_hash, repo_id);
CREATE INDEX pull_request_commits_at ON pull_request_commits (at);

CREATE TABLE analysis_checks (
    deployment_id TEXT   NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    stage_id      TEXT   NOT NULL,
    check_id      TEXT   NOT NULL,
    position      BIGINT NOT NULL,
    body          TEXT   NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, check_id)
);
