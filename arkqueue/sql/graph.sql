-- Changes of the graph: the consequences of settled tasks. queue/graph.py calls these statements in
-- rounds, inside one transaction that has locked the archives' rows, until nothing more follows. A
-- round has three parts. Settled tasks meet edges and skip tasks. Tasks without unmet edges enter:
-- their `cancels` fire. Entered tasks that still have no unmet edge become ready, or complete if
-- they are gates.
--
-- Statements get their tasks by id. Some statements look for other tasks (`lock_victims` and the
-- following ones). Their `offset 0` makes the server go from the given tasks to the wanted ones,
-- whatever the statistics say.

-- part: supersedes
-- Whether a task `f` supersedes an unsettled task `u` of its branch that its `cancels` names: the
-- place of `u` must be earlier. Only a later submission supersedes tasks of a submission, and only
-- those with the same key (design 5.10).
(u.number, u.run) < (f.number, f.run)
and (select v.trigger <> 'submission' or u.item = f.item and (select g.trigger = 'submission' from run g where g.id = f.run_id) from run v where v.id = u.run_id)

-- part: named
-- The unsettled tasks in the branch of `f` that an entry `c` of its `cancels` names, up to the
-- number of `f`. If `f` belongs to an item, these are the tasks with the item's key and the tasks
-- without a list. The index `task_open` finds each task, so that none of ten thousand items reads
-- all others.
select n.* from task n where n.branch_id = f.branch_id and n.name = c.name and n.item = any(array[f.item, '']) and n.number <= f.number and n.settled_at is null and f.item <> ''
union all
select n.* from task n where n.branch_id = f.branch_id and n.name = c.name and n.number <= f.number and n.settled_at is null and f.item = ''

-- part: leading
-- The entries of the `cancels` of the tasks `firing`. Of entries across runs that name the same tasks,
-- only that of the latest task: it reaches all tasks that the others reach. Otherwise a thousand tasks
-- that fire together would look at half a million pairs.
select distinct on (f.branch_id, c.name, f.item, c.here, case when c.here then f.id end, coalesce(c.unstarted, false), g.trigger = 'submission')
       f.id, f.archive_id, f.branch_id, f.run_id, f.number, f.run, f.item, c.name, c.here, coalesce(c.unstarted, false) as unstarted
from firing f join run g on g.id = f.run_id join definition d on d.id = f.definition_id
cross join jsonb_to_recordset(d.cancels) as c(name text, here boolean, unstarted boolean)
order by f.branch_id, c.name, f.item, c.here, case when c.here then f.id end, coalesce(c.unstarted, false), g.trigger = 'submission', f.number desc, f.run desc, f.id desc

-- part: reaches
-- Whether an entry `c` of the `cancels` of `f` reaches a task `u` that it names.
case when c.here then u.run_id = f.run_id and u.id <> f.id else {part supersedes} end

-- name: lock_archives
-- Lock the archives whose graphs are about to change, in the order of their ids. `server_since`:
-- when the server started; after a restart the database may be a restored one, so callers empty
-- their caches. The settings hold for the rest of the transaction. Each following statement is
-- planned once for a connection, because it is always the same few index look-ups, and planning
-- took longer than running. A plan may date from the time when the tables were empty and sequential
-- scans looked cheap, so sequential scans are off. No statement needs one. Servers up to PostgreSQL
-- 17 would give it so high a cost that they compiled it at each call, for most of a second, so
-- compilation is off, too.
select id, max_running is not null as is_limited, uses_locks, uses_lists, notifies, purges, pg_postmaster_start_time() as server_since,
       (select set_config('plan_cache_mode', 'force_generic_plan', true)) as planned, (select set_config('enable_seqscan', 'off', true)) as scanned,
       (select set_config('jit', 'off', true)) as compiled
from archive
where id = any(%(archives)s::bigint[])
order by id for no key update;

