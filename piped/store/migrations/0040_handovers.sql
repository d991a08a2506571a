-- When each partition was taken last, by the clock of the database, and how many were taken and how
-- much was refused because another replica had taken the work.

-- +goose Up
ALTER TABLE partitions ADD COLUMN taken_at BIGINT NOT NULL DEFAULT 0;
INSERT INTO counters (name, value) VALUES ('handovers', 0), ('fenced', 0);
