-- Periods in which an application differs from Git: the present one has no end.

-- +goose Up
CREATE TABLE drift_reports (
    id             TEXT   NOT NULL PRIMARY KEY,
    application_id TEXT   NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    body           TEXT   NOT NULL,
    began_at       BIGINT NOT NULL,
    ended_at       BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX drift_reports_present ON drift_reports (application_id) WHERE ended_at = 0;
CREATE INDEX drift_reports_application ON drift_reports (application_id, began_at DESC, id);
CREATE INDEX drift_reports_began ON drift_reports (began_at DESC, id);