-- name: lock_free_archives
-- Like `lock_archives`, but skip the archives that another transaction has locked. The archives are
-- named by their ids (`archives`) or by their attempts (`attempts`). Returns all of them;
-- `is_locked`: this statement has locked the archive. The setting `arkqueue.locked` tells the next
-- statements of the same round trip which archives these are. `in_tiers`: an archive with ready
-- tasks has a limit or a tier of its own, so that `claim_in_tiers` claims.
with wanted as materialized (
    select id from archive
    where id = any(%(archives)s::bigint[] || array(
        select t.archive_id from attempt a join task t on t.id = a.task_id where a.id = any(array(select unnest(%(attempts)s::bigint[])))))
), free as materialized (
    select id, max_running is not null as is_limited, uses_locks, uses_lists, notifies, purges from archive where id = any(array(select id from wanted)) order by id for no key update skip locked
), locked as (
    select array(select id from free)::text as ids
)
select wanted.id, free.is_limited, free.uses_locks, free.uses_lists, free.notifies, free.purges, free.id is not null as is_locked, pg_postmaster_start_time() as server_since,
       (select set_config('arkqueue.locked', ids, true) from locked) as told, exists (select from ready_archive where limited or tier <> 5) as in_tiers,
       (select set_config('plan_cache_mode', 'force_generic_plan', true)) as planned, (select set_config('enable_seqscan', 'off', true)) as scanned,
       (select set_config('jit', 'off', true)) as compiled
from wanted left join free on free.id = wanted.id;

-- name: limit_waiting
-- Set how long the statements of this transaction wait for a lock from now on. Returns the limit
-- until now.
select current_setting('lock_timeout') as before, set_config('lock_timeout', %(limit)s, true) as limit;

-- name: judge_blocking
-- Judge again what some canceled and skipped tasks block in later runs (decision 0001, point 18):
-- the given tasks, which have changed, the tasks that still waited for a given one, and so on.
-- Tasks of runs that are being purged in steps are left out. Returns the tasks whose `blocks` has
-- changed. `less`: the given tasks that block less because some of their edges were met.
--
-- `reached`: all tasks to judge. `judged`: their rows. A gate (`is_wide`) may have ten thousand
-- sources, of which only some are read. A gate `has_stayed` if it has not changed itself, and is
-- judged only because of some of its sources. `blocked`: the tasks that block something because of
-- a source that is not judged here, and, along unmet edges, the tasks behind them.
with recursive reached(id) as (
    select unnest(%(tasks)s::bigint[])
    union
    select t.id
    from reached r
    cross join lateral (select target from edge where source = r.id and not met and kind in ('depends', 'stopping') offset 0) e
    cross join lateral (select id from task where id = e.target and state in ('canceled', 'skipped') and run_id <> all(array(select run_id from purging)) offset 0) t
), judged(id, has_root, is_wide, has_stayed, was) as materialized (
    select r.id, t.root_id is not null, t.kind = 'gate', t.kind = 'gate' and (t.id <> all(%(tasks)s) or t.id = any(%(less)s)), t.blocks
    from reached r
    cross join lateral (select id, root_id, kind, blocks from task where id = r.id and state in ('canceled', 'skipped') offset 0) t
), wide as materialized (
    select * from judged where is_wide
), blocked(id, blocks) as (
    select j.id, b.blocks
    from judged j
    cross join lateral (
        select source, settled and not failed as settled, crossing and not product as crossing, product, failed
        from edge where target = j.id and not met and kind in ('depends', 'stopping') offset 0) e
    cross join lateral (
        select s.state, s.waived, s.blocks, s.attempts > 0 or s.unmet = 0 or e.product as has_begun
        -- `not in` instead of a join, here and below: the planner does not know how many tasks are
        -- reached, and a join might compare each with each. The planner expects few rows from
        -- `unnest`, and builds a hash table.
        from task s where s.id = e.source and (s.state not in ('canceled', 'skipped') or e.source not in (select unnest(array(select id from reached))))
          and not (e.failed and s.state in ('completed', 'failed', 'rejected')) and (s.blocks > 0 or s.state not in ('canceled', 'skipped')) offset 0) s
    cross join lateral (select blocks_behind(e.settled, e.crossing, j.has_root, s.state, s.waived, s.blocks, s.has_begun)) b(blocks)
    where b.blocks > 0 and not j.is_wide
    union
    -- The changed sources of a gate. Their own edges lead to the gate, so its other sources, which
    -- may be ten thousand, are not read.
    select j.id, b.blocks
    from reached r
    cross join lateral (
        select source, target, settled and not failed as settled, crossing and not product as crossing, product, failed
        from edge where source = r.id and not met and kind in ('depends', 'stopping') offset 0) e
    join wide j on j.id = e.target
    cross join lateral (
        select s.state, s.waived, s.blocks, s.attempts > 0 or s.unmet = 0 or e.product as has_begun
        from task s where s.id = e.source and s.state not in ('canceled', 'skipped')
          and not (e.failed and s.state in ('completed', 'failed', 'rejected')) and (s.blocks > 0 or s.state not in ('canceled', 'skipped')) offset 0) s
    cross join lateral (select blocks_behind(e.settled, e.crossing, j.has_root, s.state, s.waived, s.blocks, s.has_begun)) b(blocks)
    where b.blocks > 0
    union
    -- The unchanged sources of a gate, of which one for each level is enough. A gate that
    -- `has_stayed` blocks no more than before, so higher levels are not searched. The last items of
    -- a list mostly stay open longest, and so are read first.
    select j.id, b.blocks
    from wide j
    cross join unnest(array[2, 1]) level(blocks)
    cross join lateral (
        select b.blocks
        from (
            select source, settled and not failed as settled, crossing and not product as crossing, product, failed
            from edge where target = j.id and not met and kind in ('depends', 'stopping') order by source desc offset 0) e
        cross join lateral (
            select s.state, s.waived, s.blocks, s.attempts > 0 or s.unmet = 0 or e.product as has_begun
            from task s where s.id = e.source
              and not (e.failed and s.state in ('completed', 'failed', 'rejected')) and (s.blocks > 0 or s.state not in ('canceled', 'skipped')) offset 0) s
        cross join lateral (select blocks_behind(e.settled, e.crossing, j.has_root, s.state, s.waived, s.blocks, s.has_begun)) b(blocks)
        where b.blocks >= level.blocks and e.source not in (select unnest(array(select id from reached)))
        limit 1) b
    where j.was >= level.blocks or not j.has_stayed
    union
    select t.id, b.blocks
    from blocked s
    cross join lateral (
        select target, settled and not failed as settled, crossing and not product as crossing
        from edge where source = s.id and not met and kind in ('depends', 'stopping') offset 0) e
    cross join lateral (
        select id, root_id is not null as has_root from task where id = e.target and state in ('canceled', 'skipped') and run_id <> all(array(select run_id from purging)) offset 0) t
    cross join lateral (select blocks_behind(e.settled, e.crossing, t.has_root, 'skipped', false, s.blocks, false)) b(blocks)
    where b.blocks > 0
)
update task t set blocks = b.blocks
from (
    select j.place, m.blocks
    from (select id, max(blocks) as blocks from (select id, 0::smallint as blocks from judged union all select id, blocks from blocked) all_of_them group by id) m
    cross join lateral (select ctid as place, blocks from task where id = m.id and state in ('canceled', 'skipped') offset 0) j
    where j.blocks <> m.blocks) b
