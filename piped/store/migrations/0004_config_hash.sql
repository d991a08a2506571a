-- What a workload's pods were configured with when it was applied last.

-- +goose Up
ALTER TABLE inventory ADD COLUMN config_hash TEXT NOT NULL DEFAULT '';
