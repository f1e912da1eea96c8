-- Reports of runs (design 5.4, 5.32; decision 18). Written by queue/reports.py, read by
-- views/reports.py.
--
-- A run makes its first report by itself, when all of its other tasks have settled and its REPORT
-- passes or begins to run. This report is not written at once: until something changes, it can be
-- computed from the tasks. `unwritten_reports` finds the runs whose tasks are about to change, and
-- `write_report` writes their reports before the change.
--
-- A REPORT with a command is *idle* while it waits or has settled. It runs for the report that the
-- run makes by itself, or (`run.updating`) for a report that a person wanted. Each writer of a
-- report has locked the row of REPORT, which a claim would lock, too: the lock on the archive's row
-- alone would not prevent a claim.

-- part: unwritten
-- Whether the report that a run made by itself is unwritten. `report`: the run's REPORT.
(report.state in ('completed', 'failed', 'rejected') or report.state in ('running', 'deferred') and run.updating is null)
    and not exists (select from report w where w.run_id = run.id and w.made_by is null)

-- part: as_told
-- The tasks of a report, as its row has them.
jsonb_to_recordset(r.tasks) as e(task bigint, state text, settled_at timestamptz, waived boolean, as_completed boolean, attempts int, attempt bigint, root bigint, superseded_by bigint)

-- part: gone_since
-- The number of tasks in an earlier report whose items were deleted since.
(select count(*) from report r cross join {part as_told} join task g on g.id = e.task and g.deleted where r.run_id = %(run)s and r.number = %(since)s)

-- name: deleted_since
-- The tasks of an earlier report whose items were deleted since, until a time (`at`).
select g.name, g.item
from report r cross join {part as_told} join task g on g.id = e.task and g.deleted join deleted_item d on d.run_id = g.run_id and d.item = g.item
where r.run_id = %(run)s and r.number = %(since)s and d.deleted_at <= %(at)s
order by g.position, g.item, g.id limit %(most)s;

-- name: lock_reports
-- Lock the REPORTs of the runs of some tasks, so that no claim takes one before it is judged.
select report.id from task report
where report.id in (select run.report_id from run where run.id in (select run_id from task where id = any(%(tasks)s)))
order by report.id for no key update;

-- name: unwritten_reports
-- The runs of some tasks whose own report is unwritten.
select run.id from run join task report on report.id = run.report_id
where run.id in (select run_id from task where id = any(%(tasks)s)) and {part unwritten}
order by run.id;

-- name: report_of_run
-- The place of a run's REPORT, and the facts of its next report. `is_unwritten`: the report that the
-- run made by itself is unwritten. `settled_at`: when the run settled; null for a written report, so
-- that the tasks are read only if this is needed.
select run.id, run.archive_id, report.id as report, report.state, coalesce({part unwritten}, false) as is_unwritten,
       case when {part unwritten} then (select coalesce(greatest(max(t.settled_at), report.settled_at), report.ready_at) from task t where t.run_id = run.id and t.kind = 'ordinary') end as settled_at,
       coalesce(report.program, false) as has_command, report.unmet, case when report.settled_at is null then run.updating end as updating,
       (select w.number from report w where w.run_id = run.id and w.made_by is null) as own,
       (select max(number) from report w where w.run_id = run.id and w.sent_at is not null) as sent,
       (select max(number) from report w where w.run_id = run.id) as newest
from run left join task report on report.id = run.report_id
where run.id = %(run)s;

-- name: count_unsettled
-- The number of tasks of a run that have not settled, without its REPORT.
select count(*)::int as n from run join task t on t.run_id = run.id
where run.id = %(run)s and t.id is distinct from run.report_id and t.kind <> 'gate' and t.settled_at is null;

