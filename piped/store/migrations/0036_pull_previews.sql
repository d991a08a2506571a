-- Of each open pull request with a preview: what the preview is like, and what users decided
-- about it. The head is the commit that both are about.

-- +goose Up
CREATE TABLE pull_previews (
    repo_id        TEXT   NOT NULL,
    number         BIGINT NOT NULL,
    head           TEXT   NOT NULL,
    body           TEXT   NOT NULL,
    extended_until BIGINT NOT NULL DEFAULT 0,
    dismissed      TEXT   NOT NULL DEFAULT '',
    dismissed_by   TEXT   NOT NULL DEFAULT '',
    updated_at     BIGINT NOT NULL,
    PRIMARY KEY (repo_id, number)
);
