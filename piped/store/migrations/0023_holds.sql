-- An application can be held at a commit: JSON, '' while it is not.

-- +goose Up
ALTER TABLE applications ADD COLUMN hold TEXT NOT NULL DEFAULT '';
CREATE INDEX applications_held ON applications (id) WHERE hold <> '';
