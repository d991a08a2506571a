-- The fencing token of the agent that has the database: transactions of one that lost it
-- find another token, and fail. Used on PostgreSQL.

-- +goose Up
CREATE TABLE store_owner (
    position BIGINT NOT NULL PRIMARY KEY,
    token    TEXT   NOT NULL
);
