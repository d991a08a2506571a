-- What was registered to be written into Git, and what became of it.

-- +goose Up
CREATE TABLE registered_events (
    id          TEXT   PRIMARY KEY,
    event_key   TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    body        TEXT   NOT NULL,
    status      TEXT   NOT NULL,
    description TEXT   NOT NULL DEFAULT '',
    handlings   TEXT   NOT NULL DEFAULT '',
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    handled_at  BIGINT NOT NULL DEFAULT 0,
    UNIQUE (event_key, created_at)
);
CREATE INDEX registered_events_created ON registered_events (created_at, id);
CREATE INDEX registered_events_open ON registered_events (created_at) WHERE status = 'NOT_HANDLED';

CREATE TABLE registered_event_labels (
    event_id TEXT NOT NULL REFERENCES registered_events (id) ON DELETE CASCADE,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (event_id, name)
);
