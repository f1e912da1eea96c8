-- Purges of whole runs (design 5.27; decision 0001, point 27). Called by queue/purge.py and
-- queue/purge_batch.py, mostly inside a transaction that has locked the archive's row.
--
-- One transaction takes a run out of the graph, so readers see the run whole or not at all. The
-- tasks of a small run are deleted in this transaction. Those of a large run are deleted in further
-- transactions. Until then, `purging` names the run, and no plan, verb or view reads its tasks.
-- Attempts, logs, and the edges inside a large run may be many, and nobody can read them any more.
-- They are deleted afterwards, beside all other work; `purged_task` names their tasks. If a purge
-- is interrupted, the next one continues it.

-- name: sizes_of_runs
-- The number of tasks of some runs.
select t.run_id as run, count(*)::int as tasks from task t where t.run_id = any(%(runs)s) group by t.run_id;

-- name: to_purge
-- The number of tasks of some runs, and the obstacles to purging each run, the oldest run first.
-- `unsettled`: a task of the run is not settled, or supersedes other tasks in steps. `blocks`: a
-- canceled or skipped task of the run that still blocks later runs because of an earlier task.
-- `target`: a task of another run with an unmet edge from the run, that waits, blocks, or was
-- skipped because of this edge. `receiver`: an unsettled task that gets outputs of the run.
-- `skipped`: a task of another run that was skipped with a root in the run.
select run.id, run.number, run.run, a.name as archive, b.name as branch, b.main, t.tasks, t.unsettled, t.blocks,
       t.settled_at, run.deleted_at, t.waived, (select max(d.id) from deed d where d.run_id = run.id) as deed,
       x.target, x.receiver,
       (select min(w.id) from task s join task w on w.root_id = s.id and w.run_id <> s.run_id and w.run_id <> all(array(select run_id from purging)) where s.run_id = run.id) as skipped
from run join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id
cross join lateral (
    select count(*)::int as tasks, bool_or(t.settled_at is null) or exists (select from superseding s where s.run_id = run.id) as unsettled, min(t.id) filter (where t.blocks > 0 and exists (
        select from edge e where e.target = t.id and e.crossing and not e.met and e.kind not in ('cancels', 'exclusive'))) as blocks, max(t.settled_at) as settled_at,
           count(*) filter (where t.waived) as waived
    from task t where t.run_id = run.id offset 0) t
cross join lateral (
    select min(e.target) filter (where not e.met and (w.settled_at is null or w.blocks > 0 or e.product or e.failed)) as target,
           min(e.target) filter (where e.met and e.declared and w.settled_at is null and w.kind = 'ordinary') as receiver
    from task s cross join lateral (
        select e.target, e.product, e.failed, e.met, e.declared from edge e where e.source = s.id and e.crossing and e.kind <> 'cancels' offset 0) e
    join task w on w.id = e.target and w.run_id <> all(array(select run_id from purging))
    where s.run_id = run.id) x
where run.id = any(%(runs)s)
order by run.branch_id, run.number, run.run;

-- name: before_purge
-- The state of the archive before a large run is judged without a lock: `entry`, the last entry of
-- its audit log; `last`, its last run; and `planned`, a run of the branch that is still being
-- planned. The statement is repeated under the lock. If nothing has changed, the judgement is still
-- valid.
select run.archive_id as archive, (select max(d.id) from deed d where d.archive_id = run.archive_id and d.verb not in ('note', 'purge')) as entry,
       (select max(r.id) from run r where r.archive_id = run.archive_id) as last,
       (select min(p.run_id) from planning p where p.branch_id = run.branch_id and p.next < p.items and p.run_id <> run.id) as planned
from run where run.id = %(run)s;

