-- Who made a key and when it was used last. Names are unique among enabled keys,
-- so those that were given twice are told apart by the key's ID.

-- +goose Up
ALTER TABLE api_keys ADD COLUMN creator TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN updated_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT NOT NULL DEFAULT 0;
UPDATE api_keys SET updated_at = created_at;
UPDATE api_keys SET name = name || ' ' || id
    WHERE disabled = FALSE AND EXISTS (
        SELECT 1 FROM api_keys other WHERE other.name = api_keys.name AND other.disabled = FALSE AND other.id < api_keys.id);
CREATE UNIQUE INDEX api_keys_name ON api_keys (name) WHERE disabled = FALSE;