-- name: write_report
-- Write a report of the present state of a run. `by` null: the report that the run made by itself
-- when its REPORT passed (`at`). `since`: the report with which this one is compared.
insert into report (run_id, number, made_at, made_by, state, since, is_given, changes, digest, tasks)
select told.run_id, told.number, told.made_at, told.made_by, told.state, told.since, %(has_command)s and (told.made_by is null or told.changes > 0), told.changes, told.digest, told.tasks
from (
select %(run)s::bigint as run_id, 1 + coalesce((select max(number) from report where run_id = %(run)s), 0) as number,
       case when %(by)s::text is not null or bool_or(t.id is not null and t.settled_at is null) then clock_timestamp() else greatest(max(t.settled_at), %(at)s::timestamptz) end as made_at,
       %(by)s::text as made_by, %(state)s::text as state, %(since)s::int as since,
       (count(*) filter (where t.settled_at is distinct from e.settled_at or t.settled_at is not null and (t.waived, t.as_completed) is distinct from (e.waived, e.as_completed)) + {part gone_since})::int as changes,
       report_digest(%(run)s) as digest,
       coalesce(jsonb_agg(jsonb_build_object(
           'task', t.id, 'state', t.state, 'settled_at', t.settled_at, 'waived', t.waived, 'as_completed', t.as_completed, 'attempts', t.attempts, 'attempt', t.attempt_id,
           'root', t.root_id, 'superseded_by', t.superseded_by) order by t.position, t.id) filter (where t.id is not null), '[]') as tasks
from (select 1) one
left join task t on t.run_id = %(run)s and t.kind = 'ordinary' and not t.deleted
left join (select e.* from report r cross join {part as_told} where r.run_id = %(run)s and r.number = %(since)s) e on e.task = t.id
) told
returning number, changes, is_given;

-- name: update_reports
-- Let REPORTs run once more: at once, or (`waits`) when the unsettled tasks of their runs have
-- settled.
update task t set
    state = case when {from update t} then {to update} else t.state end, settled_at = null, by = null, superseded_by = null, stop = null, fault = null,
    waived = false, as_completed = false, failures = 0, deferrals = 0, losses = 0, deferred_at = null,
    unmet = case when %(waits)s then (select (count(*) filter (where u.settled_at is null))::int from task u where u.run_id = t.run_id and u.id <> t.id and u.kind <> 'gate') else 0 end
where t.id = any(%(tasks)s) and ({from update t} or t.state = 'waiting');

-- name: hold_reports
-- Hold REPORTs that returned to waiting and that nobody has released.
update task t set state = {to hold} where t.id = any(%(tasks)s) and {from hold t} and t.hold_id is not null;

-- name: set_updating
-- Set the person's report for which the command of a run's REPORT runs; null: none.
update run set updating = %(number)s where id = %(run)s;

-- name: updating
-- The person's report for which the command of a run's REPORT runs, or has just run.
select updating from run where id = %(run)s;

-- name: runs_of_reports
-- The runs of some REPORTs.
select run_id from task where id = any(%(tasks)s) order by run_id;

-- name: sent
-- Record that the command of REPORT ended with 0, and so has sent a report.
update report set sent_at = clock_timestamp() where run_id = %(run)s and number = %(number)s;

-- name: list_reports
-- The written reports of a run, the newest first, without their tasks.
select number, made_at, made_by, state, since, changes, is_given, sent_at from report where run_id = %(run)s order by number desc;

-- name: changes_since
-- The number of tasks of a run that have changed since a report (null: since none).
select (count(*) + {part gone_since})::int as changes
from task t
left join (select e.* from report r cross join {part as_told} where r.run_id = %(run)s and r.number = %(since)s) e on e.task = t.id
where t.run_id = %(run)s and t.kind = 'ordinary' and not t.deleted
  and (t.settled_at is distinct from e.settled_at or t.settled_at is not null and (t.waived, t.as_completed) is distinct from (e.waived, e.as_completed));