-- name: waits_behind
-- A task, and, if it is canceled or skipped, the first unsettled task that waits behind it, through
-- tasks that are canceled or skipped, too. An ordinary task is preferred to a gate.
with recursive behind(id, is_settled) as (
    select id, settled_at is not null from task where id = %(task)s
    union
    select t.id, t.settled_at is not null
    from behind b join edge e on e.source = b.id and not e.met and e.kind <> 'cancels' join task t on t.id = e.target
    where b.is_settled and (t.settled_at is null or t.blocks > 0)
)
(select id, state, settled_at, blocks from task where id = %(task)s)
union all
(select t.id, t.state, t.settled_at, t.blocks from behind b join task t on t.id = b.id
 where not b.is_settled and b.id <> %(task)s order by t.kind <> 'ordinary', t.id limit 1);

-- name: changed_before_purge
-- A row if a large run has to be judged again, although a judgement without a lock found that it
-- may be purged. A task of the run has come back or blocks later runs, or a run that was planned
-- since then depends on it. `last`: the archive's last run before the judgement.
select from task t where t.run_id = %(run)s and t.settled_at is null
union all
select from task t where t.run_id = %(run)s and t.blocks > 0 and exists (
    select from edge e where e.target = t.id and e.crossing and not e.met and e.kind not in ('cancels', 'exclusive'))
union all
select from run r join task t on t.run_id = r.id join edge e on e.target = t.id and e.crossing join task s on s.id = e.source and s.run_id = %(run)s
where r.archive_id = %(archive)s and r.id > %(last)s
limit 1;

-- name: purged_meanwhile
-- The given runs that are purged by now, the oldest first, and who purged them.
select p.id, p.number, p.run, a.name as archive, b.name as branch, b.main, d.by
from purged_run p join branch b on b.id = p.branch_id join archive a on a.id = b.archive_id join deed d on d.id = p.deed_id
where p.id = any(%(runs)s) order by p.branch_id, p.number, p.run;

-- name: starts_in_runs
-- For each task of other runs that has let tasks of the given runs start: one of these tasks that
-- has started, or that has let tasks of further runs start (design 5.19), as in `started_after`.
-- `on_it`: the tasks that have started or have let others start, and the tasks of their runs that
-- have let these start.
with recursive own as materialized (
    select id, run_id, number, run, name, item, kind, attempts, program, state,
           not program and state = 'completed' as passed, state in ('canceled', 'skipped') and attempts = 0 as never_began
    from task where run_id = any(%(runs)s)
), into_them as materialized (
    select e.source, e.target from own t join edge e on e.target = t.id and e.crossing and e.met and e.kind <> 'cancels'
    where (select s.run_id from task s where s.id = e.source) <> all(%(runs)s)
), on_it(id) as (
    select t.id from own t
    where exists (select from into_them)
      and (t.attempts > 0
           or (t.passed or t.never_began)
              and (exists (select from purged_start p where p.task_id = t.id)
                   or exists (select from edge e where e.source = t.id and e.crossing and e.met and e.kind <> 'cancels')))
    union
    -- Each task is found by its id: a chain of gates may be long, and each of its rounds would read
    -- all of `own`.
    select g.id
    from on_it o
    cross join lateral (select t.state in ('canceled', 'skipped') and t.attempts = 0 as never_began from task t where t.id = o.id offset 0) t
    cross join lateral (select e.source, e.met from edge e where e.target = o.id and not e.crossing and e.kind <> 'cancels' offset 0) e
    cross join lateral (select g.id, g.program, g.state, g.attempts from task g where g.id = e.source offset 0) g
    where not g.program and g.state = 'completed' and e.met or g.state in ('canceled', 'skipped') and g.attempts = 0 and t.never_began
), begun as materialized (
    select distinct on (run_id) run_id, id from own where attempts > 0 order by run_id, id
)
select distinct on (i.source) i.source as task, s.number, s.run, s.name, s.item
from into_them i
-- Each task is found by its id: the planner does not know the number of tasks, and a join might
-- compare each with each.
cross join lateral (
    -- A gate means nothing to a person, so a task of its run that has started is preferred.
    select u.number, u.run, case when u.kind = 'ordinary' then u.name else 'COMMIT' end as name, u.item
    from task t join task u on u.id = case when t.kind = 'ordinary' then t.id else coalesce((select b.id from begun b where b.run_id = t.run_id), t.id) end
    where t.id = i.target offset 0) s