where t.ctid = b.place
returning t.id;

-- part: remains
-- True unless a task `t` is about to be canceled in steps because another task supersedes it. A
-- task that is about to be canceled does not enter any more, and is not skipped.
((select true from superseding limit 1) is null or not is_superseded(t.id))

-- part: lets_in
-- Whether the task `t` is the COMMIT of a large run. Once this COMMIT has settled,
-- queue/planning.py lets in the tasks of the run, some at a time, and meets their edges from
-- COMMIT.
t.kind = 'commit' and exists (select from planning p where p.run_id = t.run_id)

-- name: advance
-- Meet the edges that settled tasks satisfy, and let tasks enter.
--
-- `settled`: tasks that have just settled. `again`: tasks that settled earlier and whose edges are
-- judged again. The edges of a canceled or skipped source to a settled task of another run stay
-- unmet: this task may be retried, and its edges are judged then. Met edges are counted off their
-- targets. Tasks that have just settled are also counted off the REPORT of their run, which has no
-- edges.
--
-- Tasks that have no unmet edge any more, and the `entering` ones, enter: they pass if they have no
-- program, ask for their locks, or become ready. If a task becomes ready, its archive is put into
-- `ready_archive`, unless it is withheld. While an archive is paused, its tasks with `cancels` stay
-- waiting, and `parked` finds them at the end of the pause. If an entering task of an archive finds
-- a task to cancel, all entering tasks of this archive are held back (`held_back`) until the call
-- with `fired`. While the archive is locked, only claims change which tasks are found. The passing
-- of a REPORT has no consequences.
--
-- `is_unneeded`: the task waited for the failure of a given task that completed. It has to be
-- skipped, or it was canceled or skipped before and may block less from now on. Tasks that it blocked
-- may enter in the same round. So unless the call `is_judged`, the statement changes nothing then,
-- and each row `frees`: the caller judges what canceled and skipped tasks block, and calls again.
with source as materialized (
    select id, state, as_completed, waived, blocks, run_id, kind <> 'gate' as counts, {part lets_in} as lets_in from task t where id = any(%(settled)s::bigint[])
    union all
    select id, state, as_completed, waived, blocks, run_id, false, {part lets_in} from task t where id = any(%(again)s::bigint[])
), found as materialized (
    -- The unmet edges of these tasks: those that are met now, and those that never will be.
    select e.place, e.target, e.failed and s.state = 'completed' as unneeded,
           case when e.failed then s.state in ('failed', 'rejected')
                else meets(e.settled, e.crossing and e.kind <> 'exclusive' and not e.product, s.state, s.as_completed, s.waived, s.blocks) end
           and (e.crossing or not s.lets_in)
           and not (e.crossing and e.kind = 'depends' and s.state in ('canceled', 'skipped') and (select u.settled_at is not null from task u where u.id = e.target)) as is_met
    from source s cross join lateral (select ctid as place, target, kind, settled, failed, crossing, product from edge where source = s.id and not met and (crossing or failed or not s.lets_in) offset 0) e
), freeing as materialized (
    select not %(is_judged)s and exists (select from found f where f.unneeded and (select t.blocks > 0 from task t where t.id = f.target)) as frees
), met as (
    -- The edges are found by their places (ctid). With a join, the planner would expect few rows,
    -- and read all of the edges again for each source.
    update edge set met = true where ctid = any(array(select place from found where is_met and not (select frees from freeing))) and not met
    returning target
), counted as (
    select id, sum(n)::int as n, bool_or(unneeded) as is_unneeded from (
        select target as id, 1 as n, false as unneeded from met
        union all
        select target, 0, true from found where unneeded
        union all
        select report.id, 1, false
        from source s join run on run.id = s.run_id join task report on report.id = run.report_id and report.state in ('waiting', 'held') and report.unmet > 0
        where s.counts and s.id <> report.id
        union all
        select unnest(%(entering)s::bigint[]), 0, false) c
    where unneeded or not (select frees from freeing)
    group by id
), judged as (
    select t.id, t.archive_id, t.branch_id, t.run_id, t.definition_id, t.item, t.program, t.cancels, t.number, t.run, t.position, t.polls, c.n, c.is_unneeded,
           {from enable t} and t.unmet = c.n and not t.asks and {part remains} as enters,
           case when t.cancels then (select a.is_paused from archive a where a.id = t.archive_id) else false end as is_parked
    from counted c join task t on t.id = c.id and t.id = any(array(select id from counted))
), firing as (
    select f.archive_id
    from judged f join definition d on d.id = f.definition_id
    cross join jsonb_to_recordset(d.cancels) as c(name text, here boolean)
    cross join lateral (
        select from ({part named}) u
        where case when c.here then u.run_id = f.run_id and u.id <> f.id else {part supersedes} end
        limit 1) u
    where f.enters and f.cancels and not f.is_parked
), decided as materialized (
    -- Each task with the facts with which it enters, so that the update needs no further join: the
    -- planner expects few tasks, and would compare each with each.
    select j.*, e.enters is not null as goes, coalesce(e.locks and j.program and not j.polls, false) as locks, e.pool, e.offers, e.tier, e.limited, e.entry
    from judged j left join lateral (
        select j.enters, d.locks, coalesce(d.pool, a.pool) || case when d.scratch is null then d.labels else labels_in_scratch(d.labels, d.scratch, j.run_id, j.item) end as pool, not a.withheld as offers, a.tier, a.max_running is not null as limited, run.revision_id as entry
        from run join archive a on a.id = j.archive_id left join definition d on d.id = j.definition_id
        where run.id = j.run_id and j.enters and not j.is_parked and (%(fired)s or j.archive_id <> all(array(select archive_id from firing)))
        offset 0) e on true
), offered as (
    insert into ready_archive as r (archive_id, pools, tier, limited)
    select e.archive_id, e.pools, e.tier, e.limited
    from (select archive_id, array_agg(distinct pool) as pools, tier, limited from decided where goes and program and not locks and offers group by archive_id, tier, limited) e
    where not exists (select from ready_archive r where r.archive_id = e.archive_id and r.pools @> e.pools)
    on conflict (archive_id) do update set pools = array(select distinct p from unnest(r.pools || excluded.pools) p)
)
update task t set
    unmet = t.unmet - j.n,
    state = case when j.goes and not j.program then {to pass} when j.goes and not j.locks then {to enable} else t.state end,
    asks = t.asks or j.goes and j.locks,
    in_line = t.in_line or j.goes and j.locks,
    settled_at = case when j.goes and not j.program then clock_timestamp() else t.settled_at end,
    ready_at = case when j.goes and not j.locks then clock_timestamp() else t.ready_at end,
    fired = t.fired or j.goes and t.cancels,
    pool = case when j.goes and j.program then j.pool else t.pool end,
    entry_id = case when j.goes and j.program then j.entry else t.entry_id end
