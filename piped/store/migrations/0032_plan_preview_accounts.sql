-- The account that requested a plan preview. It is empty for the requests that earlier versions
-- stored, which are compared by their subject.

-- +goose Up
ALTER TABLE plan_preview_requests ADD COLUMN account TEXT NOT NULL DEFAULT '';
