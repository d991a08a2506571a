-- What plan previews told, until it is too old to be asked for.

-- +goose Up
CREATE TABLE plan_previews (
    command_id TEXT   NOT NULL PRIMARY KEY REFERENCES commands (id) ON DELETE CASCADE,
    error      TEXT   NOT NULL,
    results    TEXT   NOT NULL,
    at         BIGINT NOT NULL
);
CREATE INDEX plan_previews_at ON plan_previews (at);