from decided j
where t.id = j.id and (j.n > 0 or j.enters or j.is_unneeded)
returning t.id, j.is_unneeded, (select frees from freeing) as frees, t.cancels, j.enters and not j.is_parked and not j.goes as held_back, j.goes and j.program and not j.locks as is_ready, j.goes and j.locks as asks,
          j.goes and not j.program and t.kind <> 'report' as settles, j.goes and {part lets_in} as lets_in,
          t.state = 'held' and t.unmet = 0 as awaits_release,
          -- Canceled or skipped tasks may block something else now: this task, or a task that
          -- waited for this one to begin, or only for its release.
          t.blocks > 0
          or (j.enters or t.state = 'held' and t.unmet = 0) and t.kind <> 'report'
             and t.run_id in (select c.run_id from task c where c.run_id = any(array(select run_id from decided)) and c.blocks > 0) as unblocks;

-- name: pass_gates
-- Let chains of gates pass in one statement instead of one round of `advance` for each gate. The
-- statement starts at gates that have passed, continues to *plain* gates that wait only for one of
-- these, and so on. The passing of a plain gate concerns only its targets: nothing in its run
-- blocks later runs, and if the gate has `cancels`, its archive is not paused. The statement ends
-- before the first level that has a task other than a plain gate, or a gate with something to
-- cancel: `advance` continues there. Returns the gates that passed.
with recursive gate(id, level, is_plain) as (
    select unnest(%(passed)s::bigint[]), 0, true
    union all
    select t.id, gate.level + 1, t.is_plain
    from gate
    cross join lateral (select target, failed from edge where source = gate.id and not met offset 0) e
    cross join lateral (
        select id, not e.failed and {from pass t} and not t.program and t.kind <> 'report' and t.unmet = 1 and {part remains}
                   and not exists (select from task c where c.run_id = t.run_id and c.blocks > 0)
                   and not (t.cancels and (select a.is_paused from archive a where a.id = t.archive_id)) as is_plain
        from task t where t.id = e.target offset 0) t
    where gate.is_plain and gate.level < %(most)s
), victim as (
    -- The present victims of the gates, each with the level of its gate. If an entry of `cancels`
    -- has several victims, the id is null: these victims count as unable to pass at a lower level.
    select v.id, gate.level
    from gate
    cross join lateral (select * from task where id = gate.id and cancels offset 0) f
    cross join lateral (select cancels from definition where id = f.definition_id offset 0) d
    cross join lateral jsonb_to_recordset(d.cancels) as c(name text, here boolean)
    cross join lateral (
        select case count(*) when 1 then min(u.id) end as id
        from (select u.id from ({part named}) u
              where case when c.here then u.run_id = f.run_id and u.id <> f.id else {part supersedes} end
              limit 2) u
        having count(*) > 0) v
    where gate.is_plain and gate.level > 0
), ends as (
    select level from gate where not is_plain
    union all
    -- A victim that passes at a lower level has settled before its canceler enters. `group by`
    -- sorts; a join might compare each with each.
    select level from (
        select max(passes) as passes, min(level) as level
        from (select id, level as passes, null as level from gate union all select id, null, level from victim) v
        group by id) v
    where level <= coalesce(passes, level)
), passing as materialized (
    -- No join: the planner expects few tasks, and would compare each with each.
    select id from gate where level between 1 and (select coalesce(min(level) - 1, %(most)s) from ends) and is_plain
), met as (
    update edge set met = true where target = any(array(select id from passing)) and not met
)
update task t set unmet = 0, state = {to pass}, settled_at = clock_timestamp(), ready_at = clock_timestamp(), fired = t.fired or t.cancels
where t.id = any(array(select id from passing))
returning t.id;

