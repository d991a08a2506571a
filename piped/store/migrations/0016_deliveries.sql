-- What the receivers of notifications are to be told: a row of the outbox becomes a
-- row for each receiver that wants it, in the transaction that marks it delivered. A
-- row goes when it was handed over; one that was given up stays for a while.

-- +goose Up
CREATE TABLE receivers (
    name  TEXT   NOT NULL PRIMARY KEY,
    since BIGINT NOT NULL -- the last event that is older than the receiver
);
CREATE TABLE deliveries (
    receiver    TEXT   NOT NULL REFERENCES receivers (name) ON DELETE CASCADE,
    seq         BIGINT NOT NULL REFERENCES outbox (seq),
    order_key   TEXT   NOT NULL,
    attempts    BIGINT NOT NULL DEFAULT 0,
    next_at     BIGINT NOT NULL,
    error       TEXT   NOT NULL DEFAULT '',
    created_at  BIGINT NOT NULL,
    given_up_at BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (seq, receiver)
);
CREATE INDEX deliveries_pending ON deliveries (receiver, seq) WHERE given_up_at = 0;
CREATE INDEX deliveries_order ON deliveries (receiver, order_key, seq) WHERE given_up_at = 0;
CREATE INDEX deliveries_next ON deliveries (receiver, next_at) WHERE given_up_at = 0;
CREATE INDEX deliveries_given_up ON deliveries (receiver, given_up_at DESC, seq DESC) WHERE given_up_at > 0;

-- What a receiver remembers, such as the thread that tells of a deployment.
CREATE TABLE receiver_notes (
    receiver   TEXT   NOT NULL REFERENCES receivers (name) ON DELETE CASCADE,
    note_key   TEXT   NOT NULL,
    value      TEXT   NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (receiver, note_key)
);
CREATE INDEX receiver_notes_updated ON receiver_notes (updated_at);
