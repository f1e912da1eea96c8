-- What is removed of attempts for good, while their tasks stay (design 5.27). Called by queue/removal.py. What is removed is unreadable as soon as its attempt
-- says so (`log_removal_id`, `outputs_removal_id`: the entry of the audit log); the pieces of a log are deleted after that, in steps.

-- name: remove_logs
-- Make the logs and the messages of a task's ended attempts unreadable. `removal`: the audit log entry.
update attempt a set log_removal_id = %(removal)s, message = ''
where a.id = any(array(
    select id from attempt where task_id = %(task)s and "end" is not null and log_removal_id is null order by id for no key update))
returning a.id;

-- name: remove_outputs
-- Remove the outputs and the messages of a task's ended attempts. `removal`: the audit log entry.
update attempt a set outputs_removal_id = %(removal)s, outputs = null, message = ''
where a.id = any(array(
    select id from attempt where task_id = %(task)s and "end" is not null and outputs_removal_id is null order by id for no key update))
returning a.id;

-- name: attempts_to_remove
-- The attempts of a task: which of them go on, and of which the log is to be removed.
select id, "end" is null as is_live, log_removal_id is not null as is_removed from attempt where task_id = %(task)s order by number;

-- name: delete_log
-- Delete the next pieces of some removed logs, as many as one step may.
delete from log_chunk c
using (select l.attempt_id, l.position from log_chunk l join attempt a on a.id = l.attempt_id
       where l.attempt_id = any(%(attempts)s) and a.log_removal_id is not null limit %(most)s) l
where c.attempt_id = l.attempt_id and c.position = l.position;

-- name: still_holding
-- What beside this database's tables may hold what was removed: servers that copy this one, and transactions that began before (of this database).
select (select count(*)::int from pg_stat_replication) as replicas,
       (select count(*)::int from pg_replication_slots) as slots,
       current_setting('archive_mode') <> 'off' as is_archived,
       (select count(*)::int from pg_stat_activity
        where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()) as snapshots;
