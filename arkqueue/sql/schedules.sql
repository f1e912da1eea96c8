-- Schedules and their fires (design 5.17).

-- name: schedules_of
-- The schedules of a branch.
select id, cron, zone, tasks from schedule where branch_id = %(branch)s order by id;

-- name: add_schedule
-- Schedule a set of tasks.
insert into schedule (branch_id, cron, zone, tasks, next_at) values (%(branch)s, %(cron)s, %(zone)s, %(tasks)s, %(next_at)s)
on conflict do nothing;

-- name: drop_schedules
-- Delete schedules that the head no longer defines.
delete from schedule where id = any(%(ids)s);

-- name: drop_schedules_of_branch
-- Delete the schedules of a branch.
delete from schedule where branch_id = %(branch)s;

-- name: clock
-- The time by the database's clock, which decides when a schedule fires.
select clock_timestamp() as now;

-- name: due_schedules
-- Schedules that are due. Those of stopped archives are left out, because a stopped archive may be
-- another repository by now. A branch whose last run is still being planned waits.
select s.id, s.branch_id, b.archive_id, s.cron, s.zone, s.tasks, s.next_at, s.run_id
from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id
where s.next_at <= clock_timestamp() and a.stopped is null and not exists (select from planning p where p.branch_id = b.id and p.next < p.items)
order by s.next_at;

-- name: next_schedule
-- Seconds until the next schedule is due.
select extract(epoch from min(s.next_at) - clock_timestamp())::float8
from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id
where a.stopped is null and not exists (select from planning p where p.branch_id = b.id and p.next < p.items);

-- name: advance_schedule
-- Move a schedule to its next time, unless somebody else did (compare and set).
update schedule set next_at = %(next_at)s where id = %(id)s and next_at = %(fired)s returning id;

-- name: fired
-- Record a fire. The first queue manager to do so gets a row, all others none.
insert into schedule_fire (branch_id, cron, zone, tasks, fire_at)
values (%(branch)s, %(cron)s, %(zone)s, %(tasks)s, %(fire_at)s)
on conflict do nothing returning fire_at;

-- name: last_run_of_schedule
-- The last run of a schedule, unless it was deleted: whether it has ended, and whether it has
-- begun. `products`: the pairs of a task and the source whose product it takes or for whose failure
-- it waits. `reason`: why the run could not start. `hold`: the audit log entry that holds it.
select run.id,
       not exists (select from task t where t.run_id = run.id and t.kind = 'ordinary' and t.settled_at is null) as has_ended,
       exists (select from task t where t.run_id = run.id and t.attempts > 0 and t.kind <> 'report') as has_begun,
       array(select t.name || ' ' || e.source from task t join edge e on e.target = t.id
             where t.run_id = run.id and (e.product or e.failed and e.crossing) order by t.name, e.source) as products,
       run.faults->0->>'message' as reason,
       (select min(t.hold_id) from task t where t.run_id = run.id and t.state = 'held' and t.hold_id > 0) as hold
from run where run.id = %(run)s and run.deleted_at is null;

-- name: supersede_run
-- Cancel the unstarted tasks of a schedule's last run: another run replaces it, with tasks of the
-- same names.
update task t set state = {to cancel}, superseded_by = n.id, settled_at = clock_timestamp(), due_at = null
from task n
where t.run_id = %(run)s and t.kind = 'ordinary' and {from cancel t}
  and n.run_id = %(by)s and n.name = t.name and n.item = t.item
returning t.id;

-- name: leave_out
-- Count a fire that makes no run, in the row of the run that stands for it.
update run set left_out = left_out + 1, left_out_since = coalesce(left_out_since, %(fire_at)s) where id = %(run)s;

-- name: set_last_run
-- Store the last run of a schedule.
update schedule set run_id = %(run)s where id = %(id)s;

-- name: fired_run
-- Store the run that a fire made, or that stands for it.
update schedule_fire set run_id = %(run)s
where branch_id = %(branch)s and cron = %(cron)s and zone = %(zone)s and key_of(tasks) = key_of(%(tasks)s) and fire_at = %(fire_at)s;
