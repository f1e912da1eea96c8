-- Holds and releases (design 5.21, 5.22). Called by queue/holds.py inside a transaction that has
-- locked the archive's row. An earlier statement (`lock_tasks`) has locked each task that is
-- judged, so no claim takes one in between.

-- name: hold_of_archive
-- The hold of an archive, with the person, the time and the reason; no row if the archive is not on
-- hold.
select a.name, a.hold_id, d.by, d.at, d.note from archive a join deed d on d.id = a.hold_id where a.id = %(archive)s;

-- name: set_hold
-- Put an archive on hold; null: end its hold.
update archive set hold_id = %(hold)s where id = %(archive)s;

-- part: not_begun
-- Whether a hold of the archive would hold a task `t`: its item has not begun, or, for a task
-- without a list, its run (design 5.21). `begun`: the runs and items that have begun.
case when t.item = '' then t.run_id not in (select run_id from begun) else (t.run_id, t.item) not in (select run_id, item from begun) end

-- name: runs_not_begun
-- The runs of an archive with tasks that its hold would hold, oldest first, each with the number of
-- these tasks.
select r.id, t.tasks
from (
    select distinct t.run_id as id
    from branch b join task t on t.branch_id = b.id and t.settled_at is null and {from hold t} and t.kind = 'ordinary' and t.program
    where b.archive_id = %(archive)s) r
cross join lateral (
    with begun as materialized (
        select distinct u.run_id, u.item from task u where u.run_id = r.id and u.attempts > 0 and u.kind <> 'report'
    )
    select count(*)::int as tasks from task t
    where t.run_id = r.id and {from hold t} and t.kind = 'ordinary' and t.program and {part not_begun}) t
where t.tasks > 0
order by r.id;

-- name: runs_held
-- The runs of an archive with held tasks, oldest first, each with the number of these tasks;
-- without runs that are still being planned.
select run_id as id, count(*)::int as tasks from task t where archive_id = %(archive)s and state = 'held' and not exists (select from planning p where p.run_id = t.run_id and p.next < p.items) group by run_id order by run_id;

-- name: to_hold
-- The tasks that a hold of runs may hold: unstarted tasks, without gates. Ready tasks come first,
-- in the order of claims.
select id from task where run_id = any(%(runs)s) and {from hold} and kind = 'ordinary' and program order by state <> 'ready', priority, entry_id, run, position, id;

-- name: held_of_runs
-- The held tasks of runs, in the order of their places.
select id from task where run_id = any(%(runs)s) and state = 'held' order by number, run, position, id;

-- name: holders
-- The holds of some held tasks, the oldest first: the audit log entries, or the numbers below 1 that
-- stand for a workflow file or a guard.
select h.hold_id, d.by, d.at, d.note
from (select distinct hold_id from task where id = any(%(tasks)s) and state = 'held') h left join deed d on d.id = h.hold_id
order by h.hold_id;

-- name: hold
-- Hold unstarted tasks; with %(unbegun)s only tasks whose run, or item, has not begun.
with begun as materialized (
    select distinct u.run_id, u.item from task u
    where %(unbegun)s and u.run_id = any(array(select run_id from task where id = any(%(tasks)s))) and u.attempts > 0 and u.kind <> 'report'
)
update task t set state = {to hold}, asks = false, hold_id = %(hold)s, release_id = null
where t.id = any(%(tasks)s) and {from hold t} and {part not_begun}
returning t.id;

-- name: hold_again
-- Hold tasks that returned to waiting and that nobody has released: tasks that still have a hold of
-- their own, and, in an archive on hold, tasks of a run or item that has not begun. If the end of
-- their run is in progress (sql/ending.sql), it spares all given tasks.
with begun as materialized (
    select distinct u.run_id, u.item from task u
    where u.run_id = any(array(select t.run_id from task t join archive a on a.id = t.archive_id and a.hold_id is not null where t.id = any(%(tasks)s)))
      and u.attempts > 0 and u.kind <> 'report'
), spared as (
    insert into spared (run_id, task_id)
    select t.run_id, t.id from task t where t.id = any(%(tasks)s) and exists (select from ending e where e.run_id = t.run_id)
    on conflict do nothing
)
update task t set state = {to hold}, asks = false, hold_id = coalesce(t.hold_id, a.hold_id), release_id = null
from archive a
where t.id = any(%(tasks)s) and {from hold t} and a.id = t.archive_id
  and (t.hold_id is not null
       or a.hold_id is not null and t.program and {part not_begun});

