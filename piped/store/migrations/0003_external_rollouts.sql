-- Rollouts that no deployment of the agent began have no deployment. They end
-- with their workload's newer ones (see SaveRollout), not with a deployment.

-- +goose Up
CREATE TABLE new_rollouts (
    id             TEXT    NOT NULL PRIMARY KEY,
    application_id TEXT    NOT NULL,
    deployment_id  TEXT    REFERENCES deployments (id) ON DELETE CASCADE,
    stage_id       TEXT    NOT NULL,
    cluster        TEXT    NOT NULL,
    workload       TEXT    NOT NULL,
    phase          TEXT    NOT NULL,
    terminal       BOOLEAN NOT NULL,
    body           TEXT    NOT NULL,
    version        BIGINT  NOT NULL,
    created_at     BIGINT  NOT NULL,
    updated_at     BIGINT  NOT NULL,
    completed_at   BIGINT  NOT NULL DEFAULT 0
);
INSERT INTO new_rollouts SELECT id, application_id, deployment_id, stage_id, cluster, workload, phase, terminal, body, version,
    created_at, updated_at, completed_at FROM rollouts;
DROP TABLE rollouts;
ALTER TABLE new_rollouts RENAME TO rollouts;
CREATE INDEX rollouts_deployment ON rollouts (deployment_id, stage_id);
CREATE INDEX rollouts_application ON rollouts (application_id, created_at DESC, id);
CREATE INDEX rollouts_open ON rollouts (created_at, id) WHERE terminal = FALSE;
CREATE INDEX rollouts_workload ON rollouts (cluster, workload, created_at DESC, id);
