-- Scratch folders (design 5.37): folders on the hosts of task managers that stay from task to task
-- of a run, or of an item. Called by queue/scratch.py.
--
-- The first task of a folder stores the place of the folder. From then on, the pools of the other
-- tasks name this store (`labels_in_scratch`), so that a claim needs to read nothing more. A task
-- that was claimed elsewhere at the same moment is handed back, and gets this pool.

-- name: scratch_of
-- The scratch folder of a live attempt of this process, if it has one.
select t.archive_id, t.branch_id, t.run_id, t.number, t.run, k.item, s.id, s.store, s.made_at is not null as is_made, s.removed_at is not null as is_removed,
       t.kind = 'report' as is_report
from attempt a join task t on t.id = a.task_id join definition d on d.id = t.definition_id
cross join lateral (select case d.scratch when 'item' then t.item else '' end as item) k
left join scratch s on s.run_id = t.run_id and s.item = k.item
where a.id = %(attempt)s and a.process = %(process)s and a."end" is null and d.scratch is not null;

-- name: add_scratch
-- Store the place of the folder of a run or item, unless it is stored already.
insert into scratch (run_id, item, store) values (%(run)s, %(item)s, %(store)s) on conflict (run_id, item) do nothing;

-- part: bound
-- Set the pool of some tasks that are ready, or ask for locks, to the pool of their folder's store.
update task t set pool = p.pool
from (select t.id, coalesce(d.pool, a.pool) || labels_in_scratch(d.labels, d.scratch, t.run_id, t.item) as pool
      from mine m join task t on t.id = m.id join definition d on d.id = t.definition_id and d.scratch is not null join archive a on a.id = t.archive_id
      where t.state = 'ready' or t.asks) p
where t.id = p.id and (t.state = 'ready' or t.asks) and t.pool <> p.pool
returning t.id, t.state = 'ready' as is_ready

-- name: bind_run
-- Bind the tasks with the folder of a run to its store.
with mine as materialized (select id from task where run_id = %(run_id)s)
{part bound};

-- name: bind_item
-- Bind the tasks with the folder of an item to its store. The tasks are found by their names,
-- because a run may have many items.
with mine as materialized (
    select t.id from task_name n join task t on t.branch_id = n.branch_id and t.name = n.name and t.item = %(item)s and t.number = %(number)s and t.run = %(run)s
    where n.branch_id = %(branch)s
)
{part bound};

-- name: scratch_made
-- Record that a folder exists.
update scratch set made_at = clock_timestamp() where id = %(id)s and made_at is null;

-- part: open
-- The runs, and the items of runs, that have tasks left to run, or that a retry may continue: their
-- folders stay. These are the runs whose state (`states.run_state`) is not completed. A deleted run
-- is over as soon as none of its tasks runs.
open as materialized (
    select t.run_id, t.item
    from task t join run r on r.id = t.run_id
    where t.run_id = any(array(select run_id from mine)) and (
        t.settled_at is null
        or r.deleted_at is null and t.kind = 'ordinary' and not t.deleted and (
            t.state in ('failed', 'rejected') and not t.waived
            or t.state = 'canceled' and not exists (select from task s where s.id = t.superseded_by and s.run_id = t.run_id)
            or t.state = 'skipped' and exists (select from task s where s.id = t.root_id and s.run_id <> t.run_id)
               and exists (select from edge e where e.target = t.id and e.product and not e.met)))
)

-- part: ended
-- The given folders whose run or item is over.
mine as materialized (
    select s.id, s.run_id, s.item from scratch s where s.id = any(array(select unnest(%(ids)s::bigint[]))) and s.removed_at is null
), {part open}, ended as materialized (
    select m.id, m.run_id from mine m where not exists (select from open o where o.run_id = m.run_id and (m.item = '' or o.item = m.item))
)

-- name: known_scratch
-- The given folders that are not removed: they must stay until their run or item is over.
select id from scratch where id = any(array(select unnest(%(ids)s::bigint[]))) and removed_at is null;

-- name: scratch_over
-- The given folders whose run or item is over, with their archives.
with {part ended}
select o.id, r.archive_id from ended o join run r on r.id = o.run_id;

-- name: end_scratch
-- Mark folders of locked archives as removed, if their run or item is still over.
with {part ended}
update scratch s set removed_at = clock_timestamp(), bytes = null
from ended o join run r on r.id = o.run_id and r.archive_id = any(%(archives)s::bigint[])
where s.id = o.id returning s.id;

-- name: kept_scratch
-- The number of folders of a run, or of the run and one item, that stay for a retry although no
-- task of the run or item is unsettled. The folders are counted by place, and separately for the
-- run and for items.
with mine as materialized (
    select s.id, s.run_id, s.item, s.store, s.bytes from scratch s
    where s.run_id = %(run)s and (%(item)s::text is null or s.item in ('', %(item)s)) and s.made_at is not null and s.removed_at is null
), {part open}, under_way as materialized (
    select t.item from task t where t.run_id = any(array(select run_id from mine)) and t.settled_at is null
)
select k.store, k.of_items, k.folders, k.bytes, m.hostname
from (select store, item <> '' as of_items, count(*)::int as folders, sum(bytes)::bigint as bytes
      from mine
      where case when item = '' then exists (select from open) and not exists (select from under_way)
                 else item in (select item from open) and item not in (select item from under_way) end
      group by store, item <> '') k
