-- A canceled or skipped task that still waited for something keeps saying what it blocks in later runs, in place of edges that were handed on from it.
-- Edges that were handed on and are unmet stay where they are.

alter table task add column blocks smallint not null default 0;
create index task_blocking on task (run_id) where blocks > 0;

drop function passes(task_state, boolean, task_state, boolean);
drop function meets(boolean, boolean, task_state, boolean, boolean);

-- Whether a source meets an edge (decision 0001, point 1).
create function meets(settled boolean, crossing boolean, state task_state, as_completed boolean, waived boolean, blocks smallint) returns boolean
    language sql immutable as
$$ select case when state in ('canceled', 'skipped') and crossing then blocks <= settled::int
               when state in ('failed', 'rejected', 'canceled', 'skipped') then settled or as_completed or crossing and waived
               else state = 'completed' end $$;

-- What a canceled or skipped task blocks in later runs because of one of its unmet edges (decision 0001, point 18). `has_root`: it was skipped because of another
-- task. The rest is the source's; what completed is about to meet the edge.
create function blocks_behind(
    settled boolean, crossing boolean, has_root boolean, state task_state, waived boolean, blocks smallint, has_begun boolean) returns smallint
    language sql immutable as
$$ select case when found = 1 and (settled or not crossing and not has_root) then 0 else found end::smallint
   from (select case when state in ('canceled', 'skipped') then blocks
                     when state in ('failed', 'rejected') then (not waived)::int
                     when state <> 'completed' and not crossing and has_begun then 1
                     else 2 end) s(found) $$;

-- Edges that were handed on and are met say nothing any more.
delete from edge e using task s where s.id = e.source and s.kind <> 'commit' and e.kind = 'depends' and e.crossing and e.met and not e.declared;

-- As the block judge_blocking does it, for all of them.
with recursive reached(id) as (
    select id from task where state in ('canceled', 'skipped') and unmet > 0
    union
    select t.id
    from reached r
    cross join lateral (select target from edge where source = r.id and not met and kind in ('depends', 'stopping') offset 0) e
    cross join lateral (select id from task where id = e.target and state in ('canceled', 'skipped') offset 0) t
), blocked(id, blocks) as (
    select r.id, b.blocks
    from reached r
    cross join lateral (select root_id is not null as has_root from task where id = r.id and state in ('canceled', 'skipped') offset 0) t
    cross join lateral (
        select source, settled, crossing from edge where target = r.id and not met and kind in ('depends', 'stopping') offset 0) e
    cross join lateral (
        select s.state, s.waived, s.blocks, s.attempts > 0 or s.unmet = 0 as has_begun
        from task s where s.id = e.source and not (s.state in ('canceled', 'skipped') and s.id in (select id from reached)) offset 0) s
    cross join lateral blocks_behind(e.settled, e.crossing, t.has_root, s.state, s.waived, s.blocks, s.has_begun) b(blocks)
    where b.blocks > 0
    union
    select t.id, b.blocks
    from blocked s
    cross join lateral (
        select target, settled, crossing from edge where source = s.id and not met and kind in ('depends', 'stopping') offset 0) e
    cross join lateral (
        select id, root_id is not null as has_root from task where id = e.target and state in ('canceled', 'skipped') offset 0) t
    cross join lateral blocks_behind(e.settled, e.crossing, t.has_root, 'skipped', false, s.blocks, false) b(blocks)
    where b.blocks > 0
)
update task t set blocks = b.blocks
from (select r.id, coalesce(max(b.blocks), 0) as blocks from reached r left join blocked b on b.id = r.id group by r.id) b
where t.id = any(array(select id from reached)) and t.id = b.id and t.state in ('canceled', 'skipped') and t.blocks <> b.blocks;
