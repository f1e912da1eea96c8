-- Backfills: runs of old revisions with the definitions of a newer one. Called by
-- queue/backfill.py, mostly inside a transaction that has locked the archive's row.

-- name: add_backfill
-- Store a backfill with the next number of its archive; none of its runs is planned yet.
insert into backfill (archive_id, branch_id, number, revision_id, tasks, without, first, last, next, by)
select %(archive)s, %(branch)s, coalesce(max(f.number), 0) + 1, %(revision)s, %(tasks)s, %(without)s, %(first)s, %(last)s, %(first)s, %(by)s
from backfill f where f.archive_id = %(archive)s
returning id, number;

-- name: revisions_of_branch
-- The first, the last and the number of the present revisions of a branch between two numbers.
select min(number) as first, max(number) as last, count(*) as count from revision
where branch_id = %(branch)s and number between %(first)s and %(last)s and dropped_at is null;

-- name: revision_before
-- The number of the last revision of a branch before another revision.
select max(number) as number from revision where branch_id = %(branch)s and number < %(number)s and dropped_at is null;

-- name: revisions_to_fill
-- The next revisions for which a backfill has no run yet.
select r.id, r.number from revision r
where r.branch_id = %(branch)s and r.number between %(first)s and %(last)s and r.dropped_at is null
order by r.number limit %(most)s;

-- name: backfill
-- A backfill, with the names of its archive and branch, and the number of the revision whose
-- definitions it has.
select f.*, a.name as archive, a.stopped, b.name as branch, b.main, d.number as definitions_number, coalesce(a.removed_at, b.deleted_at) is not null as is_gone
from backfill f join archive a on a.id = f.archive_id join branch b on b.id = f.branch_id join revision d on d.id = f.revision_id
where f.id = %(backfill)s;

-- name: backfills_to_plan
-- The backfills with revisions left to plan, the oldest first, without those of stopped archives
-- and of branches whose last run is still being planned.
select f.id, f.archive_id, f.waits from backfill f join archive a on a.id = f.archive_id
where f.next is not null and a.stopped is null and not exists (select from planning p where p.branch_id = f.branch_id and p.next < p.items) order by f.id;

-- name: planned_of_backfill
-- For each key, the last task that a backfill has planned, and whether this task meets an edge from
-- another run; with the columns of `nearest`.
select t.id, t.name, t.item, t.kind, t.number, t.run, meets(true, true, t.state, t.as_completed, t.waived, t.blocks) as settled,
       meets(false, true, t.state, t.as_completed, t.waived, t.blocks) as passes, null::boolean as produced, null::boolean as failed, t.deleted or t.as_completed as is_ignored
from unnest(%(names)s::text[], %(items)s::text[]) n(name, item)
cross join lateral (
    select u.* from task u join run r on r.id = u.run_id
    where u.branch_id = %(branch)s and u.name = n.name and u.item = n.item and r.backfill_id = %(backfill)s
    order by u.number desc, u.run desc limit 1) t;

-- name: go_on_filling
-- Set the number of the next revision that needs a run of a backfill. Null: all runs are planned,
-- or `fault` says why the rest never will be. The backfill then waits for nothing.
update backfill set next = %(next)s, fault = %(fault)s, waits = null, waits_since = null where id = %(backfill)s;

-- name: let_backfill_wait
-- Store why the remaining runs of a backfill cannot be planned now.
update backfill set waits = %(waits)s, waits_since = coalesce(waits_since, clock_timestamp()) where id = %(backfill)s and next is not null;

-- name: hold_backfill
-- Hold the runs of a backfill that are planned from now on; null: hold them no longer.
update backfill set hold_id = %(hold)s where id = %(backfill)s;

-- name: prioritize_backfill
-- Set a priority, as a person decided, for the runs of a backfill that are planned from now on.
update backfill set priority = %(priority)s where id = %(backfill)s;

-- name: runs_to_hold_of_backfill
-- The runs of a backfill with tasks that a hold would hold, oldest first, each with the number of
-- these tasks.
select t.run_id as id, count(*)::int as tasks
from run r join task t on t.run_id = r.id and {from hold t} and t.kind = 'ordinary' and t.program
where r.backfill_id = %(backfill)s and r.deleted_at is null group by t.run_id order by t.run_id;

-- name: runs_held_of_backfill
-- The runs of a backfill with held tasks, oldest first, each with the number of these tasks.
select t.run_id as id, count(*)::int as tasks from run r join task t on t.run_id = r.id and t.state = 'held'
where r.backfill_id = %(backfill)s and r.deleted_at is null group by t.run_id order by t.run_id;

-- name: open_runs_of_backfill
-- The runs of a backfill with unsettled tasks, newest first, each with the number of these tasks.
select t.run_id as id, count(*)::int as tasks from run r join task t on t.run_id = r.id and t.settled_at is null and t.kind = 'ordinary'
where r.backfill_id = %(backfill)s and r.deleted_at is null group by t.run_id order by t.run_id desc;

-- name: cancel_runs
-- Record that a person canceled runs.
update run set canceled_at = clock_timestamp(), canceled_by = %(by)s where id = any(%(runs)s) and canceled_at is null;

-- name: backfills_of
-- The backfills of an archive, the newest first, or the backfill with a number.
select f.id from backfill f
where f.archive_id = %(archive)s and (%(number)s::int is null or f.number = %(number)s) order by f.number desc limit %(most)s;

