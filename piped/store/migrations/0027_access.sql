-- Lists and API keys can be restricted to a set of applications: by label, name and repository.
-- What callers change or are denied is recorded.

-- +goose Up
ALTER TABLE api_keys ADD COLUMN restriction TEXT NOT NULL DEFAULT '';

CREATE TABLE audit_records (
    id             BIGINT  NOT NULL PRIMARY KEY,
    at             BIGINT  NOT NULL,
    subject        TEXT    NOT NULL,
    method         TEXT    NOT NULL,
    application_id TEXT    NOT NULL,
    code           TEXT    NOT NULL,
    body           TEXT    NOT NULL
);
CREATE INDEX audit_records_at ON audit_records (at DESC, id DESC);
CREATE INDEX audit_records_subject ON audit_records (subject, at DESC, id DESC);
CREATE INDEX audit_records_method ON audit_records (method, at DESC, id DESC);
CREATE INDEX audit_records_application ON audit_records (application_id, at DESC, id DESC);
CREATE INDEX audit_records_code ON audit_records (code, at DESC, id DESC);

INSERT INTO counters (name, value) VALUES ('audit', 0);

DROP INDEX applications_name;
CREATE INDEX applications_name ON applications (name, repo_id, id);
CREATE INDEX application_labels_value ON application_labels (name, value, application_id);
CREATE INDEX drift_reports_ended ON drift_reports (ended_at);
