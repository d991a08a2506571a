-- How applications were registered by request, and what was said of the agent.

-- +goose Up
ALTER TABLE applications ADD COLUMN registration TEXT NOT NULL DEFAULT '';

-- One row at most.
CREATE TABLE agent (
    id          BIGINT  NOT NULL PRIMARY KEY CHECK (id = 1),
    name        TEXT    NOT NULL,
    description TEXT    NOT NULL,
    disabled    BOOLEAN NOT NULL,
    created_at  BIGINT  NOT NULL,
    updated_at  BIGINT  NOT NULL
);