-- name: cancel_gone
-- Cancel tasks that would be tried again although their revision, branch or archive is gone (design
-- 5.16): arkqueue starts none of them by itself.
update task t set state = {to cancel}, settled_at = clock_timestamp(), due_at = null,
    by = case when a.removed_at is not null then 'the removal of the archive'
              when b.deleted_at is not null then 'the end of its branch (deleted, or tracked no more)'
              else 'a rewrite of the branch' end
from run join revision r on r.id = run.revision_id join branch b on b.id = run.branch_id join archive a on a.id = run.archive_id
where t.id = any(%(tasks)s) and {from cancel t} and run.id = t.run_id
  and coalesce(r.dropped_at, b.deleted_at, a.removed_at) is not null
returning t.id;

-- name: skip_dependents
-- Skip the tasks that can no longer run after tasks that settled badly. In the same run, skip the
-- tasks that waited for the completion of such a task, and, down the graph, the tasks that waited
-- for these (design 5.8). In any run, skip the tasks that waited for the failure of a task that
-- ended otherwise (design 5.6). In other runs, skip the tasks that need the product of a `lost`
-- task: only a retry of its root could still make the product. A failure that nobody waived is not
-- lost, because it may still be repaired (design 5.18), unless it was deleted. A skipped task gets
-- the first of its roots in the order of the file. If ways of equal length lead to a task, only the way from the first
-- root is followed.
with recursive bad(id, root, lost, is_missed, has_not_failed) as (
    select s.id, r.id, r.state <> 'failed' or r.waived, s.state <> 'completed' and not s.as_completed, s.state not in ('failed', 'rejected')
    from task s join task r on r.id = case when s.root_id is null then s.id else root_behind(s.id, s.root_id) end
    where s.id = any(%(settled)s::bigint[] || %(completed)s::bigint[])
      and (s.state in ('failed', 'rejected', 'canceled', 'skipped') or s.state = 'completed' and s.id = any(%(completed)s::bigint[]))
    union
    select next.target, next.root, next.lost, true, true
    from (
        select e.target, bad.root, bad.lost, row_number() over (partition by e.target order by bad.root) as place
        from bad
        join edge e on e.source = bad.id and not e.met and e.kind = 'depends'
          and case when e.failed then bad.has_not_failed
                   else bad.is_missed and not e.settled and (not e.crossing or e.product and bad.lost) end
        join task t on t.id = e.target and {from skip t} and {part remains}) next
    where next.place = 1
)
update task t set state = {to skip}, root_id = bad.root, settled_at = clock_timestamp(), due_at = null
from (select id, min(root) as root from bad group by id) bad where t.id = bad.id and {from skip}
returning t.id;

