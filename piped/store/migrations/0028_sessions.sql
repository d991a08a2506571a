-- Users sign in. A session ends when its API key or its user is disabled. refresh and payload
-- are encrypted. sign_in in counters is the row that sign-ins lock, so that none is concurrent
-- with the disabling of its user.

-- +goose Up
CREATE TABLE sessions (
    id           TEXT   NOT NULL PRIMARY KEY,
    hash         BYTEA  NOT NULL UNIQUE,
    issuer       TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    key_id       TEXT   NOT NULL,
    body         TEXT   NOT NULL,
    refresh      BYTEA  NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    groups_at    BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX sessions_created ON sessions (created_at DESC, id);
CREATE INDEX sessions_user ON sessions (subject, created_at DESC, id);
CREATE INDEX sessions_key ON sessions (key_id) WHERE key_id <> '';
CREATE INDEX sessions_ended ON sessions (ended_at) WHERE ended_at > 0;
CREATE INDEX sessions_expires ON sessions (expires_at);

CREATE TABLE disabled_users (
    issuer      TEXT   NOT NULL,
    subject     TEXT   NOT NULL,
    disabled_by TEXT   NOT NULL,
    disabled_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);

CREATE TABLE sign_in_states (
    hash       BYTEA  NOT NULL PRIMARY KEY,
    payload    BYTEA  NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sign_in_states_created ON sign_in_states (created_at DESC, hash);
CREATE INDEX sign_in_states_expires ON sign_in_states (expires_at);

INSERT INTO counters (name, value) VALUES ('sign_in', 0);
