-- Where a task may run (design 5.26, `runs_on`): the pool of a task names the labels that it wants of a task manager.

alter table definition add column labels text not null generated always as (
    case when body ? 'runs_on' then ' ' || translate((body->'runs_on')::text, '[]" ', '') else '' end) stored;
alter table task_manager add column labels text[] not null default '{}';
