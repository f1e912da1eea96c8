-- Tasks and attempts say of what kind they are; so far the names COMMIT, REPORT and PREV:* said it.
create type task_kind as enum ('commit', 'report', 'gate', 'ordinary');
create type attempt_kind as enum ('run');

alter table task add column kind task_kind not null default 'ordinary', add column program boolean not null default true;
update task set program = false,
    kind = case when name = 'COMMIT' then 'commit' when name = 'REPORT' then 'report' when name like 'PREV:%' then 'gate'
                else 'ordinary' end::task_kind
where gate;
alter table task alter column kind drop default, alter column program drop default, drop column gate;
create index task_commit on task (branch_id, number) where kind = 'commit' and settled_at is null;

delete from task_name where name in ('COMMIT', 'REPORT');

alter table attempt add column kind attempt_kind not null default 'run',
    drop constraint attempt_task_id_number_key, add unique (task_id, kind, number);