-- name: reported_tasks
-- The tasks of a report (null: of a report of the present state), with the messages and outputs of
-- their attempts. Tasks that changed since the report with which this one is compared come first,
-- then those that did not complete; items follow the order of their list.
--
-- `outputs` are included if they have at most %(most_of_one)s bytes, and at most %(most_of_all)s
-- together with those of the tasks before. The stored size is compared first, so that no more than
-- twice as much is ever read. `at`: the time of the report. Attempts that had not ended then are
-- left out. If the task had settled, its attempt had ended, even if the attempt's clock says a
-- moment later than the task's.
--
-- `unneeded`: the task was skipped because the failure for which it runs did not happen. The state of
-- its root is the one in the report, if the report has the root.
with told as (
    select e.* from report r cross join {part as_told} where r.run_id = %(run)s and r.number = %(number)s
    union all
    select t.id, t.state::text, t.settled_at, t.waived, t.as_completed, t.attempts, t.attempt_id, t.root_id, t.superseded_by
    from task t where %(number)s::int is null and t.run_id = %(run)s and t.kind = 'ordinary' and not t.deleted
), earlier as (
    select e.* from report r cross join {part as_told} where r.run_id = %(run)s and r.number = %(since)s
), compared as (
    select told.*, t.name, t.item, t.position,
           case when t.fault is not null and t.settled_at = told.settled_at then t.fault end as fault,
           told.settled_at is distinct from b.settled_at
               or told.settled_at is not null and (told.waived, told.as_completed) is distinct from (b.waived, b.as_completed) as changed,
           told.state = 'skipped' and coalesce(cause.state, root.state::text, '') = 'completed' as unneeded
    from told join task t on t.id = told.task left join earlier b on b.task = told.task
    left join told cause on cause.task = told.root left join task root on root.id = told.root
), placed as (
    select c.*, row_number() over (order by %(since)s::int is not null and not c.changed, c.state = 'completed', c.position, c.task) as place
    from compared c order by place limit %(most)s
), stored as (
    select p.*, a.started_at, e.ended_at, e.exit_code, e."end", e.processor_seconds, e.peak_memory_bytes, e.usage_sampled, left(coalesce(nullif(e.message, ''), p.fault, ''), %(longest)s) as message, e.outputs,
           removed('log was', l) as log_removed, removed('outputs were', o) as outputs_removed,
           sum(case when pg_column_size(e.outputs) <= %(most_of_one)s then pg_column_size(e.outputs) else 0 end) over (order by p.place) as size
    from placed p
    left join attempt a on a.id = p.attempt
    left join attempt e on e.id = p.attempt and (p.settled_at is not null or e.ended_at <= coalesce(%(at)s::timestamptz, 'infinity'))
    left join deed l on l.id = a.log_removal_id left join deed o on o.id = a.outputs_removal_id
), read as (
    select s.*, case when s.size <= %(most_of_all)s and pg_column_size(s.outputs) <= %(most_of_one)s then octet_length(s.outputs::text) end as length from stored s
), summed as (
    select r.*, sum(case when r.length <= %(most_of_one)s then r.length else 0 end) over (order by r.place) as total from read r
)
select s.name, s.item, s.state, s.waived, s.as_completed, s.attempts, s.started_at, s.ended_at, s.settled_at, s.exit_code, s."end", s.processor_seconds, s.peak_memory_bytes, s.usage_sampled, s.message,
       case when s.length <= %(most_of_one)s and s.total <= %(most_of_all)s then s.outputs end as outputs,
       s.outputs is not null and not coalesce(s.length <= %(most_of_one)s and s.total <= %(most_of_all)s, false) as outputs_left_out,
       s.log_removed, s.outputs_removed, s.root, s.unneeded, s.superseded_by, s.changed
from summed s order by s.place;

-- name: reported_counts
-- The number of tasks of a report in each state (null: of a report of the present state).
select state, count(*)::int as n, count(*) filter (where waived and state in ('failed', 'rejected'))::int as waived
from (
    select e.state, e.waived from report r cross join {part as_told} where r.run_id = %(run)s and r.number = %(number)s
    union all
    select t.state::text, t.waived from task t where %(number)s::int is null and t.run_id = %(run)s and t.kind = 'ordinary' and not t.deleted) told
group by state;

-- name: export_reports
-- The written reports of runs as JSON, for the export of a purge. An unwritten report can be
-- computed from the tasks.
select jsonb_build_object('kind', 'report') || to_jsonb(r) as body from report r where r.run_id = any(%(runs)s) order by r.run_id, r.number;

-- name: purge_reports
-- Delete the reports of runs.
delete from report where run_id = any(%(runs)s);
