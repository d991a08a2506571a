-- A store has a random ID, by which agents of different stores know one another. A restore
-- leaves it out.

-- +goose Up
CREATE TABLE store_identity (
    position BIGINT NOT NULL PRIMARY KEY,
    id       TEXT   NOT NULL
);