-- name: release
-- Set held tasks back to waiting. `release`: the audit log entry. If the end of their run is in
-- progress (sql/ending.sql), it spares these tasks, because the release is newer.
with spared as (
    insert into spared (run_id, task_id)
    select t.run_id, t.id from task t where t.id = any(%(tasks)s) and {from release t} and exists (select from ending e where e.run_id = t.run_id)
    on conflict do nothing
)
update task t set state = {to release}, hold_id = null, release_id = %(release)s
where t.ctid = any(array(
    -- Each task is found by its id: the planner would otherwise read the index of held tasks, and
    -- compare each with all released ones.
    select h.place from unnest(%(tasks)s::bigint[]) i(id)
    cross join lateral (select u.ctid as place, u.state from task u where u.id = i.id offset 0) h
    where {from release h}))
returning t.id;

-- name: approval_steps
-- The approval steps among some tasks: the tasks that their workflow file holds in every run, and
-- the tasks that a guard of their archive holds (-1: `BY_A_GUARD`).
select t.id from task t left join definition d on d.id = t.definition_id
where t.id = any(%(tasks)s) and (t.hold_id = -1 or d.body->'hold' = 'true')
order by t.number, t.run, t.position, t.id;

-- name: perhaps_outdated
-- The given held tasks that may be out of date (design 5.19). The statement reads only indexes, so
-- it may include a task that is not out of date. The caller judges each.
select t.id from task t join run on run.id = t.run_id join revision r on r.id = run.revision_id join branch b on b.id = t.branch_id
where t.id = any(%(tasks)s)
  and (coalesce(r.dropped_at, b.deleted_at) is not null
       or exists (
           -- The task, and the gates of its list, which may have let tasks of later runs start.
           select from (select t.id union all select e.target from edge e where e.source = t.id and not e.crossing) s
           where exists (select from edge e where e.source = s.id and e.crossing and e.met and e.kind <> 'cancels')
              or exists (select from purged_start p where p.task_id = s.id))
       or exists (select from task f where f.branch_id = t.branch_id and f.fired and (f.number, f.run) > (t.number, t.run))
       or (t.item <> '' or run.trigger <> 'submission')
          and exists (select from completion c where c.branch_id = t.branch_id and c.name = t.name and c.item = t.item
                  and (c.highest_number, c.highest_run) > (t.number, t.run)))
order by t.number, t.run, t.position, t.id;

-- part: changes_of_files
-- The revisions of a branch `b` that changed its workflow files after the accepted ones, up to the
-- revision `of`: their names and authors.
select c.name, c.author
from (select v.name, v.author, v.number > accepted.number and w.files is distinct from lag(w.files) over (order by v.number) as changes
      from (select coalesce(max(number), -1) as number
            from (select n.number from revision n join workflow w on w.id = n.workflow_id
                  where n.branch_id = of.branch_id and n.number < of.number and n.dropped_at is null and (not n.is_foreign or w.files = b.accepted_files)
                  order by n.number desc limit 1) newest) accepted
      join revision v on v.branch_id = of.branch_id and v.dropped_at is null and v.number between accepted.number and of.number
      join workflow w on w.id = v.workflow_id) c
where c.changes

