-- Claims are unique for a cluster, whatever platform providers name it: cluster is the
-- identity of the cluster, provider the platform provider of the claim. Claims that were made
-- before have the provider's name as identity until the provider's next claim.

-- +goose Up
CREATE TABLE cluster_claims (
    cluster        TEXT NOT NULL,
    api_group      TEXT NOT NULL,
    kind           TEXT NOT NULL,
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    provider       TEXT NOT NULL,
    application_id TEXT NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    deployment_id  TEXT NOT NULL,
    PRIMARY KEY (cluster, api_group, kind, namespace, name)
);
INSERT INTO cluster_claims (cluster, api_group, kind, namespace, name, provider, application_id, deployment_id)
    SELECT cluster, api_group, kind, namespace, name, cluster, application_id, deployment_id FROM claims;
DROP TABLE claims;
ALTER TABLE cluster_claims RENAME TO claims;
CREATE INDEX claims_application ON claims (application_id, provider);
CREATE INDEX claims_provider ON claims (provider, cluster);
