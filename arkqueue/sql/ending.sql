-- Ends: when a branch, revision or archive is gone, the unstarted tasks of its runs are canceled in
-- steps (design 5.16). Called by queue/ending.py inside transactions that have locked the archive's
-- row.

-- part: to_end
-- Whether the end `e` of a run, recorded by the audit log entry `d`, cancels a task `t`: the task
-- existed when the end began and was not running then, and nobody has started, released or retried
-- it since.
{from cancel t} and (t.kind = 'ordinary' or t.kind = 'report' and (t.program or t.state = 'held')) and t.id <= e.until
and not exists (select from spared s where s.run_id = t.run_id and s.task_id = t.id)
and not (t.attempts > 0 and exists (select from attempt a where a.id = t.attempt_id and a.ended_at > d.at))

-- part: not_started_of_gone
-- The unstarted tasks of some runs of a rewritten or deleted branch, and a REPORT with a command or
-- a hold.
from task
where run_id = any(%(runs)s) and state in ('waiting', 'held', 'ready', 'deferred')
  and (kind = 'ordinary' or kind = 'report' and (program or state = 'held'))

-- name: not_started_of_gone
-- These tasks; at most `most` (null: all).
select id {part not_started_of_gone} order by id limit %(most)s;

-- name: count_not_started_of_gone
-- The number of these tasks.
select count(*) {part not_started_of_gone};

-- name: ready_of_runs
-- The ready tasks of some runs, in the order of claims.
select id from task where run_id = any(%(runs)s) and state = 'ready' and (kind = 'ordinary' or kind = 'report' and program)
order by priority, entry_id, run, position, id limit %(most)s;

-- name: begin_to_end
-- Record that the unstarted tasks of some runs are to be canceled in steps. `entry`: the audit log
-- entry. If a run was planned further in the meantime, its end begins anew.
with anew as (
    delete from spared where run_id = any(%(runs)s::bigint[])
)
insert into ending (run_id, archive_id, deed_id, entry_id, until)
select r.id, %(archive)s, %(entry)s, r.revision_id, (select coalesce(max(t.id), 0) from task t where t.run_id = r.id) from run r where r.id = any(%(runs)s::bigint[])
on conflict (run_id) do update set deed_id = excluded.deed_id, is_aside = false, until = excluded.until;

-- name: to_end_of_run
-- The tasks of a run that are still to be canceled.
select t.id from ending e join deed d on d.id = e.deed_id join task t on t.run_id = e.run_id
where e.run_id = %(run)s and e.deed_id = %(entry)s and {part to_end}
order by t.id;

-- name: still_to_end
-- The given tasks that are still to be canceled.
select t.id from task t join ending e on e.run_id = t.run_id and e.deed_id = %(entry)s join deed d on d.id = e.deed_id
where t.id = any(%(tasks)s::bigint[]) and {part to_end}
order by t.id;

-- name: endings
-- The runs whose end is in progress, by archive, the oldest first. `by`: the cause of the end.
select e.run_id as run, e.archive_id as archive, e.deed_id as entry, e.is_aside, d.by, r.report_id
from ending e join deed d on d.id = e.deed_id join run r on r.id = e.run_id
order by e.archive_id, e.run_id;

-- name: set_runs_aside
-- Record that the tasks of some runs that could start are held.
update ending set is_aside = true where run_id = any(%(runs)s) and deed_id = %(entry)s;

-- name: end_ending
-- Record that all unstarted tasks of some runs are canceled.
with over as (
    delete from spared s using ending e where e.run_id = any(%(runs)s::bigint[]) and e.deed_id = %(entry)s and s.run_id = e.run_id
)
delete from ending where run_id = any(%(runs)s) and deed_id = %(entry)s;

-- name: about_to_end
-- The cause of the end of a task's run, if this end is still to cancel the task.
select d.by from task t join ending e on e.run_id = t.run_id join deed d on d.id = e.deed_id where t.id = %(task)s and {part to_end};