left join lateral (select hostname from task_manager m where m.store = k.store order by m.seen_at desc limit 1) m on true
order by k.of_items, m.hostname, k.store;

-- name: largest_kept_scratch
-- For each of some stores, the settled run whose folders take the most there, at least `least` bytes.
-- Folders of a settled run stay for a retry. Only the `most` runs with the largest folders are read.
select distinct on (s.store) s.store, s.bytes, a.name as archive, b.name as branch, b.main, run.number, run.run
from unnest(%(stores)s::text[]) of(store)
cross join lateral (
    select store, run_id, sum(bytes)::bigint as bytes from scratch
    where store = of.store and removed_at is null and made_at is not null
    group by store, run_id having sum(bytes) >= %(least)s order by sum(bytes) desc limit %(most)s) s
join run on run.id = s.run_id and run.deleted_at is null
join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id
where not exists (select from task t where t.run_id = s.run_id and t.settled_at is null)
order by s.store, s.bytes desc, run.id;

-- name: measured_scratch
-- Store the sizes of folders.
update scratch s set bytes = m.bytes from unnest(%(ids)s::bigint[], %(bytes)s::bigint[]) m(id, bytes)
where s.id = m.id and s.removed_at is null and s.bytes is distinct from m.bytes;

-- name: purge_scratch
-- Delete the folders of purged runs from the table. A task manager that still has such a folder
-- removes it, because no row names it.
delete from scratch where run_id = any(%(runs)s);

-- part: is_away
-- Whether no running task manager has the folder `s`.
not exists (select from task_manager m where m.store = s.store and m.stopped_at is null and m.seen_at > clock_timestamp() - make_interval(secs => %(silence)s))

-- name: lost_scratch
-- The lost folders of a run, or of the run and one item: they were removed, or no running task
-- manager has them.
select s.item, s.removed_at is not null as is_removed from scratch s
where s.run_id = %(run)s and (%(item)s::text is null or s.item in ('', %(item)s)) and (s.removed_at is not null or {part is_away});

-- part: with_scratch
-- The tasks of a run, or of one item, with scratch folders, each with the item of its folder. REPORT
-- is left out, because no task uses the folder after it.
select t.id, t.name, t.position, t.attempts > 0 as has_started, case d.scratch when 'item' then t.item else '' end as item
from task t join definition d on d.id = t.definition_id
where t.run_id = %(run)s and t.kind <> 'report' and d.scratch is not null and not t.deleted and (%(item)s::text is null or t.item = %(item)s or d.scratch = 'run')

-- name: with_removed_scratch
-- Those of some tasks whose scratch folder was removed.
select t.id from task t join definition d on d.id = t.definition_id and d.scratch is not null
join scratch s on s.run_id = t.run_id and s.item = case d.scratch when 'item' then t.item else '' end and s.removed_at is not null
where t.id = any(%(tasks)s::bigint[]);

-- name: tasks_with_scratch
-- The tasks of a run, or of one item, with scratch folders, in the order of the workflow files.
{part with_scratch} order by t.position, t.id;

-- name: begin_scratch_again
-- Let a folder be made if it is missing, although it was made before: all tasks that have used it
-- run again.
update scratch s set made_at = null
from (select item, bool_or(id = any(%(tasks)s::bigint[])) as is_used, bool_or(has_started and not id = any(%(tasks)s::bigint[])) as is_kept
      from ({part with_scratch}) w group by item) u
where s.run_id = %(run)s and s.item = u.item and u.is_used and not u.is_kept and s.made_at is not null and s.removed_at is null;

-- name: forget_scratch
-- Delete lost folders of a run from the table: the next task that needs one stores its place.
delete from scratch where run_id = %(run)s and item = any(%(items)s::text[]);

-- name: leave_scratch
-- Delete the folders of tasks whose attempts were lost from the table, if their task managers are
-- away and no other task has used the folder, so that it holds nothing of another task.
delete from scratch s
using task t join definition d on d.id = t.definition_id
where t.id = any(%(tasks)s) and s.run_id = t.run_id and s.item = case d.scratch when 'item' then t.item else '' end and d.scratch is not null and {part is_away}
  and not exists (
    select from task u join definition e on e.id = u.definition_id
    where u.run_id = t.run_id and u.id <> t.id and u.kind <> 'report' and u.attempts > 0 and case e.scratch when 'item' then u.item when 'run' then '' end = s.item)
returning t.archive_id, t.branch_id, t.run_id, t.number, t.run, s.item;

-- name: place_of_scratch
-- The archive, run and item of a folder.
select r.archive_id, r.branch_id, r.id as run_id, r.number, r.run, s.item from scratch s join run r on r.id = s.run_id where s.id = %(id)s and s.removed_at is null;

-- name: lose_scratch
-- Mark a folder as removed, because it is gone.
update scratch set removed_at = clock_timestamp(), bytes = null where id = %(id)s and removed_at is null;