-- name: guarded
-- The guarded tasks among some tasks, or those that may be guarded. `globs`: the globs that their
-- archive guards. `author`: the author of their revision. `definer`: the author of the revision
-- whose definitions their backfill has. `changers`, for a task of a revision whose workflow files
-- nobody has accepted, or that `workflow_authors` holds (-2: `BY_WORKFLOW_AUTHORS`): the authors who
-- changed the files after the accepted ones, up to this revision. Where a branch begins, or was
-- merged, the ledger of another branch may know who they are: it has a revision of the same name.
with held as materialized (
  select run.revision_id as id from task t join run on run.id = t.run_id where t.id = any(%(tasks)s) and t.hold_id = -2
  union
  select r.id
  from task t join archive a on a.id = t.archive_id and a.settings->'workflow_authors'->0 is not null
  join run on run.id = t.run_id and run.backfill_id is null join revision r on r.id = run.revision_id and r.is_foreign
  join workflow w on w.id = r.workflow_id join branch b on b.id = r.branch_id
  where t.id = any(%(tasks)s) and w.files is distinct from b.accepted_files
), changed as materialized (
  select h.id, array_agg(distinct coalesce(e.author, c.author)) as authors
  from held h join revision of on of.id = h.id join branch b on b.id = of.branch_id
  cross join lateral ({part changes_of_files}) c
  left join lateral (
    select e.author
    from branch o join revision same on same.branch_id = o.id and same.name collate "C" = c.name and same.is_foreign
    cross join lateral (
        select there.author from (select same.branch_id, same.number) of cross join (select o.accepted_files) b
        cross join lateral ({part changes_of_files}) there) e
    where o.archive_id = b.archive_id and o.id <> b.id) e on true
  group by h.id
)
select t.id, t.number, t.run, t.name, t.item, t.kind = 'report' and not t.program as is_empty_report, t.hold_id, t.release_id, a.name as archive, b.name as branch, b.main, r.author, d.author as definer, c.authors as changers,
       a.settings::text as settings
from task t join archive a on a.id = t.archive_id join branch b on b.id = t.branch_id join run on run.id = t.run_id join revision r on r.id = run.revision_id
left join backfill f on f.id = run.backfill_id left join revision d on d.id = f.revision_id
left join changed c on c.id = r.id and run.backfill_id is null
where t.id = any(%(tasks)s) and (t.hold_id < 0 or coalesce(a.settings->'require_approval', '[]') <> '[]' or jsonb_typeof(a.settings) <> 'object')
order by t.number, t.run, t.position, t.id;

-- name: to_guard
-- The unstarted tasks of an archive with their names, including REPORTs. `is_empty_report`: a
-- REPORT without a command, of a run that is not gone and has no faults.
select t.id, t.name, t.kind = 'report' and not t.program as is_empty_report
from branch b join task t on t.branch_id = b.id and t.settled_at is null and {from hold t}
where b.archive_id = %(archive)s
  and (t.kind = 'ordinary'
       or t.kind = 'report'
          and (t.program
               or b.deleted_at is null
                  and exists (select from run join revision r on r.id = run.revision_id
                              where run.id = t.run_id and run.deleted_at is null and run.faults = '[]' and r.dropped_at is null)))
order by t.id;

-- name: tasks_of_run
-- The ordinary tasks of runs.
select id from task where run_id = any(%(runs)s) and kind = 'ordinary' order by id;

-- name: runs_of_foreign
-- The runs of the given tasks that `workflow_authors` holds (-2: `BY_WORKFLOW_AUTHORS`), also where
-- `require_approval` holds every task of theirs (-1: `BY_A_GUARD`).
select distinct t.run_id from task t join run on run.id = t.run_id join revision r on r.id = run.revision_id
where t.id = any(%(tasks)s) and (t.hold_id = -2 or t.hold_id = -1 and r.is_foreign and run.backfill_id is null);

-- name: accept_workflows_of
-- Accept the workflow files of released runs. On each branch, the files of the last of these
-- revisions count. If the accepted files of a branch are those of a later revision, they stay
-- accepted. Returns the runs whose files are accepted now.
update branch b set accepted_files = l.files
from (select distinct on (run.branch_id) run.id, run.branch_id, r.number, w.files
      from run join revision r on r.id = run.revision_id join workflow w on w.id = r.workflow_id where run.id = any(%(runs)s) order by run.branch_id, r.number desc) l
where b.id = l.branch_id
  and not exists (select from revision later join workflow w on w.id = later.workflow_id
                  where later.branch_id = b.id and later.number > l.number and later.dropped_at is null and w.files = b.accepted_files)
returning l.id;