where (i.target in (select id from on_it)) is true
order by i.source, s.number, s.run, s.name, s.item;

-- name: remember_starts
-- Store these starts for tasks that still exist, unless a start is stored already.
insert into purged_start (task_id, number, run, name, item)
select s.* from unnest(%(tasks)s::bigint[], %(numbers)s::bigint[], %(runs)s::int[], %(names)s::text[], %(items)s::text[]) s(task, number, run, name, item)
where exists (select from task t where t.id = s.task)
on conflict do nothing;

-- name: purge_edges
-- Delete the edges between some tasks of runs and tasks of other runs. Unmet edges count as met:
-- they are counted off their targets in other runs. `inside`: also delete the edges inside the
-- runs; otherwise `delete_edges_of_purged` deletes them later. Returns these targets; `is_free`:
-- the target waits and has no unmet edge any more.
with gone as (
    delete from edge e where e.source = any(%(tasks)s) and (e.crossing or %(inside)s) returning e.target, e.kind, e.met
), into_them as (
    -- Edges inside the runs are found by their sources. Searching their targets in a list of all
    -- tasks would compare each with each.
    delete from edge e where e.target = any(%(tasks)s) and e.crossing
      and (select s.run_id from task s where s.id = e.source) <> all(%(runs)s)
)
update task t set unmet = t.unmet - c.n
from (select target, count(*)::int as n from gone where not met and kind <> 'cancels' group by target) c
where t.id = c.target and t.run_id <> all(%(runs)s)
returning t.id, t.unmet = 0 and t.state = 'waiting' as is_free;

-- name: purge_tasks
-- Delete some tasks, and store those whose attempts and logs are still to be deleted. `edges`: also
-- all others, because their edges are still to be deleted.
with gone as (
    delete from task where id = any(%(tasks)s) returning id, attempt_id
), starts as (
    delete from purged_start where task_id = any(%(tasks)s)
)
insert into purged_task select id from gone where attempt_id is not null or %(edges)s;

-- name: tasks_to_purge
-- The tasks of runs, at most `most` (null: all).
select id from task where run_id = any(%(runs)s) limit %(most)s;

-- name: begin_to_purge
-- Mark a run as being purged in steps.
with marked as (
    update archive set purges = true where id = %(archive)s and not purges
)
insert into purging (run_id, archive_id) values (%(run)s, %(archive)s);

-- name: purgings
-- The runs that are being purged in steps, the oldest purge first.
select run_id as run, archive_id as archive, has_starts from purging order by begun_at, run_id;

-- name: purging
-- A row if a run is still being purged in steps. `has_starts`: its starts are stored.
select has_starts from purging where run_id = %(run)s;

-- name: has_starts
-- Record that all starts of a run are stored.
update purging set has_starts = true where run_id = %(run)s;

-- name: end_purging
-- Record that a run is purged, once it has no task any more.
with ended as (
    delete from purging where run_id = %(run)s returning archive_id
)
update archive a set purges = exists (select from purging p where p.archive_id = a.id and p.run_id <> %(run)s)
from ended where a.id = ended.archive_id;

-- name: leave_purged
-- For tasks that come back to work, delete the edges from tasks that are being purged. These edges
-- count as met. A deleted edge that was met has let its target start. Tasks of earlier runs may
-- have led to that start through the edge's source. So `purged_start` keeps the start for the source
-- until the starts of the source's run are stored (`starts_in_runs`).
with gone as (
    delete from edge e using task s
    where e.target = any(%(tasks)s) and e.crossing and s.id = e.source and s.run_id = any(array(select run_id from purging))
      and (select t.settled_at is null from task t where t.id = e.target)
    returning e.source, e.target, e.kind, e.met
), starts as (
    insert into purged_start (task_id, number, run, name, item)
    select distinct on (g.source) g.source, t.number, t.run, case when t.kind = 'ordinary' then t.name else 'COMMIT' end, t.item
    from gone g join task t on t.id = g.target
    where g.met and g.kind <> 'cancels' order by g.source, t.number, t.run, t.name, t.item
    on conflict do nothing
)
update task t set unmet = t.unmet - c.n
from (select target, count(*)::int as n from gone where not met and kind <> 'cancels' group by target) c
where t.id = c.target;

