-- What tells whether an applied object was changed since: the mark of its last
-- version that was as applied, and a digest of the values of the fields that are
-- ours. Rows that were written before have none.

-- +goose Up
ALTER TABLE inventory ADD COLUMN mark TEXT NOT NULL DEFAULT '';
ALTER TABLE inventory ADD COLUMN values_digest TEXT NOT NULL DEFAULT '';
