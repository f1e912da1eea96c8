-- `PREV:*` on COMMIT waits for commit runs alone (design 5.7): which names they have.

alter table task_name add column commits boolean not null default true;
update task_name n set commits = exists (select from task t where t.branch_id = n.branch_id and t.name = n.name and t.run = 1);
alter table task_name alter column commits drop default;