-- name: purge_some_items
-- Delete some of the items of runs, of the tombstones of their items, and of their scratch folders,
-- at most `most` of each. A task manager that still has such a folder removes it, because no row
-- names it. Returns one row for each deleted one.
with items as (
    delete from item where ctid = any(array(select ctid from item where run_id = any(%(runs)s) limit %(most)s)) returning id
), tombstones as (
    delete from deleted_item where ctid = any(array(select ctid from deleted_item where run_id = any(%(runs)s) limit %(most)s)) returning run_id
), folders as (
    delete from scratch where ctid = any(array(select ctid from scratch where run_id = any(%(runs)s) limit %(most)s)) returning run_id
)
select id from items union all select run_id from tombstones union all select run_id from folders;

-- name: purge_items
-- Delete the items of runs, and the tombstones of items.
with deleted as (
    delete from deleted_item where run_id = any(%(runs)s)
)
delete from item where run_id = any(%(runs)s);

-- name: purge_list_uses
-- Delete the uses of lists by runs, and the rows that say that the runs are being let in or
-- canceled in steps. Returns the lists.
with let_in as (
    delete from planning where run_id = any(%(runs)s)
), ended as (
    delete from ending where run_id = any(%(runs)s)
), spared as (
    delete from spared where run_id = any(%(runs)s)
)
delete from list_use where run_id = any(%(runs)s) returning digest;

-- name: lock_lists_to_purge
-- Lock those of some lists that no other transaction has locked; a transaction that stores a run
-- locks the run's lists.
select digest from list where digest = any(%(digests)s::text[]) order by digest for update skip locked;

-- name: purge_lists
-- Delete those of some locked lists that no run uses any more.
delete from list l where l.digest = any(%(digests)s::text[]) and not exists (select from list_use u where u.digest = l.digest);

-- name: purge_schedules
-- Remove the runs from the schedules and fires that made them.
with forgotten as (
    update schedule s set run_id = null
    where s.branch_id = any(array(select branch_id from run where id = any(%(runs)s))) and s.run_id = any(%(runs)s)
)
update schedule_fire set run_id = null where run_id = any(%(runs)s);

-- name: purge_notes
-- Delete people's notes on runs and their tasks. Other entries stay in the audit log.
delete from deed where run_id = any(%(runs)s) and verb = 'note';

-- name: purge_runs
-- Delete runs. No other run gets their places.
with gone as (
    delete from run where id = any(%(runs)s) returning branch_id, number, run, id
)
insert into purged_run (branch_id, number, run, id, deed_id) select branch_id, number, run, id, %(entry)s from gone;

-- name: archives_with_rules
-- The archives with rules for retention, including removed ones.
select id, name, settings from archive where settings->>'keep_logs' is not null or coalesce(settings->'keep', '{}') <> '{}' order by id;

-- name: page_of_runs_by_age
-- The next runs of an archive, the oldest first. `is_old`: the run is so old that a part of it may
-- have to be purged.
select id, clock_timestamp() as now, created_at < clock_timestamp() - %(age)s::interval as is_old
from run where archive_id = %(archive)s and id > %(after)s order by id limit %(limit)s;

-- name: last_acts
-- The last action of a person on each of some runs. A waiver of failures of several runs counts for
-- each run with a waived task. A run may be in its state only since this action.
with waivers as materialized (
    select archive_id, max(at) as at from deed where verb = 'skip' and run_id is null group by archive_id
)
select run.id, greatest((select max(d.at) from deed d where d.run_id = run.id and d.verb not in ('note', 'purge', 'report')), w.at) as at
from run left join waivers w on w.archive_id = run.archive_id and exists (select from task t where t.run_id = run.id and t.waived)
where run.id = any(%(runs)s);

-- name: left_of_purged
-- Lock some tasks of purged runs whose attempts, logs or edges are still to be deleted, unless
-- another purge deletes them.
select id from purged_task order by id limit %(most)s for update skip locked;