-- name: cancelers
-- The entering tasks whose `cancels` fire now, in the order of revisions, runs and files. `across`:
-- an entry names tasks of earlier runs. `here`: an entry names tasks of the same run. `victims`:
-- the number of tasks that the task would cancel or ask to stop and no later one reaches, counted up
-- to `most` for each entry.
with firing as (select * from task f where f.id = any(%(entering)s) and f.cancels and {from enable f} and f.unmet = 0), victim as (
    select f.id, count(*)::int as n
    from ({part leading}) f cross join lateral (select f.name, f.here, f.unstarted) c
    cross join lateral (
        select from ({part named}) u
        where {part reaches} and not (c.unstarted and u.attempts > 0) and u.stop is distinct from 'cancel'
        limit %(most)s) u
    group by f.id
)
select f.id,
       exists (select from jsonb_array_elements(d.cancels) c where not (c->>'here')::boolean) as across,
       exists (select from jsonb_array_elements(d.cancels) c where (c->>'here')::boolean) as here, coalesce(v.n, 0) as victims
from firing f join definition d on d.id = f.definition_id left join victim v on v.id = f.id
order by f.number, f.run, f.position, f.id;

-- name: lock_victims
-- Lock the victims of the firing tasks before the next statements judge them, so that no claim
-- takes a victim in between (design 6). `in_steps`: lock only those that a claim could take.
with firing as (select * from task f where f.id = any(%(firing)s) and {from enable f})
select v.id from task v
where v.id in (
    select u.id
    from ({part leading}) f cross join lateral (select f.name, f.here) c
    cross join lateral (select u.id from ({part named}) u where {part reaches} offset 0) u
    where f.here = %(here)s)
  and (not %(in_steps)s or {from claim v})
order by v.id for no key update;

