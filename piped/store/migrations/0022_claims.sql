-- Which application may write an object, from before its first write on.

-- +goose Up
CREATE TABLE claims (
    cluster        TEXT NOT NULL,
    api_group      TEXT NOT NULL,
    kind           TEXT NOT NULL,
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    application_id TEXT NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    deployment_id  TEXT NOT NULL,
    PRIMARY KEY (cluster, api_group, kind, namespace, name)
);
CREATE INDEX claims_application ON claims (application_id, cluster);
