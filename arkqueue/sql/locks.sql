-- Locks of an archive (design 5.25): names with capacities. Called by queue/locks.py inside a transaction that has locked the archive's row.
--
-- A task *asks* (`task.asks`) when its edges are met and its `cancels` have fired: it waits in the line of each lock that it names. A ready task has been
-- granted its locks, a running one occupies them. So a lock's occupancy is never counted aside: it is what the rows of `lock_use` and the states of their
-- tasks say, and whatever moves a task frees its locks in the same transaction.
--
-- Lines go by the claim's order. A task is granted its locks when its place in each line is within the room that running tasks leave. What is ready and
-- has a place beyond that gives its locks back: a task before it wants them, or the capacity was lowered.

-- part: unstarted
-- The tasks of some archives that wait for locks, or have been granted them and have not started; `stands`: whether it stands in line. It does not while
-- something of it is paused, nor while task managers are there of which none can run it.
unstarted as materialized (
    select t.id, t.state = 'ready' as granted, t.priority, t.entry_id, t.run, t.position,
           not a.withheld
           and not exists (select from lock_use l join lock k on k.archive_id = l.archive_id and k.name = l.name where l.task_id = t.id and k.paused_at is not null)
           and (not exists (select from living) or exists (select from living m where string_to_array(split_part(t.pool, ' ', 2), ',') <@ m.labels)) as stands
    from (select distinct task_id from lock_use where archive_id = any(array(select unnest(%(archives)s::bigint[])))) u
    join task t on t.id = u.task_id join archive a on a.id = t.archive_id
    where {from claim t} or {from enable t} and t.asks
)

-- part: living
-- The labels of the task managers that live and claim. Why a host can start no task is found out by trying, so that does not count here.
living as materialized (
    select m.labels from task_manager m
    where m.stopped_at is null and m.seen_at > clock_timestamp() - make_interval(secs => %(silence)s) and m.low_disk is null
      and not exists (select from drain d where d.host = m.host)
)

-- part: judged
-- Whether each of the unstarted tasks fits: its place in each of its lines is within the room. A granted task that is not among the %(locked)s (null: all of them are)
-- may be claimed at any moment, so that nobody takes its place.
judged as materialized (
    select u.id, u.granted, coalesce(p.fits, false) as fits
    from unstarted u
    left join (
        select p.id, bool_and(p.place <= r.room) as fits
        from (
            select s.id, l.archive_id, l.name,
                   row_number() over (partition by l.archive_id, l.name
                                      order by s.granted and s.id <> all(coalesce(%(locked)s::bigint[], array[s.id])) desc, s.priority, s.entry_id, s.run, s.position, s.id) as place
            from unstarted s join lock_use l on l.task_id = s.id where s.stands) p
        join (
            select l.archive_id, l.name, case when k.name is null then 1 else coalesce(k.capacity, 2147483647) end - count(t.id) as room
            from lock_use l
            left join lock k on k.archive_id = l.archive_id and k.name = l.name
            left join task t on t.id = l.task_id and {from complete t}
            where l.archive_id = any(array(select unnest(%(archives)s::bigint[])))
            group by l.archive_id, l.name, k.name, k.capacity) r on r.archive_id = p.archive_id and r.name = p.name
        group by p.id) p on p.id = u.id
)

-- name: ask
-- Let tasks stand in the lines of the locks that they name, and remember that their archives use locks.
with asking as (
    insert into lock_use (task_id, name, archive_id)
    select t.id, l.name, t.archive_id
    from task t join definition d on d.id = t.definition_id cross join lateral jsonb_array_elements_text(d.body->'lock') l(name)
    where t.id = any(%(tasks)s) and t.asks
    on conflict do nothing
)
update archive set uses_locks = true where id in (select archive_id from task where id = any(%(tasks)s)) and not uses_locks;

-- name: leave_lines
-- Forget of some archives the locks of tasks that neither wait for them nor have them any more; returns whether one of the others is ready.
with gone as (
    delete from lock_use u using task t
    where u.archive_id = any(%(archives)s) and t.id = u.task_id and not ({from claim t} or {from complete t} or {from enable t} and t.asks)
)
select exists (select from lock_use u join task t on t.id = u.task_id where u.archive_id = any(%(archives)s) and {from claim t}) as is_granted,
       exists (select from lock_use u join task t on t.id = u.task_id where u.archive_id = any(%(archives)s) and {from enable t} and t.asks) as is_asked;

