-- Workflow files are accepted by a digest that says nothing of the lists they name: data that somebody else changes needs nobody's release (design 5.22).

alter table workflow add column files bytea;
update workflow set files = digest;
alter table workflow alter column files set not null;
alter table branch add column accepted_files bytea;
update branch b set accepted_files = w.digest from workflow w where w.id = b.accepted_workflow_id;
alter table branch drop column accepted_workflow_id;
