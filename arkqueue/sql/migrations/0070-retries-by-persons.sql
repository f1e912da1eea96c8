-- How often persons retried a task is counted with it, and starts with what the audit log has.
alter table task add column retries int not null default 0;
update task t set retries = d.retries
from (select task_id, count(*) as retries from deed where verb = 'retry' and task_id is not null group by task_id) d
where t.id = d.task_id;
