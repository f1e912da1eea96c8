-- What is gone: of runs whose branch, revision or archive is, what has not started is canceled in steps (design 5.16). Called by queue/ending.py inside transactions that have locked the archive's row.

-- name: not_started_of_gone
-- What has not started of some runs of a rewritten or deleted branch, with what a REPORT would run; at most so many (null: all).
select id from task
where run_id = any(%(runs)s) and state in ('waiting', 'held', 'ready', 'deferred')
  and (kind = 'ordinary' or kind = 'report' and program)
order by id limit %(most)s;

-- name: ready_of_runs
-- What is ready of some runs, in the order of claims.
select id from task where run_id = any(%(runs)s) and state = 'ready' and (kind = 'ordinary' or kind = 'report' and program)
order by priority, entry_id, run, position, id limit %(most)s;

-- name: begin_to_end
-- Note that what has not started of some runs is to be canceled in steps. `entry`: of the audit log. A run that was planned further since it was noted is noted anew.
insert into ending (run_id, archive_id, deed_id) select unnest(%(runs)s::bigint[]), %(archive)s, %(entry)s
on conflict (run_id) do update set deed_id = excluded.deed_id, is_aside = false;

-- name: endings
-- The runs whose end is under way, by archive, the oldest first. `by`: what became of them.
select e.run_id as run, e.archive_id as archive, e.deed_id as entry, e.is_aside, d.by, r.report_id
from ending e join deed d on d.id = e.deed_id join run r on r.id = e.run_id
order by e.archive_id, e.run_id;

-- name: set_runs_aside
-- Note that what could start of some runs is held.
update ending set is_aside = true where run_id = any(%(runs)s) and deed_id = %(entry)s;

-- name: end_ending
-- Note that all of some runs is canceled that had not started.
delete from ending where run_id = any(%(runs)s) and deed_id = %(entry)s;
