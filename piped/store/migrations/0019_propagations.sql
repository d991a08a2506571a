-- What the pods of workloads have been told of their configuration. A row with a time
-- has something left to be done.

-- +goose Up
CREATE TABLE propagations (
    application_id TEXT    NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    cluster        TEXT    NOT NULL,
    workload       TEXT    NOT NULL,
    body           TEXT    NOT NULL,
    named          BOOLEAN NOT NULL,
    next_at        BIGINT  NOT NULL DEFAULT 0,
    version        BIGINT  NOT NULL,
    PRIMARY KEY (application_id, cluster, workload)
);
CREATE INDEX propagations_due ON propagations (cluster, next_at) WHERE next_at > 0;
CREATE INDEX propagations_named ON propagations (cluster) WHERE named = TRUE;