-- name: lock_granted
-- Lock the tasks that are to give their locks back, so that no claim takes one of them.
with {part living}, {part unstarted}, {part judged}
select t.id from task t where t.id = any(array(select id from judged where granted and not fits)) and {from claim t} order by t.id for no key update;

-- name: grant
-- Make tasks ready that have room in all of their lines, and take those of the %(locked)s back to waiting that have not.
with {part living}, {part unstarted}, {part judged}
update task t set state = case when j.fits then {to enable} else {to give_back} end, asks = not j.fits,
    ready_at = case when j.fits then clock_timestamp() end
from judged j
where t.id = any(array(select id from judged where granted <> fits)) and t.id = j.id
  and case when j.fits then {from enable t} and t.asks else {from give_back t} and t.id = any(%(locked)s::bigint[]) end
returning t.id, t.archive_id, j.fits;

-- name: archives_with_locks
-- The archives with tasks that wait for locks or have been granted them.
select distinct u.archive_id from lock_use u join task t on t.id = u.task_id where {from claim t} or {from enable t} and t.asks;

-- name: set_lock
-- Set the capacity of a lock; null: unlimited.
insert into lock (archive_id, name, capacity) values (%(archive)s, %(name)s, %(capacity)s)
on conflict (archive_id, name) do update set capacity = excluded.capacity;

-- name: pause_lock
-- Pause a lock; a later pause gives its own reason.
insert into lock as k (archive_id, name, capacity, paused_at, paused_by, pause_reason)
values (%(archive)s, %(name)s, 1, clock_timestamp(), %(by)s, %(reason)s)
on conflict (archive_id, name) do update set paused_at = coalesce(k.paused_at, clock_timestamp()), paused_by = excluded.paused_by, pause_reason = excluded.pause_reason;

-- name: resume_lock
-- Take the pause of a lock back.
update lock set paused_at = null, paused_by = null, pause_reason = null
where archive_id = %(archive)s and name = %(name)s and paused_at is not null returning name;

-- name: show_locks
-- The locks of some archives (null: all) that are set, or that a task occupies, has been granted or waits for.
select n.archive_id, a.name as archive, n.name, case when k.name is null then 1 else k.capacity end as capacity,
       k.paused_at, k.paused_by, k.pause_reason
from (select archive_id, name from lock
      union
      select u.archive_id, u.name from lock_use u join task t on t.id = u.task_id where {from claim t} or {from complete t} or {from enable t} and t.asks) n
join archive a on a.id = n.archive_id and a.removed_at is null
left join lock k on k.archive_id = n.archive_id and k.name = n.name
where (%(archives)s::bigint[] is null or n.archive_id = any(%(archives)s)) and (%(name)s::text is null or n.name = %(name)s)
order by a.name, n.name;

-- name: lock_tasks_of
-- The tasks of a lock: those that occupy it, those that have been granted it, and those that wait, in the order of its line; each with its place.
select t.id, t.state, row_number() over (order by t.state <> 'running', t.state <> 'ready', t.priority, t.entry_id, t.run, t.position, t.id) as place
from lock_use u join task t on t.id = u.task_id
where u.archive_id = %(archive)s and u.name = %(name)s and ({from claim t} or {from complete t} or {from enable t} and t.asks)
order by place limit %(most)s;

-- name: locks_of_task
-- The locks that a task asks for: their capacities and pauses, how many tasks occupy or have been granted each, and how many wait before it.
select u.archive_id, u.name, case when k.name is null then 1 else k.capacity end as capacity, k.paused_at, k.paused_by, k.pause_reason,
       (select array_agg(o.id order by o.state <> 'running', o.priority, o.entry_id, o.run, o.position, o.id)
        from lock_use w join task o on o.id = w.task_id
        where w.archive_id = u.archive_id and w.name = u.name and ({from claim o} or {from complete o})) as holders,
       (select array_agg(o.id order by o.priority, o.entry_id, o.run, o.position, o.id)
        from lock_use w join task o on o.id = w.task_id
        where w.archive_id = u.archive_id and w.name = u.name and {from enable o} and o.asks
          and (o.priority, o.entry_id, o.run, o.position, o.id) < (t.priority, t.entry_id, t.run, t.position, t.id)) as ahead
from task t join lock_use u on u.task_id = t.id left join lock k on k.archive_id = u.archive_id and k.name = u.name
where t.id = %(task)s order by u.name;
