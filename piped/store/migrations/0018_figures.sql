-- Delivery figures are read from two indices and nothing else: of all deployments that
-- ended in a range, and of those of some applications, which find the success after a
-- failure, too. When a commit was made is known of deployments from now on, and 0 of
-- those that no new commit triggered.
--
-- An application of which was told that it is degraded has a row for as long as
-- nothing else was told.

-- +goose Up
ALTER TABLE deployments ADD COLUMN committed_at BIGINT NOT NULL DEFAULT 0;
DROP INDEX deployments_completed;
CREATE INDEX deployments_completed ON deployments (completed_at, id, status, application_id, committed_at) WHERE completed_at > 0;
CREATE INDEX deployments_ended ON deployments (application_id, completed_at, status, committed_at) WHERE completed_at > 0;

CREATE TABLE degraded_applications (
    application_id TEXT   NOT NULL PRIMARY KEY REFERENCES applications (id) ON DELETE CASCADE,
    reason         TEXT   NOT NULL,
    told_at        BIGINT NOT NULL
);
