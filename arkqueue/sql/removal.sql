-- Removals of the logs and outputs of attempts, while their tasks stay (design 5.27). Called by
-- queue/removal.py. A log or output is unreadable as soon as its attempt says so (`log_removal_id`,
-- `outputs_removal_id`: the audit log entry). The pieces of a log are deleted afterwards, in steps.

-- part: first_end
-- When the first attempt of the task ended.
(select min(ended_at) from attempt where task_id = %(task)s)

-- name: remove_logs
-- Make the logs and the messages of a task's ended attempts unreadable. Readers see the audit log
-- entry `removal` in their place, instead of that of an earlier removal. `is_new`: the log was
-- readable until now.
with ended as materialized (
    select id, log_bytes > 0 and log_removal_id is null as is_new from attempt
    where task_id = %(task)s and "end" is not null and (log_bytes > 0 or message <> '' or log_removal_id is not null)
    order by id for no key update
)
update attempt a set log_removal_id = %(removal)s, message = ''
from ended where a.id = any(array(select id from ended)) and a.id = ended.id
returning a.id, ended.is_new;

-- name: old_logs
-- The attempts of some runs that ended long enough ago and still have chunks of a log, also if an
-- earlier removal was interrupted.
select a.id from task t join attempt a on a.task_id = t.id
where t.run_id = any(%(runs)s) and a."end" is not null and a.ended_at < clock_timestamp() - %(age)s::interval
  and exists (select from log_chunk c where c.attempt_id = a.id)
order by a.id;

-- name: remove_old_logs
-- Make the logs of some ended attempts unreadable, unless they already are. Readers see the audit
-- log entry `removal` in their place.
update attempt a set log_removal_id = %(removal)s
where a.id = any(array(
    select id from attempt where id = any(%(attempts)s) and "end" is not null and log_removal_id is null order by id for no key update))
returning a.id;

-- name: lock_task
-- Lock a task, so that no poll begins in between with the outputs that are about to be removed.
select id from task where id = %(task)s for no key update;

-- name: remove_outputs
-- Remove the outputs and the messages of a task's ended attempts, and their copies in a live poll.
-- `removal` and `is_new` are as in `remove_logs`.
with had as (
    update attempt set outputs = null where task_id = %(task)s and kind = 'poll' and "end" is null and outputs is not null
), ended as materialized (
    select id, outputs is not null as is_new from attempt
    where task_id = %(task)s and "end" is not null and (outputs is not null or message <> '' or outputs_removal_id is not null)
    order by id for no key update
)
update attempt a set outputs_removal_id = %(removal)s, outputs = null, message = ''
from ended where a.id = any(array(select id from ended)) and a.id = ended.id
returning a.id, ended.is_new;

-- name: attempts_to_remove
-- The attempts of a task. `is_live`: the attempt still runs. `until`: the time until which its task
-- manager may stay silent. `is_heard`: its task manager has reported recently. `is_removed`: its
-- log was removed.
select a.id, t.run_id, a."end" is null as is_live, a.log_removal_id is not null as is_removed, a.lease_until + coalesce(a.outlives, '0') as until,
       exists (select from task_manager m where m.process = a.process and m.stopped_at is null
               and m.seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) as is_heard
from attempt a join task t on t.id = a.task_id where a.task_id = %(task)s order by a.number;

-- name: left_on_hosts
-- The lost attempts of a task whose workspaces may still be on their hosts: no task manager of the
-- same home folder has reported after the attempt's end.
select a.id, a.host, (select m.hostname from task_manager m where m.process = a.process) as hostname
from attempt a
where a.task_id = %(task)s and a."end" = 'lost' and not exists (select from task_manager m where m.host = a.host and m.seen_at > a.ended_at)
order by a.id;

-- name: named_locks_of_outputs
-- The tasks whose locks have names that are made from the outputs of a task, at most %(most)s.
select distinct t.id
from edge e join task s on s.id = e.source join task t on t.id = e.target join definition d on d.id = t.definition_id
where e.source = %(task)s and e.kind = 'depends' and strpos(d.body->>'lock', 'needs.' || s.name || '.') > 0 order by t.id limit %(most)s;

-- name: received_by
-- The tasks that have begun an attempt with outputs of a task among their INPUTS, directly or
-- through the gate of a list, as in `inputs`. `all`: the number of these tasks.
with receiver as (
    select e.target as id from edge e where e.source = %(task)s and e.kind = 'depends' and e.declared
    union
    select e.target
    from task s join edge i on i.source = s.id and i.kind = 'depends'
    join task g on g.id = i.target and g.kind = 'gate' and g.name in (s.name || ':completed', s.name || ':settled')
    join edge e on e.source = g.id and e.kind = 'depends' and e.declared
    where s.id = %(task)s and s.item <> ''
)
select t.id, (count(*) over ())::int as all
from receiver join task t on t.id = receiver.id and t.kind <> 'gate'
where exists (select from attempt a where a.task_id = t.id and a.claimed_at > {part first_end})
order by t.id limit %(most)s;

-- name: reported_by
-- The REPORT of the run of a task, if its command has begun since the first attempt of the task
-- ended: a report has the outputs and the messages of all tasks of the run.
select r.id
from task t join run on run.id = t.run_id join task r on r.id = run.report_id and r.program
where t.id = %(task)s and exists (select from attempt a where a.task_id = r.id and a.claimed_at > {part first_end});

-- name: notified_of
-- The receivers of notifications of a failure that may have been sent with the end of a log of a
-- task and the message of its attempt. A mail for many notifications has neither.
select d.receiver
from task t join delivery d on d.run_id = t.run_id
where t.id = %(task)s and d.occasion = 'failed' and d.tries > 0 and d.carried_by is null
  and d.attempts && array(select id from attempt where task_id = %(task)s)
group by d.receiver order by d.receiver limit %(most)s;

-- name: scratch_of_tasks
-- The scratch folders in which some tasks run, each with one of its tasks and the host that last
-- served it, at most %(most)s.
select distinct on (s.id) s.id, t.id as task, s.item,
       coalesce((select m.hostname from task_manager m where m.store = s.store order by m.seen_at desc limit 1), s.store) as host
from task t join definition d on d.id = t.definition_id and d.scratch is not null
join scratch s on s.run_id = t.run_id and s.item = case d.scratch when 'item' then t.item else '' end
where t.id = any(%(tasks)s) and s.made_at is not null and s.removed_at is null
order by s.id, t.id limit %(most)s;

-- name: delete_log
-- Delete the next chunks of some removed logs, at most `most`.
delete from log_chunk c
using (select l.attempt_id, l.position from log_chunk l join attempt a on a.id = l.attempt_id
       where l.attempt_id = any(%(attempts)s) and a.log_removal_id is not null limit %(most)s) l
where c.attempt_id = l.attempt_id and c.position = l.position;

-- name: still_holding
-- The places other than this database's tables that may still hold the removed text: servers that
-- copy this one, the archive of the write-ahead log, and transactions of this database that began
-- before.
select (select count(*)::int from pg_stat_replication) as replicas,
       (select count(*)::int from pg_replication_slots) as slots,
       current_setting('archive_mode') <> 'off' as is_archived,
       (select count(*)::int from pg_stat_activity
        where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()) as snapshots;
