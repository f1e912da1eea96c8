-- Whose workflow files are accepted (design 5.22, `workflow-authors`).

alter table branch add column accepted_workflow_id bigint;
alter table revision add column is_foreign boolean not null default false;
