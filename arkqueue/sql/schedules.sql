-- Schedules: what is due when, and what fired (design 5.17).

-- name: schedules_of
-- The schedules of a branch.
select id, cron, zone, tasks from schedule where branch_id = %(branch)s order by id;

-- name: add_schedule
-- Schedule a set of tasks.
insert into schedule (branch_id, cron, zone, tasks, next_at) values (%(branch)s, %(cron)s, %(zone)s, %(tasks)s, %(next_at)s)
on conflict do nothing;

-- name: drop_schedules
-- Forget schedules that the head no longer defines.
delete from schedule where id = any(%(ids)s);

-- name: drop_schedules_of_branch
-- Forget the schedules of a branch.
delete from schedule where branch_id = %(branch)s;

-- name: clock
-- The database's time, which alone counts.
select clock_timestamp() as now;

-- name: due_schedules
-- Schedules whose time has come, of archives that are read: one that is stopped may be another repository by now.
select s.id, s.branch_id, b.archive_id, s.cron, s.zone, s.tasks, s.next_at
from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id
where s.next_at <= clock_timestamp() and a.stopped is null
order by s.next_at;

-- name: next_schedule
-- Seconds until the next schedule is due.
select extract(epoch from min(s.next_at) - clock_timestamp())::float8
from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id
where a.stopped is null;

-- name: advance_schedule
-- Move a schedule on, if nobody else did (compare and set).
update schedule set next_at = %(next_at)s, trouble = null where id = %(id)s and next_at = %(fired)s returning id;

-- name: schedule_trouble
-- Keep why a schedule's run could not be made.
update schedule set trouble = %(trouble)s where id = %(id)s;

-- name: fired
-- Remember a fire: each once, however many queue managers there are.
insert into schedule_fire (branch_id, cron, zone, tasks, fire_at)
values (%(branch)s, %(cron)s, %(zone)s, %(tasks)s, %(fire_at)s)
on conflict do nothing returning fire_at;

-- name: fired_run
-- Remember the run that a fire made.
update schedule_fire set run_id = %(run)s
where branch_id = %(branch)s and cron = %(cron)s and zone = %(zone)s and key_of(tasks) = key_of(%(tasks)s) and fire_at = %(fire_at)s;
