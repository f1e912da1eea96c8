-- JSON Schemas for the payloads of submissions.

alter table workflow add column schema json;
