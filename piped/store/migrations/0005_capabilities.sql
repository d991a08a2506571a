-- What the clusters served when they were asked last: charts are rendered for it
-- without asking.

-- +goose Up
CREATE TABLE capabilities (
    provider     TEXT NOT NULL PRIMARY KEY,
    kube_version TEXT NOT NULL,
    api_versions TEXT NOT NULL
);
