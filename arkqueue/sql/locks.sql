-- Locks (design 5.25): names with capacities, of an archive or of the whole installation (scope 0).
-- Called by queue/locks.py and `Graph.grant`, inside a transaction that has locked the archives'
-- rows.
--
-- A task *asks* (`task.asks`) when its edges are met and its `cancels` have fired: it waits in the
-- line of each lock that it names. A ready task has been granted its locks, and a running task
-- occupies them. No counter holds the occupancy of a lock: it follows from the rows of `lock_use`
-- and the states of their tasks, so each change of a task's state frees its locks in the same
-- transaction.
--
-- A *line* is the tasks of one archive at one lock, in the order of claims. A task fits if its
-- place in each of its lines is within the room there. A ready task that does not fit gives its
-- locks back: a task before it wants them, or the room has shrunk. Only as many tasks as there is
-- room can fit, the first ones of the line, so no more are read, however many wait. A change of a
-- graph judges the lines that it touched.
--
-- The room in the line of an archive's own lock is the capacity minus the running tasks. The room
-- in a line of a lock of the whole installation is the number of places that the archive was given,
-- which its ready tasks show. A transaction of its own gives one more place (`pass_on`). This
-- transaction has locked one archive and the row of `lock_turn` without a name.

-- part: living
-- The labels of the task managers that are alive and claim tasks, each with the label of its store
-- of scratch folders and attachments; of all that are alive while none of them claims any. A host
-- that can start no task for another reason counts, too: only trying shows that.
living as materialized (
    select labels
    from (select labels, claims, bool_or(claims) over () as one_claims
          from (select case when m.store is null then m.labels else m.labels || ('@' || m.store) end as labels,
                       m.low_disk is null and not exists (select from drain d where d.host = m.host) as claims
                from task_manager m
                where m.stopped_at is null and m.seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) m) m
    where claims or not one_claims
)

-- part: stands
-- Whether the task of `u` stands in line. It does not while its archive or one of its locks is
-- paused, or if task managers are alive and none of them has its labels.
(select (t.asks or t.state = 'ready') and not a.withheld
        and not exists (select from lock_use v join lock k on k.scope = v.scope and k.name = v.name where v.task_id = t.id and k.paused_at is not null)
        and (not exists (select from living) or exists (select from living m where string_to_array(split_part(t.pool, ' ', 2), ',') <@ m.labels))
 from task t join archive a on a.id = t.archive_id where t.id = u.task_id)

-- part: has
-- Whether the task of the granted row `u` has the lock. The state of the task decides, so that a row
-- which somebody garbled keeps no other task waiting.
(select t.state in ('ready', 'running') from task t where t.id = u.task_id)

-- part: room
-- The number of tasks without an attempt that have room in the line `l`; null: any number.
cross join lateral (
    select case when k.name is not null and k.capacity is null then null
                when l.scope <> 0 then coalesce(k.capacity, 1) - h.running
                else h.ready - coalesce(l.name = %(less)s::text, false)::int
                     + case when not %(may_take)s then 0 when l.name = %(as_free)s::text or o.n < coalesce(k.capacity, 1) then 1 else 0 end end as room
    from (select count(*) filter (where t.state = 'running') as running,
                 count(*) filter (where l.scope = 0 and t.state = 'ready' and {part stands}) as ready
          from lock_use u join task t on t.id = u.task_id
          where u.scope = l.scope and u.name = l.name and u.archive_id = l.archive_id and u.granted) h
    cross join (select count(*) as n from lock_use u where %(may_take)s and l.scope = 0 and u.scope = 0 and u.name = l.name and u.granted and {part has}) o
    left join lock k on k.scope = l.scope and k.name = l.name) r

-- part: unstarted
-- The first waiting tasks that stand in the line `l`, as many as there is room, and all tasks that
-- have been granted the lock and have not started.
cross join lateral (
    (select u.task_id, u.granted, u.priority, u.entry_id, u.run, u.position, true as stands
     from lock_use u
     where u.scope = l.scope and u.name = l.name and u.archive_id = l.archive_id and not u.granted and {part stands}
     order by u.priority, u.entry_id, u.run, u.position, u.task_id limit case when r.room < 0 then 0 else r.room end)
    union all
    select u.task_id, u.granted, u.priority, u.entry_id, u.run, u.position, {part stands}
    from lock_use u
    where u.scope = l.scope and u.name = l.name and u.archive_id = l.archive_id and u.granted
      and (select t.state = 'ready' from task t where t.id = u.task_id)) s