-- name: would_be_canceled
-- The tasks that a manual run would cancel if it were stored at a place of a branch: for each entry
-- of its `cancels`, the newest tasks, at most `most`. For a stored run, `lock_victims` finds the
-- tasks. No manual run supersedes a submission, so tasks of submissions are left out.
select c.canceler, a.name as archive, b.name as branch, b.main, v.number, v.run, v.name, v.item, v.kind, v.state
from unnest(%(cancelers)s::bigint[], %(names)s::text[], %(items)s::text[], %(unstarted)s::boolean[]) as c(canceler, name, item, unstarted)
cross join lateral (
    select n.* from task n join run r on r.id = n.run_id
    where n.branch_id = %(branch)s and n.name = c.name and (c.item = '' or n.item = any(array[c.item, ''])) and n.settled_at is null
      and (n.number, n.run) < (%(number)s, %(run)s) and r.trigger <> 'submission' and not (c.unstarted and n.attempts > 0)
    order by n.number desc, n.run desc, n.id limit %(most)s) v
join archive a on a.id = v.archive_id join branch b on b.id = v.branch_id
order by c.canceler, v.number desc, v.run desc, v.id;

-- name: fire
-- Mark tasks as fired. `advance` marks the tasks that have nothing to cancel.
update task t set fired = true where t.id = any(%(firing)s) and {from enable} and not t.fired;

-- name: cancel_victims
-- Cancel the victims that are not running (design 5.10). If a victim has several cancelers, its row
-- names the latest one.
with firing as (select * from task f where f.id = any(%(firing)s) and {from enable f}), victim as (
    select distinct on (u.id) u.id, f.id as canceler
    from ({part leading}) f cross join lateral (select f.name, f.here, f.unstarted) c
    cross join lateral (select u.id, u.attempts from ({part named}) u where {part reaches} and {from cancel u} offset 0) u
    where f.here = %(here)s and not (c.unstarted and u.attempts > 0)
    order by u.id, f.number desc, f.run desc, f.id desc
)
update task t set state = {to cancel}, superseded_by = v.canceler, settled_at = clock_timestamp(), due_at = null
from victim v where t.id = v.id and {from cancel}
returning t.id;

-- name: stop_victims
-- Ask running victims to stop. Each canceler gets an additional edge from each of its running
-- victims, and so waits for their ends. `asked`: the number of tasks that were asked. `is_tied`:
-- the canceler has a new edge.
with firing as (select * from task f where f.id = any(%(firing)s) and {from enable f}), running as materialized (
    select u.*
    from ({part leading}) f cross join lateral (select f.name, f.here) c
    cross join lateral (select u.* from ({part named}) u where {part reaches} and {from stop u} offset 0) u
    where f.here = %(here)s and not f.unstarted
), pair as (
    select distinct u.id as victim, f.id as canceler, u.run_id <> f.run_id as crossing, f.number, f.run
    from firing f join definition d on d.id = f.definition_id
    cross join jsonb_to_recordset(d.cancels) as c(name text, here boolean, unstarted boolean)
    join running u on u.branch_id = f.branch_id and u.name = c.name and (f.item = '' or u.item = any(array[f.item, '']))
    where c.here = %(here)s and not coalesce(c.unstarted, false) and {part reaches}
), asked as (
    update task t set stop = 'cancel',
        superseded_by = case when t.stop = 'cancel' then t.superseded_by else l.canceler end,
        by = case when t.stop = 'cancel' then t.by end
    from (select distinct on (victim) victim, canceler from pair order by victim, number desc, run desc, canceler desc) l
    where t.id = l.victim
    returning t.id
), tied as (
    insert into edge (target, source, kind, settled, crossing, declared, met)
    select canceler, victim, 'stopping', true, crossing, false, false from pair
    on conflict (target, source, kind, settled) do update set met = false where edge.met
    returning target
), counted as (
    select target, count(*)::int as n from tied group by target
)
update task t set fired = true, unmet = t.unmet + coalesce(c.n, 0)
from unnest(%(firing)s::bigint[]) f(id) left join counted c on c.target = f.id
where t.id = f.id and {from enable}
returning t.id, (select count(*) from asked) as asked, c.n is not null as is_tied;

-- name: parked
-- The tasks with `cancels` that wait for nothing else than the end of their archive's pause: when
-- the pause ends, their `cancels` may fire.
select t.id from branch b join task t on t.branch_id = b.id and t.settled_at is null
where b.archive_id = %(archive)s and t.cancels and {from enable t} and t.unmet = 0 and not t.asks
order by t.id;

