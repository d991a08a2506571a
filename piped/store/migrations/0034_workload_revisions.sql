-- Of the clusters in which the rollouts of all workloads are recorded: since when, in which
-- namespaces, and up to which revision of each workload.

-- +goose Up
CREATE TABLE watched_clusters (
    cluster    TEXT   NOT NULL PRIMARY KEY,
    namespaces TEXT   NOT NULL,
    since      BIGINT NOT NULL
);
CREATE TABLE workload_revisions (
    cluster  TEXT   NOT NULL,
    workload TEXT   NOT NULL,
    uid      TEXT   NOT NULL,
    revision BIGINT NOT NULL,
    images   TEXT   NOT NULL,
    PRIMARY KEY (cluster, workload)
);