-- name: locks_with_fields
-- The tasks that ask for locks whose names have fields, with these names, and with their items as
-- JSON.
select t.id, (select body::text from item where id = t.item_id) as item, array(select name from jsonb_array_elements_text(d.body->'lock') l(name) where name like '%%${{%%' order by name) as locks
from task t join definition d on d.id = t.definition_id
where t.id = any(%(tasks)s) and t.asks and d.body->>'lock' like '%%${{%%';

-- name: sources_for_locks
-- For each of some tasks, the newest attempts of its dependencies of some names. If several
-- dependencies have one name, the one at the later place counts. Each edge is read once.
select distinct on (e.target, s.name) e.target as task, s.name, s.attempt_id as attempt
from edge e cross join lateral (
    select name, number, run, attempt_id from task where id = e.source and name = any(%(names)s::text[]) offset 0) s
where e.target = any(%(tasks)s) and e.kind = 'depends' and e.declared
order by e.target, s.name, s.number desc, s.run desc;

-- name: outputs_for_locks
-- The outputs of some attempts with some keys, if they are texts or numbers, truncated. Each
-- attempt's outputs are unpacked once.
select a.id as attempt, o.key, case when jsonb_typeof(o.value) in ('string', 'number') then left(o.value #>> '{}', %(most)s) end as value
from attempt a cross join lateral jsonb_each(a.outputs) o
where a.id = any(%(attempts)s::bigint[]) and a.outputs is not null and o.key = any(%(keys)s::text[]);

-- name: fail_unnamed
-- Fail tasks whose locks have no valid names, with the reason.
update task t set state = {to fault}, asks = false, fault = f.fault, settled_at = clock_timestamp()
from unnest(%(tasks)s::bigint[], %(faults)s::text[]) f(id, fault)
where t.id = f.id and {from fault t} and t.asks
returning t.id;

-- name: leave_old_lines
-- Remove tasks from their lines that ask again for locks whose names have fields: the names may be
-- different now. Returns the lines.
delete from lock_use where task_id = any(%(tasks)s) returning scope, name, archive_id;

-- name: ask
-- Put tasks into the lines of the locks that they name, and mark their archives as using locks.
-- `named`, `names`: the evaluated names with fields. Returns the lines.
with named as materialized (
    select distinct t.id, t.archive_id, case when l.name like 'global/%%' then 0 else t.archive_id end as scope, l.name, t.priority, t.entry_id, t.run, t.position
    from task t join definition d on d.id = t.definition_id cross join lateral (
        select name from jsonb_array_elements_text(d.body->'lock') l(name) where name not like '%%${{%%'
        union all
        select n.name from unnest(%(named)s::bigint[], %(names)s::text[]) n(id, name) where n.id = t.id) l
    where t.id = any(%(tasks)s) and t.asks
), marked as (
    update archive set uses_locks = true where id in (select archive_id from named) and not uses_locks
), asking as (
    insert into lock_use (task_id, name, archive_id, scope, granted, priority, entry_id, run, position)
    select id, name, archive_id, scope, false, priority, entry_id, run, position from named
    on conflict (task_id, scope, name) do update set granted = false, priority = excluded.priority, entry_id = excluded.entry_id
)
select distinct scope, name, archive_id from named;

-- name: order_again
-- Set the places of tasks in their lines by their present priorities. Returns their lines, also
-- those whose places stay: another task manager may run the tasks now.
with moved as (
    update lock_use u set priority = t.priority from task t
    where u.task_id = any(%(tasks)s) and t.id = u.task_id and u.priority <> t.priority
)
select distinct scope, name, archive_id from lock_use where task_id = any(%(tasks)s);

-- name: leave_lines
-- Delete the rows of tasks of some archives that neither wait for their locks nor have them any
-- more. Returns the lines.
with gone as materialized (
    select id from task
    where archive_id = any(array(select unnest(%(archives)s::bigint[]))) and in_line and not (state = 'ready' or state = 'running' or state = 'waiting' and asks)
), marked as (
    update task set in_line = false where id = any(array(select id from gone))
)
delete from lock_use where task_id = any(array(select id from gone)) returning scope, name, archive_id;

-- name: lines_of
-- All lines of some archives.
select distinct u.scope, u.name, u.archive_id
from task t join lock_use u on u.task_id = t.id
where t.archive_id = any(array(select unnest(%(archives)s::bigint[]))) and t.settled_at is null and t.in_line;

-- name: judge_lines
-- Judge the first tasks of some lines, and the %(asking)s ones: `granted`, whether they have been
-- granted their locks, and `fits`. With %(whole)s, also judge all tasks of unlimited locks. A
-- granted task that is not among the %(locked)s (null: all are) may be claimed at any moment, so it
-- keeps its place.
with {part living}, line as materialized (
    select distinct l.scope, l.name, l.archive_id from unnest(%(scopes)s::bigint[], %(names)s::text[], %(archives)s::bigint[]) l(scope, name, archive_id)
), candidate as materialized (
    select s.task_id from line l {part room} {part unstarted} where r.room is not null or %(whole)s
    union
    select unnest(%(asking)s::bigint[])
), involved as materialized (
    select l.scope, l.name, l.archive_id, r.room
    from (select distinct u.scope, u.name, u.archive_id from candidate c join lock_use u on u.task_id = c.task_id) l {part room}
), place as materialized (
    select l.scope, l.name, s.task_id,
           row_number() over (partition by l.scope, l.name, l.archive_id
                              order by s.granted and s.task_id <> all(coalesce(%(locked)s::bigint[], array[s.task_id])) desc,
                                       s.priority, s.entry_id, s.run, s.position, s.task_id) <= l.room as has_room
    from (select * from involved where room is not null) l cross join lateral (select l.room) r {part unstarted}
    where s.stands
)
select u.task_id as id, u.archive_id, bool_or(u.granted) as granted, bool_or(u.scope = 0) as is_global,
       bool_and(i.room is null or coalesce(p.has_room, false)) and bool_and({part stands}) as fits
from candidate c join lock_use u on u.task_id = c.task_id
join involved i on i.scope = u.scope and i.name = u.name and i.archive_id = u.archive_id
left join place p on p.task_id = u.task_id and p.scope = u.scope and p.name = u.name
group by u.task_id, u.archive_id;

-- name: lock_granted
-- Lock tasks that are to give their locks back, so that no claim takes one. Tasks that a claim has
-- already taken are left out.
select t.id from task t where t.id = any(%(tasks)s) and {from give_back t} order by t.id for no key update;

-- name: grant
-- Make tasks ready that have room in all of their lines. All get the same `ready_at`, so that
-- `places` orders them by id, not by the order of rows on the disk.
with granted as (
    update lock_use set granted = true where task_id = any(%(tasks)s)
)
update task t set state = {to enable}, asks = false, ready_at = (select clock_timestamp())
where t.id = any(%(tasks)s) and {from enable t} and t.asks
returning t.id, t.archive_id;

-- name: give_back
-- Set granted tasks that have not started back to waiting in their lines.
with given_back as (
    update lock_use set granted = false where task_id = any(%(tasks)s)
)
update task t set state = {to give_back}, asks = true, ready_at = null
where t.id = any(%(tasks)s) and {from give_back t}
returning t.id;

-- name: lines_behind
-- The lines of locks of the installation in which tasks that have given their locks back wait
-- again.
select scope, name, archive_id from lock_use where task_id = any(%(tasks)s) and scope = 0 and not granted;

-- name: archives_with_locks
-- The archives whose tasks have ever asked for locks.
select id from archive where uses_locks and removed_at is null;

-- name: labels_that_live
-- The different sets of labels of the task managers that are alive and claim tasks.
with {part living}
select distinct labels from living order by labels;

-- name: lock_turns
-- Lock the row that each transaction locks before it gives places of locks of the installation, so
-- that only one transaction does so at a time.
select from lock_turn where name = '' for no key update;

-- name: names_waited_for
-- The locks of the installation for which tasks wait, and those whose capacity was set, because the
-- capacity may be lower than the number of granted places.
with recursive waited as (
    (select name from lock_use where scope = 0 and not granted order by name limit 1)
    union all
    select (select u.name from lock_use u where u.scope = 0 and not u.granted and u.name > w.name order by u.name limit 1) from waited w where w.name is not null
)
select name from waited where name is not null union select name from lock where scope = 0 and capacity is not null order by name;

-- name: archives_waiting
-- The archives with tasks that wait for a lock of the installation, in their order: the one after
-- the archive that was granted the lock last comes first.
with recursive waiting as (
    (select archive_id from lock_use where scope = 0 and name = %(name)s and not granted order by archive_id limit 1)
    union all
    select (select u.archive_id from lock_use u where u.scope = 0 and u.name = %(name)s and not u.granted and u.archive_id > w.archive_id order by u.archive_id limit 1)
    from waiting w where w.archive_id is not null
)
select archive_id from waiting where archive_id is not null
order by archive_id <= coalesce((select t.archive_id from lock_turn t where t.name = %(name)s), 0), archive_id;

-- name: places
-- The state of a lock of the installation. `n`: the number of tasks that have it. `capacity`: null
-- if unlimited. `granted`: the archives that were granted the lock and have not started, the last
-- one first; of those granted at once, first the one whose task was planned last. `late`: those of
-- them whose last task in line, which would give its place back, has not started %(patience)s
-- seconds after the grant; the first one first. A place that was just given makes no archive late:
-- otherwise two archives would take it from each other for ever.
select (select case when k.name is null then 1 else k.capacity end from (select 1) o left join lock k on k.scope = 0 and k.name = %(name)s) as capacity,
       count(*) as n,
       array_agg(u.archive_id order by t.ready_at desc, t.id desc) filter (where t.state = 'ready') as granted,
       (select array_agg(l.archive_id order by l.ready_at, l.id)
        from (select distinct on (u.archive_id) u.archive_id, t.ready_at, t.id
              from lock_use u join task t on t.id = u.task_id
              where u.scope = 0 and u.name = %(name)s and u.granted and t.state = 'ready'
              order by u.archive_id, u.priority desc, u.entry_id desc, u.run desc, u.position desc, u.task_id desc) l
        where l.ready_at < clock_timestamp() - make_interval(secs => %(patience)s)) as late
from lock_use u join task t on t.id = u.task_id
where u.scope = 0 and u.name = %(name)s and u.granted and t.state in ('ready', 'running');

-- name: note_turn
-- Store the archive to which a lock of the installation was granted last.
insert into lock_turn (name, archive_id) values (%(name)s, %(archive)s) on conflict (name) do update set archive_id = excluded.archive_id;

-- name: forget_turns
-- Delete the turns at locks that no task names any more.
delete from lock_turn t where t.name <> '' and not exists (select from lock_use u where u.scope = 0 and u.name = t.name);

-- name: archives_at
-- The archives with tasks at a lock of the installation.
select distinct archive_id from lock_use where scope = 0 and name = %(name)s;

-- name: set_lock
-- Set the capacity of a lock; null: unlimited.
insert into lock (scope, name, capacity) values (%(scope)s, %(name)s, %(capacity)s)
on conflict (scope, name) do update set capacity = excluded.capacity;

-- name: pause_lock
-- Pause a lock. If it is paused already, only a pause with a reason changes the row.
insert into lock as k (scope, name, capacity, paused_at, paused_by, pause_reason)
values (%(scope)s, %(name)s, 1, clock_timestamp(), %(by)s, %(reason)s)
on conflict (scope, name) do update set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
where k.paused_at is null or excluded.pause_reason <> '';

-- name: resume_lock
-- End the pause of a lock.
update lock set paused_at = null, paused_by = null, pause_reason = null
where scope = %(scope)s and name = %(name)s and paused_at is not null returning name;

-- part: at_lock
-- Whether a task of the archive `o` has the lock `k` of the installation or waits for it. Each half
-- can use an index of its own.
(exists (select from lock_use u where u.scope = 0 and u.name = k.name and u.archive_id = o.id and u.granted)
 or exists (select from lock_use u where u.scope = 0 and u.name = k.name and u.archive_id = o.id and not u.granted))

-- name: paused_locks
-- The paused locks of some archives, and those of the installation in each archive of which a task
-- has the lock or waits for it: the name of a lock of the installation is nobody else's business.
select p.archive_id, p.scope, a.name as archive, p.name, p.paused_at, p.paused_by, p.pause_reason
from (select k.scope as archive_id, k.scope, k.name, k.paused_at, k.paused_by, k.pause_reason from lock k where k.scope <> 0 and k.paused_at is not null
      union all
      select o.id, k.scope, k.name, k.paused_at, k.paused_by, k.pause_reason from lock k cross join archive o
      where k.scope = 0 and k.paused_at is not null and o.uses_locks and {part at_lock}) p
join archive a on a.id = p.archive_id
where p.archive_id = any(%(archives)s) order by p.archive_id, p.scope <> 0, p.name;

-- name: paused_everywhere
-- The paused locks of the installation. If only some archives are asked about (null: all), a task of
-- one of them must have the lock or wait for it.
select k.scope, null as archive, k.name, k.paused_at, k.paused_by, k.pause_reason
from lock k
where k.scope = 0 and k.paused_at is not null
  and (%(archives)s::bigint[] is null or exists (select from archive o where o.id = any(%(archives)s) and o.uses_locks and {part at_lock}))
order by k.name;

-- name: show_locks
-- The locks of some archives (null: all) whose settings are stored, or that a task occupies, has
-- been granted or waits for. Those of the installation come first.
select n.scope, a.name as archive, n.name, case when k.name is null then 1 else k.capacity end as capacity,
       k.paused_at, k.paused_by, k.pause_reason
from (select scope, name from lock
      where %(archives)s::bigint[] is null or scope = any(%(archives)s) or scope = 0 and %(name)s::text is not null
      union
      select scope, name from lock_use where %(archives)s::bigint[] is null or archive_id = any(%(archives)s)) n
left join archive a on a.id = n.scope
left join lock k on k.scope = n.scope and k.name = n.name
where (%(name)s::text is null or n.name = %(name)s) and (%(scope)s::bigint is null or n.scope = %(scope)s) and (n.scope = 0 or a.removed_at is null)
order by n.scope <> 0, a.name, n.name;

-- name: obstructing_locks
-- The locks for which a further task would have to wait: they are paused, or have no room. `names`,
-- `scopes`: locks of an archive or of the installation. `holders`: the tasks of the archive that
-- occupy a lock or have been granted it. `elsewhere`: the number of such tasks in other archives.
select n.scope, n.name, case when k.name is null then 1 else k.capacity end as capacity, k.paused_at, k.paused_by, k.pause_reason, u.holders, u.elsewhere
from unnest(%(scopes)s::bigint[], %(names)s::text[]) n(scope, name)
left join lock k on k.scope = n.scope and k.name = n.name
cross join lateral (
    select array_agg(w.task_id order by t.state <> 'running', w.task_id) filter (where w.archive_id = %(archive)s) as holders,
           count(*) filter (where w.archive_id <> %(archive)s)::int as elsewhere, count(*) as n
    from lock_use w join task t on t.id = w.task_id where w.scope = n.scope and w.name = n.name and w.granted and t.state in ('ready', 'running')) u
where k.paused_at is not null or u.n >= case when k.name is null then 1 else k.capacity end
order by n.scope <> 0, n.name;

-- name: locks_of_runs
-- The locks that tasks of some runs occupy, have been granted or wait for; first the locks that a
-- task waits for.
select n.scope, a.name as archive, n.name, case when k.name is null then 1 else k.capacity end as capacity,
       k.paused_at, k.paused_by, k.pause_reason
from (select u.scope, u.name, bool_or(not u.granted) as is_awaited from task t join lock_use u on u.task_id = t.id
      where t.run_id = any(%(runs)s) and t.in_line and t.settled_at is null
      group by u.scope, u.name order by is_awaited desc, u.scope, u.name limit %(most)s) n
left join archive a on a.id = n.scope
left join lock k on k.scope = n.scope and k.name = n.name
order by n.is_awaited desc, n.scope <> 0, a.name, n.name;

-- part: waiting_at
-- The archives with tasks that wait for a lock, each found by one look into the index; the last row
-- is null.
waiting as (
    (select archive_id from lock_use where scope = %(scope)s and name = %(name)s and not granted order by archive_id limit 1)
    union all
    select (select u.archive_id from lock_use u
            where u.scope = %(scope)s and u.name = %(name)s and not u.granted and u.archive_id > w.archive_id order by u.archive_id limit 1)
    from waiting w where w.archive_id is not null
)

-- name: lock_tasks_of
-- The tasks at a lock, at most %(most)s of each `kind`, of some archives (null: all). `having`: they
-- occupy it, then those that have been granted it. `standing`: they wait in line; the first one of
-- each archive comes first, in the order of the archives' turns, as in `archives_waiting`. `first`:
-- the first ones in the lines of all other archives. `outside`: they wait and do not stand in line,
-- because their archive is stopped or paused, or one of their locks is `paused`, or else because no
-- task manager could run them. At most %(looked_at)s waiting tasks are looked at, shared among the
-- archives.
with recursive {part living}, {part waiting_at}, line as materialized (
    select w.archive_id, greatest(%(looked_at)s / count(*) over (), 2) as share, a.stopped is not null as is_stopped, a.is_paused,
           not a.withheld and not exists (select from lock k where k.scope = %(scope)s and k.name = %(name)s and k.paused_at is not null) as is_open,
           %(archives)s::bigint[] is null or w.archive_id = any(%(archives)s) as is_shown,
           w.archive_id <= coalesce((select t.archive_id from lock_turn t where %(scope)s = 0 and t.name = %(name)s), 0) as had_turn
    from waiting w join archive a on a.id = w.archive_id
), standing as materialized (
    select l.is_shown, l.had_turn, s.*
    from line l cross join lateral (
        select u.task_id, u.archive_id, row_number() over (order by u.priority, u.entry_id, u.run, u.position, u.task_id) as place
        from (select u.* from (select * from lock_use u where l.is_open and u.scope = %(scope)s and u.name = %(name)s and u.archive_id = l.archive_id and not u.granted
                               order by u.priority, u.entry_id, u.run, u.position, u.task_id limit l.share) u
              where {part stands}
              order by u.priority, u.entry_id, u.run, u.position, u.task_id limit case when l.is_shown then least(%(most)s, l.share) else 1 end) u) s
), outside as materialized (
    select l.had_turn, l.is_stopped, l.is_paused, s.*
    from line l cross join lateral (
        select u.task_id, u.archive_id, row_number() over (order by u.priority, u.entry_id, u.run, u.position, u.task_id) as place
        from (select * from lock_use u where l.is_shown and u.scope = %(scope)s and u.name = %(name)s and u.archive_id = l.archive_id and not u.granted
              order by u.priority, u.entry_id, u.run, u.position, u.task_id limit least(%(most)s, l.share)) u
        where not l.is_open or not {part stands}) s
)
(select 'having' as kind, u.task_id as id, u.archive_id, t.state, false as had_turn, false as is_stopped, false as is_paused, null::text[] as paused
 from lock_use u join task t on t.id = u.task_id
 where u.scope = %(scope)s and u.name = %(name)s and u.granted and t.state in ('ready', 'running') and (%(archives)s::bigint[] is null or u.archive_id = any(%(archives)s))
 order by t.state <> 'running', u.archive_id, u.priority, u.entry_id, u.run, u.position, u.task_id limit %(most)s)
union all
(select 'standing', task_id, archive_id, 'waiting', had_turn, false, false, null from standing where is_shown order by place, had_turn, archive_id limit %(most)s)
union all
(select 'first', task_id, archive_id, 'waiting', had_turn, false, false, null from standing where not is_shown order by had_turn, archive_id limit %(most)s)
union all
(select 'outside', o.task_id, o.archive_id, 'waiting', o.had_turn, o.is_stopped, o.is_paused,
        array(select case when v.scope = 0 then v.name else (select name from archive where id = v.scope) || '/' || v.name end
              from lock_use v join lock k on k.scope = v.scope and k.name = v.name where v.task_id = o.task_id and k.paused_at is not null order by v.name)
 from (select * from outside order by place, had_turn, archive_id limit %(most)s) o order by o.place, o.had_turn, o.archive_id);

-- name: lock_counts
-- The numbers of tasks of some archives (null: all) that have a lock, and that wait for it, and
-- those of all other archives. At most %(counted)s of each are counted.
with recursive {part waiting_at}, line as materialized (
    select w.archive_id, %(archives)s::bigint[] is not null and w.archive_id <> all(%(archives)s) as is_elsewhere from waiting w where w.archive_id is not null
), holder as materialized (
    select %(archives)s::bigint[] is not null and u.archive_id <> all(%(archives)s) as is_elsewhere
    from lock_use u where u.scope = %(scope)s and u.name = %(name)s and u.granted and {part has}
)
select (select count(*) from (select from holder where not is_elsewhere limit %(counted)s) h) as having,
       (select count(*) from (select from holder where is_elsewhere limit %(counted)s) h) as elsewhere,
       (select count(*) from (select from line l cross join lateral (
            select from lock_use u where u.scope = %(scope)s and u.name = %(name)s and u.archive_id = l.archive_id and not u.granted limit %(counted)s) u
        where not l.is_elsewhere limit %(counted)s) u) as waiting,
       (select count(*) from (select from line l cross join lateral (
            select from lock_use u where u.scope = %(scope)s and u.name = %(name)s and u.archive_id = l.archive_id and not u.granted limit %(counted)s) u
        where l.is_elsewhere limit %(counted)s) u) as waiting_elsewhere;

-- name: locks_without_room
-- The locks other than one (%(scope)s, %(name)s) that have no room for some tasks that stand in
-- line, judged as in `judge_lines`. Of the tasks that wait before each of them, the first
-- %(looked_at)s are looked at.
with {part living}
select l.task_id as id, l.scope, a.name as archive, l.name
from (select u.* from unnest(%(tasks)s::bigint[]) t(id) join lock_use u on u.task_id = t.id and not (u.scope = %(scope)s and u.name = %(name)s)) l
{part room}
cross join lateral (
    select count(*) as n
    from (select from (select * from lock_use u
                       where u.scope = l.scope and u.name = l.name and u.archive_id = l.archive_id and not u.granted
                         and (u.priority, u.entry_id, u.run, u.position, u.task_id) < (l.priority, l.entry_id, l.run, l.position, l.task_id)
                       order by u.priority, u.entry_id, u.run, u.position, u.task_id limit %(looked_at)s) u
          where {part stands} limit case when r.room < 0 then 0 else r.room end) u) w
cross join lateral (
    select count(*) as n
    from lock_use u
    where u.scope = l.scope and u.name = l.name and u.archive_id = l.archive_id and u.granted
      and (u.priority, u.entry_id, u.run, u.position, u.task_id) < (l.priority, l.entry_id, l.run, l.position, l.task_id)
      and (select t.state = 'ready' from task t where t.id = u.task_id) and {part stands}) g
left join archive a on a.id = l.scope
where r.room is not null and w.n + g.n >= r.room
order by l.task_id, l.scope <> 0, l.name;

-- name: locks_of_tasks
-- The locks that some tasks ask for, with capacities and pauses. `holders`: the tasks of the
-- archive that have the lock. `elsewhere`: the number of tasks of other archives that have it.
-- `others`: those of them whose archives are among `seen` (null: all), at most %(named)s. `stands`:
-- whether the task stands in line. `ahead`: the tasks of the archive that stand in line before the
-- task, at most %(most)s; as many waiting tasks are looked at.
with {part living}
select u.task_id, u.archive_id, u.scope, (select name from archive where id = u.archive_id) as archive, u.name, case when k.name is null then 1 else k.capacity end as capacity, k.paused_at, k.paused_by, k.pause_reason,
       (select array_agg(o.id order by o.state <> 'running', o.priority, o.entry_id, o.run, o.position, o.id)
        from lock_use w join task o on o.id = w.task_id where w.scope = u.scope and w.name = u.name and w.granted and w.archive_id = u.archive_id and o.state in ('ready', 'running')) as holders,
       (select count(*) from lock_use w join task o on o.id = w.task_id where w.scope = u.scope and w.name = u.name and w.granted and w.archive_id <> u.archive_id and o.state in ('ready', 'running')) as elsewhere,
       array(select w.task_id from lock_use w join task o on o.id = w.task_id
             where w.scope = u.scope and w.name = u.name and w.granted and w.archive_id <> u.archive_id and o.state in ('ready', 'running')
               and (%(seen)s::bigint[] is null or w.archive_id = any(%(seen)s))
             order by o.state <> 'running', w.archive_id, o.id limit %(named)s) as others,
       {part stands} as stands,
       (select array_agg(w.task_id order by w.priority, w.entry_id, w.run, w.position, w.task_id)
        from (select u.* from (select * from lock_use w
                               where w.scope = u.scope and w.name = u.name and w.archive_id = u.archive_id and not w.granted
                                 and (w.priority, w.entry_id, w.run, w.position, w.task_id) < (u.priority, u.entry_id, u.run, u.position, u.task_id)
                               order by w.priority, w.entry_id, w.run, w.position, w.task_id limit %(most)s) u
              where {part stands}) w) as ahead
from lock_use u left join lock k on k.scope = u.scope and k.name = u.name
where u.task_id = any(%(tasks)s) order by u.task_id, u.name;