-- name: rivals
-- The firing tasks that other firing tasks would cancel. `here`: by an entry for tasks of the same
-- run.
select distinct f.id as canceler, u.id as victim, c.here
from task f join definition d on d.id = f.definition_id
cross join jsonb_to_recordset(d.cancels) as c(name text, here boolean, unstarted boolean)
cross join lateral (
    select u.id from ({part named}) u
    where u.id = any(%(firing)s) and case when c.here then u.run_id = f.run_id and u.id <> f.id else {part supersedes} end
      and not (c.unstarted and u.attempts > 0)
    offset 0) u
where f.id = any(%(firing)s);

-- name: begin_to_supersede
-- Mark tasks as fired and store the entries of their `cancels`, whose victims are then canceled in
-- steps (queue/superseding.py). The tasks with a stored entry wait until the steps are done.
-- `beaten`: the tasks that are canceled before their entries for tasks of the same run would fire.
with firing as (select * from task f where f.id = any(%(firing)s) and {from enable f}), noted as (
    insert into superseding (task_id, name, here, unstarted, archive_id, branch_id, run_id, number, run, item)
    select f.id, f.name, f.here, bool_and(f.unstarted), f.archive_id, f.branch_id, f.run_id, f.number, f.run, f.item
    from ({part leading}) f
    where not (f.here and f.id = any(%(beaten)s::bigint[]))
    group by f.id, f.name, f.here, f.archive_id, f.branch_id, f.run_id, f.number, f.run, f.item
    returning task_id
)
update task t set fired = true, unmet = t.unmet + 1 where t.id = any(array(select task_id from noted)) and {from enable t};

-- part: reached
-- The victims `u` of a row `f` of `superseding` that are still to be canceled, or asked to stop.
-- The view `being_superseded` finds the rows of a victim instead.
cross join lateral (select f.name) c
cross join lateral (
    select u.id, u.run_id from ({part named}) u
    where case when f.here then u.run_id = f.run_id and u.id <> f.task_id else {part supersedes} end
      and not (f.unstarted and u.attempts > 0) and u.stop is distinct from 'cancel'
    offset 0) u

-- name: supersedings
-- The archives in which tasks are superseded in steps.
select distinct archive_id as archive from superseding order by archive_id;

-- name: to_supersede
-- The victims of an archive that are still to be canceled, or asked to stop.
select distinct u.id, u.run_id from superseding f {part reached} where f.archive_id = %(archive)s order by u.run_id, u.id;

-- name: still_to_supersede
-- The given tasks that are victims still to be canceled, or asked to stop. `canceler`: the task
-- that supersedes the victim; if there are several, the latest one.
select t.id, b.canceler from unnest(%(tasks)s::bigint[]) t(id)
cross join lateral (select canceler from being_superseded b where b.id = t.id order by number desc, run desc, canceler desc limit 1) b order by t.id;

-- name: cancel_superseded
-- Cancel victims that do not run.
update task t set state = {to cancel}, superseded_by = v.canceler, settled_at = clock_timestamp(), due_at = null
from unnest(%(tasks)s::bigint[], %(cancelers)s::bigint[]) v(id, canceler)
where t.id = any(%(tasks)s::bigint[]) and t.id = v.id and {from cancel t}
returning t.id;

-- name: stop_superseded
-- Ask running victims to stop. The task that supersedes them waits for them when it enters again.
update task t set stop = 'cancel', superseded_by = v.canceler, by = null
from unnest(%(tasks)s::bigint[], %(cancelers)s::bigint[]) v(id, canceler)
where t.id = any(%(tasks)s::bigint[]) and t.id = v.id and {from stop t} and t.stop is distinct from 'cancel'
returning t.id;

-- name: end_superseding
-- End the steps of those tasks of an archive that have no victim left, at most `most` tasks.
with over as materialized (
    select o.task_id from (select distinct task_id from superseding where archive_id = %(archive)s) o
    where not exists (select from superseding f {part reached} where f.task_id = o.task_id) limit %(most)s
), ended as (
    delete from superseding where task_id = any(array(select task_id from over))
)
update task t set unmet = t.unmet - 1 where t.id = any(array(select task_id from over)) returning t.id;

-- name: supersedes_in_steps
-- The number of victims that a task is still to cancel in steps, or to ask to stop; no row if it
-- cancels nothing in steps.
select count(distinct u.id)::int as n from superseding f left join lateral (select u.id from (values (1)) one(n) {part reached}) u on true where f.task_id = %(task)s having count(*) > 0;
