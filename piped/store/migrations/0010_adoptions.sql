-- Live objects that an application takes over only if a person permits it.

-- +goose Up
CREATE TABLE adoptions (
    application_id TEXT    NOT NULL PRIMARY KEY REFERENCES applications (id) ON DELETE CASCADE,
    token          TEXT    NOT NULL,
    accepted       BOOLEAN NOT NULL DEFAULT FALSE,
    body           TEXT    NOT NULL,
    since          BIGINT  NOT NULL
);
