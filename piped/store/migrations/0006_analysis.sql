-- What analyses have seen, and when the last one that was passed began.

-- +goose Up
CREATE TABLE analysis_samples (
    deployment_id  TEXT    NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    stage_id       TEXT    NOT NULL,
    check_id       TEXT    NOT NULL,
    position       BIGINT  NOT NULL,
    application_id TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    verdict        TEXT    NOT NULL,
    counted        BOOLEAN NOT NULL,
    body           TEXT    NOT NULL,
    at             BIGINT  NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, check_id, position)
);
CREATE INDEX analysis_samples_application ON analysis_samples (application_id, at);

-- No foreign key to the deployment: the time outlives it.
CREATE TABLE analyses_passed (
    application_id TEXT   NOT NULL REFERENCES applications (id) ON DELETE CASCADE,
    analysis       TEXT   NOT NULL,
    deployment_id  TEXT   NOT NULL,
    started_at     BIGINT NOT NULL,
    PRIMARY KEY (application_id, analysis)
);
