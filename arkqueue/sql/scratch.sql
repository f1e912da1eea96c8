-- Scratch folders (design 5.37): folders on the hosts of task managers that stay from task to task of a run, or of an item. Called by queue/scratch.py.
--
-- The first task of a folder says where it is. From then on the others are in the pool of that store (`labels_in_scratch`): a claim finds them there and reads nothing
-- more. A task that was claimed elsewhere in the same moment is handed back, and has its pool then.

-- name: scratch_of
-- The scratch folder of a live attempt of ours, as far as there is one.
select t.archive_id, t.branch_id, t.run_id, t.number, t.run, k.item, s.id, s.store, s.made_at is not null as is_made, s.removed_at is not null as is_removed
from attempt a join task t on t.id = a.task_id join definition d on d.id = t.definition_id
cross join lateral (select case d.scratch when 'item' then t.item else '' end as item) k
left join scratch s on s.run_id = t.run_id and s.item = k.item
where a.id = %(attempt)s and a.process = %(process)s and a."end" is null and d.scratch is not null;

-- name: add_scratch
-- Say where the folder of a run or item is, unless somebody has said so.
insert into scratch (run_id, item, store) values (%(run)s, %(item)s, %(store)s) on conflict (run_id, item) do nothing;

-- part: bound
-- Give those of some tasks that are ready, or ask for locks, the pool of their folder's store.
update task t set pool = p.pool
from (select t.id, coalesce(d.pool, a.pool) || labels_in_scratch(d.labels, d.scratch, t.run_id, t.item) as pool
      from mine m join task t on t.id = m.id join definition d on d.id = t.definition_id and d.scratch is not null join archive a on a.id = t.archive_id
      where t.state = 'ready' or t.asks) p
where t.id = p.id and (t.state = 'ready' or t.asks) and t.pool <> p.pool
returning t.id, t.state = 'ready' as is_ready

-- name: bind_run
-- Bind the tasks that have the folder of a run to its store.
with mine as materialized (select id from task where run_id = %(run_id)s)
{part bound};

-- name: bind_item
-- Bind the tasks that have the folder of an item to its store. They are looked up by their names, as a run may have many items.
with mine as materialized (
    select t.id from task_name n join task t on t.branch_id = n.branch_id and t.name = n.name and t.item = %(item)s and t.number = %(number)s and t.run = %(run)s
    where n.branch_id = %(branch)s
)
{part bound};

-- name: scratch_made
-- Note that a folder is there.
update scratch set made_at = clock_timestamp() where id = %(id)s and made_at is null;
