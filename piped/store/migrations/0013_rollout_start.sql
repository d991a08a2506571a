-- Rollouts are listed by when they began. One that no deployment began was
-- recorded later than that, but earlier records do not tell by how much.

-- +goose Up
ALTER TABLE rollouts ADD COLUMN started_at BIGINT NOT NULL DEFAULT 0;
UPDATE rollouts SET started_at = created_at;
DROP INDEX rollouts_application;
CREATE INDEX rollouts_application ON rollouts (application_id, started_at DESC, id);
CREATE INDEX rollouts_started ON rollouts (started_at DESC, id);
