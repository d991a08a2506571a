-- One schema for SQLite and PostgreSQL. Times are unix milliseconds (0: none),
-- texts called spec, origin, state or body are JSON: carried, never queried.

-- +goose Up
CREATE TABLE counters (
    name  TEXT   NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('outbox', 0);

CREATE TABLE applications (
    id                 TEXT    NOT NULL PRIMARY KEY,
    name               TEXT    NOT NULL,
    kind               TEXT    NOT NULL,
    repo_id            TEXT    NOT NULL,
    spec               TEXT    NOT NULL,
    disabled           BOOLEAN NOT NULL DEFAULT FALSE,
    deleted            BOOLEAN NOT NULL DEFAULT FALSE,
    deleted_at         BIGINT  NOT NULL DEFAULT 0,
    sync_status        TEXT    NOT NULL,
    sync_state         TEXT    NOT NULL,
    evaluated_commit   TEXT    NOT NULL DEFAULT '',
    last_triggered     TEXT    NOT NULL DEFAULT '',
    last_successful    TEXT    NOT NULL DEFAULT '',
    last_successful_id TEXT    NOT NULL DEFAULT '',
    created_at         BIGINT  NOT NULL,
    updated_at         BIGINT  NOT NULL
);
CREATE INDEX applications_updated ON applications (updated_at DESC, id);
CREATE INDEX applications_name ON applications (name);
CREATE INDEX applications_repo ON applications (repo_id);

CREATE TABLE application_labels (
    application_id TEXT NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    name           TEXT NOT NULL,
    value          TEXT NOT NULL,
    PRIMARY KEY (application_id, name)
);

CREATE TABLE deployments (
    id               TEXT   NOT NULL PRIMARY KEY,
    application_id   TEXT   NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    application_name TEXT   NOT NULL,
    trigger_kind     TEXT   NOT NULL,
    commit_hash      TEXT   NOT NULL,
    chain_id         TEXT   NOT NULL,
    origin           TEXT   NOT NULL,
    status           TEXT   NOT NULL,
    state            TEXT   NOT NULL,
    revision         BIGINT NOT NULL,
    triggered_at     BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    completed_at     BIGINT NOT NULL DEFAULT 0
);
-- One active deployment per application, whoever writes.
CREATE UNIQUE INDEX deployments_one_active ON deployments (application_id)
    WHERE status IN ('PLANNED', 'RUNNING', 'ROLLING_BACK');
CREATE INDEX deployments_updated ON deployments (updated_at DESC, id);
CREATE INDEX deployments_application ON deployments (application_id, updated_at DESC, id);
CREATE INDEX deployments_application_name ON deployments (application_name, updated_at DESC, id);
CREATE INDEX deployments_status ON deployments (status, triggered_at, id);
CREATE INDEX deployments_chain ON deployments (chain_id) WHERE chain_id <> '';
CREATE INDEX deployments_completed ON deployments (completed_at) WHERE completed_at > 0;

CREATE TABLE deployment_labels (
    deployment_id TEXT NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    name          TEXT NOT NULL,
    value         TEXT NOT NULL,
    PRIMARY KEY (deployment_id, name)
);

CREATE TABLE stages (
    deployment_id TEXT    NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    id            TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    position      BIGINT  NOT NULL,
    spec          TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    started_at    BIGINT  NOT NULL DEFAULT 0,
    completed_at  BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (deployment_id, id)
);

CREATE TABLE transitions (
    deployment_id TEXT   NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    revision      BIGINT NOT NULL,
    position      BIGINT NOT NULL,
    stage_id      TEXT   NOT NULL,
    from_status   TEXT   NOT NULL,
    to_status     TEXT   NOT NULL,
    reason        TEXT   NOT NULL,
    at            BIGINT NOT NULL,
    PRIMARY KEY (deployment_id, revision, position)
);

CREATE TABLE commands (
    id             TEXT   NOT NULL PRIMARY KEY,
    type           TEXT   NOT NULL,
    application_id TEXT   NOT NULL,
    deployment_id  TEXT   NOT NULL,
    stage_id       TEXT   NOT NULL,
    body           TEXT   NOT NULL,
    status         TEXT   NOT NULL,
    metadata       TEXT   NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    handled_at     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX commands_open ON commands (created_at, id) WHERE status = 'NOT_HANDLED_YET';
CREATE INDEX commands_handled ON commands (handled_at) WHERE handled_at > 0;

CREATE TABLE stage_logs (
    deployment_id TEXT   NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    stage_id      TEXT   NOT NULL,
    position      BIGINT NOT NULL,
    severity      TEXT   NOT NULL,
    log           TEXT   NOT NULL,
    at            BIGINT NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, position)
);

CREATE TABLE inventory (
    application_id TEXT   NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    cluster        TEXT   NOT NULL,
    api_group      TEXT   NOT NULL,
    kind           TEXT   NOT NULL,
    namespace      TEXT   NOT NULL,
    name           TEXT   NOT NULL,
    version        TEXT   NOT NULL,
    variant        TEXT   NOT NULL,
    uid            TEXT   NOT NULL,
    desired_digest TEXT   NOT NULL,
    owned_hash     TEXT   NOT NULL,
    deployment_id  TEXT   NOT NULL,
    created_by     TEXT   NOT NULL,
    updated_at     BIGINT NOT NULL,
    PRIMARY KEY (application_id, cluster, api_group, kind, namespace, name)
);
CREATE INDEX inventory_object ON inventory (cluster, name, kind, namespace, api_group);

CREATE TABLE applied_sets (
    deployment_id  TEXT   NOT NULL PRIMARY KEY REFERENCES deployments (id) ON DELETE CASCADE,
    application_id TEXT   NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    commit_hash    TEXT   NOT NULL,
    sealed         BYTEA  NOT NULL,
    created_at     BIGINT NOT NULL
);
CREATE INDEX applied_sets_application ON applied_sets (application_id);

CREATE TABLE rollouts (
    id             TEXT    NOT NULL PRIMARY KEY,
    application_id TEXT    NOT NULL,
    deployment_id  TEXT    NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
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
CREATE INDEX rollouts_deployment ON rollouts (deployment_id, stage_id);
CREATE INDEX rollouts_application ON rollouts (application_id, created_at DESC, id);
CREATE INDEX rollouts_open ON rollouts (created_at, id) WHERE terminal = FALSE;

CREATE TABLE api_keys (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    hash       BYTEA   NOT NULL,
    disabled   BOOLEAN NOT NULL DEFAULT FALSE,
    created_at BIGINT  NOT NULL
);

-- No foreign keys: what was announced outlives what it was about.
CREATE TABLE outbox (
    seq            BIGINT NOT NULL PRIMARY KEY,
    event_key      TEXT   NOT NULL UNIQUE,
    type           TEXT   NOT NULL,
    application_id TEXT   NOT NULL,
    deployment_id  TEXT   NOT NULL,
    stage_id       TEXT   NOT NULL,
    payload        TEXT   NOT NULL,
    at             BIGINT NOT NULL,
    delivered_at   BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX outbox_undelivered ON outbox (seq) WHERE delivered_at = 0;
CREATE INDEX outbox_delivered ON outbox (delivered_at) WHERE delivered_at > 0;
