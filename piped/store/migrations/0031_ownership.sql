-- The replicas of the agent and the partitions of the work that they hold.

-- +goose Up
CREATE TABLE replicas (
    id         TEXT   NOT NULL PRIMARY KEY,
    host       TEXT   NOT NULL,
    version    TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL -- by the clock of the database
);

CREATE TABLE partitions (
    id     BIGINT NOT NULL PRIMARY KEY,
    holder TEXT   NOT NULL,
    term   BIGINT NOT NULL
);

INSERT INTO partitions (id, holder, term)
WITH RECURSIVE ids (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id < 63)
SELECT id, '', 0 FROM ids;