-- name: delete_logs_of_purged
-- Delete the next chunks of the logs of these tasks, at most `most`.
delete from log_chunk c
using (select l.attempt_id, l.position from attempt a join log_chunk l on l.attempt_id = a.id where a.task_id = any(%(tasks)s) limit %(most)s) l
where c.attempt_id = l.attempt_id and c.position = l.position;

-- name: delete_edges_of_purged
-- Delete the next edges inside the runs of these tasks, at most `most`. Each edge is deleted with
-- its source.
delete from edge where ctid = any(array(select ctid from edge where source = any(%(tasks)s) limit %(most)s));

-- name: delete_attempts_of_purged
-- Delete the attempts of these tasks, which have no log any more, and the tasks' rows in
-- `purged_task`.
with gone as (
    delete from attempt where task_id = any(%(tasks)s)
)
delete from purged_task where id = any(%(tasks)s);

-- name: export_runs
-- Runs as JSON, for the export of a purge.
select to_jsonb(x) as body
from run join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id join revision r on r.id = run.revision_id
cross join lateral (
    select 'run' as kind, run.id, a.name as archive, b.name as branch, run.number, run.run, r.name as revision, r.author, r.date, r.message, run.trigger, run.by, run.faults,
           run.created_at, run.canceled_at, run.canceled_by, run.deleted_at, run.deleted_by,
           (select coalesce(jsonb_agg(jsonb_build_object('at', d.at, 'by', d.by, 'verb', d.verb, 'task_id', d.task_id, 'note', d.note) order by d.id), '[]')
            from deed d where d.run_id = run.id) as deeds) x
where run.id = any(%(runs)s) order by run.id;

-- name: export_tasks
-- The tasks of runs as JSON, each with its frozen definition and its dependencies.
select to_jsonb(x) as body
from task t left join definition d on d.id = t.definition_id left join item i on i.id = t.item_id
cross join lateral (
    select 'task' as kind, t.id, t.run_id, t.name, t.item, i.body as item_body, t.state, t.priority, t.attempts, t.waived, t.as_completed, t.root_id, t.superseded_by, t.by, t.settled_at,
           d.body as definition,
           (select coalesce(jsonb_agg(jsonb_build_object('source', e.source, 'kind', e.kind, 'met', e.met) order by e.source), '[]')
            from edge e where e.target = t.id) as edges) x
where t.run_id = any(%(runs)s) order by t.run_id, t.position, t.id;

-- name: export_attempts
-- The attempts of runs as JSON.
select to_jsonb(x) as body
from task t join attempt at on at.task_id = t.id
cross join lateral (
    select 'attempt' as kind, at.id, at.task_id, at.number, at.host, at.claimed_at, at.started_at, at.ended_at, at.exit_code, at."end", at.message, at.outputs, at.base, at.image,
           at.log_bytes, at.processor_seconds, at.peak_memory_bytes, at.usage_sampled) x
where t.run_id = any(%(runs)s) order by at.id;

-- name: export_submissions
-- The submissions of runs, as JSON.
select s.run_id, jsonb_build_object('kind', 'submission', 'run_id', s.run_id, 'id', s.sender_id, 'payload_kind', s.kind, 'size', s.size, 'digest', s.digest, 'by', s.by, 'made_at', s.made_at,
           'attachments', (select coalesce(jsonb_agg(jsonb_build_object('name', t.name, 'size', t.size, 'digest', t.digest) order by t.position), '[]')
                           from upload u join attachment t on t.upload_id = u.id where u.run_id = s.run_id)) as body
from submission s where s.run_id = any(%(runs)s) order by s.run_id;

-- name: export_logs
-- The next chunks of the logs of runs after a position, at most `most`.
select c.attempt_id, c.position, c.stream, c.at, c.data
from log_chunk c
where c.attempt_id = any(array(select at.id from task t join attempt at on at.task_id = t.id where t.run_id = any(%(runs)s) and at.log_removal_id is null))
  and (c.attempt_id, c.position) > (%(attempt)s, %(position)s)
order by c.attempt_id, c.position limit %(most)s;
