-- Archives take turns at claims: what is ready is ordered by pool, archive, priority, ledger entry, run and position, and tickets go.
-- `completion` keeps where each task completed, so that BASE need not be looked for in the history.

alter table archive add column pool text not null generated always as (
    case when settings->>'image' is not null or (settings->>'process')::boolean is not true then 'container' else 'process' end) stored;
alter table definition add column pool text generated always as (case when body->>'image' is not null then 'container' end) stored;

alter table task add column pool text, add column priority int not null default 50, add column entry_id bigint;
update task t set pool = coalesce(d.pool, a.pool), entry_id = run.revision_id
from run, archive a, definition d
where t.state = 'ready' and run.id = t.run_id and a.id = t.archive_id and d.id = t.definition_id;

drop index task_ready;
create index task_ready on task (pool, archive_id, priority, entry_id, run, position) where state = 'ready';
alter table task drop column ticket;
alter table archive drop column last_ticket;
drop sequence turn;
drop function is_wanted(bigint, bigint, boolean);
drop function runs_in_container(jsonb, jsonb);

create table ready_archive (
    archive_id  bigint primary key,
    pools       text[] not null
);
insert into ready_archive select archive_id, array_agg(distinct pool) from task where state = 'ready' group by archive_id;

create table completion (
    branch_id   bigint not null,
    name        text not null,
    item        text not null default '',
    revision_id bigint not null,
    run         int not null,
    highest_number bigint not null,
    highest_run int not null,
    primary key (branch_id, name, item)
) with (fillfactor = 50);
insert into completion (branch_id, name, item, revision_id, run, highest_number, highest_run)
select distinct on (t.branch_id, t.name, t.item) t.branch_id, t.name, t.item, run.revision_id, t.run,
       first_value(t.number) over highest, first_value(t.run) over highest
from task t join run on run.id = t.run_id
where t.state = 'completed' and t.attempt_id is not null
window highest as (partition by t.branch_id, t.name, t.item order by t.number desc, t.run desc)
order by t.branch_id, t.name, t.item, t.settled_at desc, t.number desc, t.run desc;