-- name: show_backfill
-- The progress of a backfill: the numbers of its revisions, of its planned runs, and of its tasks
-- in each state. Deleted runs count only as planned, and deleted items do not count. A revision that
-- a rewrite dropped counts if its run had been planned. `waived`: the number of waived tasks among
-- the failed and rejected ones. `waived_rejected`: how many of the waived tasks were rejected.
select (select count(*) from revision v where v.branch_id = f.branch_id and v.number between f.first and f.last and v.dropped_at is null)
           + (select count(*) from run r join revision v on v.id = r.revision_id where r.backfill_id = f.id and v.dropped_at is not null) as revisions,
       (select count(*) from run r where r.backfill_id = f.id) as planned, c.*
from backfill f cross join lateral (
    select count(*) as tasks, count(*) filter (where t.state = 'running') as running, count(*) filter (where t.state = 'held') as held,
           count(*) filter (where t.state = 'completed') as completed, count(*) filter (where t.state = 'failed') as failed,
           count(*) filter (where t.state = 'rejected') as rejected, count(*) filter (where t.state = 'canceled') as canceled,
           count(*) filter (where t.state = 'skipped') as skipped, count(*) filter (where t.state = 'canceled' and t.superseded_by is not null) as superseded,
           count(*) filter (where t.state in ('failed', 'rejected') and t.waived) as waived, count(*) filter (where t.state = 'rejected' and t.waived) as waived_rejected
    from run r join task t on t.run_id = r.id and t.kind = 'ordinary' and not t.deleted
    where r.backfill_id = f.id and r.deleted_at is null) c
where f.id = %(backfill)s;

-- part: note_on_failure
-- A person's note `d` on a failure of a task: somebody wrote it after an attempt had ended. A note
-- counts until the task is fixed: after a retry that completed, the next failure is another one.
d.verb = 'note' and d.at > (select min(at.ended_at) from attempt at where at.task_id = d.task_id)
and not exists (select from attempt at where at.task_id = d.task_id and at."end" = 'exited' and at.exit_code = 0 and at.ended_at > d.at)

-- name: failures_of_backfills
-- The backfills with failed or rejected tasks that nobody has waived, or noted since they failed, or
-- with runs that could not start: the numbers of failed and of rejected tasks (without REPORT), of
-- such REPORTs, and of these runs. The newest backfill comes first; only those of watched archives
-- and present branches. The failures of archives that have backfills are read from an index alone,
-- which has the names of tasks, and neither their kinds nor their states. `failed` therefore counts
-- rejected tasks, too, until those of the runs of backfills are counted. Run 1 of a revision is its
-- commit run, so the index alone shows that most failures are not of backfills.
with failures as materialized (
    select run_id, count(*) filter (where name <> 'REPORT') as failed, count(*) filter (where name = 'REPORT') as unsent from task
    where state in ('failed', 'rejected') and not waived and run > 1 and archive_id = any(array(select distinct f.archive_id from backfill f))
      and (%(archives)s::bigint[] is null or archive_id = any(%(archives)s))
    group by run_id)
select * from (
    select a.name as archive, f.id, f.branch_id, f.number, sum(bad.failed - noted.failed - other.rejected)::int as failed, sum(other.rejected)::int as rejected,
           sum(bad.unsent - noted.unsent)::int as unsent, sum(bad.unstarted)::int as unstarted
    from (select run_id, failed, unsent, 0 as unstarted from failures
          union all
          select id, 0, 0, 1 from run where faults <> '[]' and backfill_id is not null) bad
    join run on run.id = bad.run_id join backfill f on f.id = run.backfill_id
    join branch b on b.id = run.branch_id join archive a on a.id = run.archive_id
    cross join lateral (
        select count(*) filter (where t.kind <> 'report') as failed, count(*) filter (where t.kind = 'report') as unsent from task t
        where t.id in (select d.task_id from deed d where d.run_id = bad.run_id and {part note_on_failure})
          and t.state in ('failed', 'rejected') and not t.waived and bad.unstarted = 0) noted
    cross join lateral (
        select count(*) as rejected from task t
        where t.archive_id = run.archive_id and t.run_id = bad.run_id and t.state = 'rejected' and not t.waived and t.kind <> 'report' and bad.unstarted = 0
          and not exists (select from deed d where d.task_id = t.id and {part note_on_failure})) other
    where run.deleted_at is null and b.deleted_at is null and a.removed_at is null
      and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
    group by f.id, a.name, f.number) of
where failed + rejected + unsent + unstarted > 0 order by id desc limit %(most)s;

-- name: runs_of_backfill
-- The runs of a backfill after one of them (null: from the first one on), in the order of their
-- revisions.
select r.id from run r where r.backfill_id = %(backfill)s and r.deleted_at is null and (%(after)s::bigint is null or r.id > %(after)s)
order by r.id limit %(most)s;

-- name: telling_runs_of_backfill
-- The runs of a backfill with failures that nobody has waived, or noted since, or that could not
-- start, then the runs with a task that runs or can run, each the oldest first. If no task runs or
-- can run, the oldest run that has not ended, which the others wait for.
(select r.id, true as is_bad from run r
 where r.backfill_id = %(backfill)s and r.deleted_at is null
   and (r.faults <> '[]' or exists (
        select from task t where t.run_id = r.id and t.state in ('failed', 'rejected') and not t.waived and not t.deleted
          and not exists (select from deed d where d.task_id = t.id and {part note_on_failure})))
 order by r.id limit %(most)s)
union all
(with going as (
    select r.id from run r
    where r.backfill_id = %(backfill)s and r.deleted_at is null
      and exists (select from task t where t.run_id = r.id and t.state in ('ready', 'running', 'deferred'))
    order by r.id limit %(most)s)
 select id, false from going
 union all
 (select r.id, false from run r
  where not exists (select from going) and r.backfill_id = %(backfill)s and r.deleted_at is null
    and exists (select from task t where t.run_id = r.id and t.kind = 'ordinary' and t.state in ('waiting', 'held') and not t.deleted)
  order by r.id limit 1)
 order by id);
