-- Claims, leases and the end of attempts: what a task manager does to the database, and what is done when it is silent.
--
-- `array(select unnest(…))`: ids that are asked for are as many as any others, so the server keeps the statement's plan. With the ids themselves it would look cheaper
-- to plan it anew each time, and that takes longer than to run it. A plan may be kept from when the tables were empty: `offset 0`, or ids as an array
-- beside the join (`end`), look up what is there also then.

-- part: found
-- The place from which a claim looks at the ready tasks of an archive `r`, and the pools, of those that the claim asks for, with such a task; without one there is no row.
-- It goes from the few pools that are asked for, so that an archive of many labels makes no claim dearer.
-- `gone`: the ledger entries of which something is gone and not held yet (queue/ending.py); null nearly always.
select array_agg(p.pool) as pools, f.*
from (select coalesce((place->>0)::int, -2147483648) as priority, coalesce((place->>1)::bigint, 0) as entry_id,
             coalesce((place->>2)::int, 0) as run, coalesce((place->>3)::int, 0) as position, coalesce((place->>4)::bigint, 0) as id,
             (select range_agg(int8range(entry_id, entry_id, '[]')) from ending where not is_aside) as gone
      from (select %(floors)s::jsonb -> r.archive_id::text as place) f offset 0) f
cross join unnest(%(pools)s::text[]) p(pool)
cross join lateral (
    select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id and (f.gone is null or not t.entry_id <@ f.gone)
        and (t.priority, t.entry_id, t.run, t.position, t.id) >= (f.priority, f.entry_id, f.run, f.position, f.id) limit 1) t
where p.pool = any(r.pools)
group by f.priority, f.entry_id, f.run, f.position, f.id, f.gone

-- part: picked
-- Lock tasks of an archive whose turn `w` it is, at most as many as it gives.
cross join unnest(w.pools) p(pool)
cross join lateral (
    select case when cardinality(w.pools) = 1 then w.most else (
        select count(*) from (
            select t.pool from unnest(w.pools) o(pool) cross join lateral (
                select t.pool, t.priority, t.entry_id, t.run, t.position, t.id from task t
                where {from claim t} and t.pool = o.pool and t.archive_id = w.archive_id and (w.gone is null or not t.entry_id <@ w.gone)
                  and (t.priority, t.entry_id, t.run, t.position, t.id) >= (w.priority, w.entry_id, w.run, w.position, w.id)
                order by t.priority, t.entry_id, t.run, t.position, t.id limit w.most) t
            order by t.priority, t.entry_id, t.run, t.position, t.id limit w.most) first
        where first.pool = p.pool) end as share) s
cross join lateral (
    select t.id from task t
    where {from claim t} and t.pool = p.pool and t.archive_id = w.archive_id and (w.gone is null or not t.entry_id <@ w.gone)
      and (t.priority, t.entry_id, t.run, t.position, t.id) >= (w.priority, w.entry_id, w.run, w.position, w.id)
    order by t.priority, t.entry_id, t.run, t.position, t.id limit s.share for no key update skip locked) t

-- part: taken
-- Begin an attempt for each of the tasks that are `kept`. A poll has what the attempt before it said, so that the newest attempt has all outputs of the task.
taken as (
    update task t set state = {to claim}, attempt_id = nextval('attempt_id'), attempts = t.attempts + 1
    where t.id = any(array(select id from kept))
    returning t.id, t.run_id, t.archive_id, t.branch_id, t.number, t.run, t.definition_id, t.name, t.item, t.item_id, t.priority, t.entry_id, t.position, t.attempt_id, t.attempts,
              case when t.polls then 'poll' else 'run' end::attempt_kind as attempt_kind
), based as (
    select t.*, (select r.name from completion c join revision r on r.id = c.revision_id
                 where c.branch_id = t.branch_id and c.name = t.name and c.item = t.item) as base
    from taken t
), begun as (
    insert into attempt (id, task_id, kind, number, process, host, lease_until, base, outputs)
    select t.attempt_id, t.id, t.attempt_kind, t.attempts, %(process)s, %(host)s, clock_timestamp() + make_interval(secs => %(lease)s), t.base,
           case when t.attempt_kind = 'poll' then (
               select a.outputs from attempt a where a.task_id = t.id and a.kind in ('run', 'poll') and a.number = t.attempts - 1) end
    from based t
)

-- part: given
-- What a task manager is told of each.
select t.id, t.priority, t.entry_id, t.position, t.attempt_id, t.attempts, t.attempt_kind, t.name, t.item, t.definition_id, t.archive_id, t.number, t.run, run.trigger,
       b.name as branch, b.main, run.revision, run.author, run.date, run.message, run.previous, run.generation, t.base,
       ar.name as archive, ar.kind, ar.url, ar.uuid, ar.settings::text, ar.corrections, kept.share,
       (select body::text from item where id = t.item_id) as item_body,
       (select max(r.number) from revision r where r.branch_id = t.branch_id and r.date > r.read_at) as early
from based t
join kept on kept.id = t.id
cross join lateral (
    select run.trigger, r.name as revision, r.author, r.date, r.message, r.previous, r.generation
    from run join revision r on r.id = run.revision_id where run.id = t.run_id offset 0) run
join branch b on b.id = t.branch_id
join archive ar on ar.id = t.archive_id
order by kept.turn, t.priority, t.entry_id, t.run, t.position, t.id

-- name: claim
-- Take up to %(slots)s ready tasks of some pools: each becomes running, with a new attempt whose lease is ours. It waits for nobody.
--
-- Archives take turns, from the one behind %(after)s on, in the order of their ids and around. An archive gives its share of the slots at its turn, in the order of
-- the index `task_ready`: priority, ledger entry, run, position, id. Items of one list have its order by their ids. Where it has ready tasks of several pools, `share` says how many of each are before all others. So
-- a claim locks the tasks that it takes and no others. Some archives more than slots are considered, for where others lock what this claim sees.
--
-- A claim of a drained host gives nothing. Nor does this one while an archive that has something ready is limited or of a tier of its own: `claim_in_tiers` does then.
--
-- %(floors)s are the places from which on a claim looks at the ready tasks of some archives, by their ids: while an old snapshot keeps the entries of
-- claimed tasks in the index, this saves walking over them (`Turns`).
with turn as materialized (
    select r.archive_id, r.pools, r.priority, r.entry_id, r.run, r.position, r.id, r.gone, row_number() over () as turn,
           ceil(%(slots)s::numeric / count(*) over ())::int as most
    from (
        select c.* from (values (%(after)s::bigint, 9223372036854775807), (-1, %(after)s::bigint)) around(above, up_to)
        cross join lateral (
            select r.archive_id, c.* from ready_archive r cross join lateral ({part found}) c
            where r.archive_id > around.above and r.archive_id <= around.up_to
            order by r.archive_id limit %(turns)s) c
        where not exists (select from ready_archive where limited or tier <> 5) and not exists (select from drain where host = %(host)s)
        limit %(turns)s) r
), kept as materialized (
    select t.id, w.turn, w.most as share
    from turn w
    {part picked}
    limit %(slots)s
), {part taken}
{part given};

-- name: any_in_tiers
-- Whether an archive that has something ready is limited or of a tier of its own.
select true from ready_archive where limited or tier <> 5 limit 1;

-- name: claim_in_tiers
-- Do as `claim` does, where archives have tiers or limits.
--
-- Archives of a lower tier go before the others; those of one tier take turns.
-- Where an archive gives its whole share, it may have more: what higher tiers give beside it is left to the next claim (`kept`).
--
-- `t.tier + 0`: the planner takes that for one row, as it is for most, and not for a hundred.
--
-- A limited archive has its turn while it has a free slot, and gives as many tasks as it has. `room`: the slots that this claim has locked.
with recursive tier(tier) as (
    (select r.tier from ready_archive r where not exists (select from drain where host = %(host)s) order by r.tier limit 1)
    union all
    select (select r.tier from ready_archive r where r.tier > t.tier order by r.tier limit 1) from tier t where t.tier is not null
), turn as materialized (
    select r.archive_id, r.tier, r.limited, r.pools, r.priority, r.entry_id, r.run, r.position, r.id, r.gone, row_number() over (order by r.tier, r.lap, r.archive_id) as turn,
           ceil(%(slots)s::numeric / count(*) over (partition by r.tier))::int as share
    from (
        select c.* from (select tier from tier t where t.tier = t.tier + 0) t cross join lateral (
        select t.tier, around.lap, c.* from (values (1, %(after)s::bigint, 9223372036854775807), (2, -1, %(after)s::bigint)) around(lap, above, up_to)
        cross join lateral (
            select r.archive_id, r.limited, c.* from ready_archive r cross join lateral ({part found}) c
            where r.tier = t.tier and r.archive_id > around.above and r.archive_id <= around.up_to
              and (not r.limited or exists (select from slot s where s.archive_id = r.archive_id and s.attempt_id is null and not s.closed))
            order by r.archive_id limit %(turns)s) c
        offset 0) c
        limit %(turns)s) r
), room as materialized (
    select l.archive_id, l.number, row_number() over (partition by l.archive_id) as n
    from (select w.archive_id, s.number from turn w cross join lateral (
              select s.number from slot s where s.archive_id = w.archive_id and s.attempt_id is null and not s.closed
              limit w.share for no key update skip locked) s
          where w.limited) l
), picked as materialized (
    select t.id, w.turn, w.tier, w.share, w.limited
    from (select w.*, case when w.limited then (select count(*)::int from room where room.archive_id = w.archive_id) else w.share end as most
          from turn w order by w.turn offset 0) w
    {part picked}
    limit %(slots)s
), kept as materialized (
    select p.* from picked p
    where p.tier <= coalesce((select min(f.tier) from (select tier from picked group by tier, turn, share having count(*) >= share) f), p.tier)
), {part taken}, occupied as (
    update slot s set attempt_id = o.attempt_id
    from (select t.archive_id, t.attempt_id, row_number() over (partition by t.archive_id) as n
          from taken t join kept on kept.id = t.id where kept.limited and exists (select from room)) o
    join room on room.archive_id = o.archive_id and room.n = o.n
    where s.archive_id = room.archive_id and s.number = room.number
)
{part given};

-- name: labeled_pools
-- The pools of some kinds that name labels, and none but ours, of which there may be ready tasks.
select distinct p.pool from ready_archive r cross join unnest(r.pools) p(pool)
where p.pool like '%% %%' and split_part(p.pool, ' ', 1) = any(%(pools)s) and string_to_array(split_part(p.pool, ' ', 2), ',') <@ %(labels)s::text[];

-- name: inputs
-- The newest outputs of what some tasks depend on, by task and dependency (design 3, INPUTS); of a task that polls also its own (design 5.29).
select e.target, s.name, a.outputs
from edge e
join task s on s.id = e.source
join attempt a on a.id = s.attempt_id
where e.target = any(array(select unnest(%(tasks)s::bigint[]))) and e.kind = 'depends' and e.declared and a.outputs is not null
union all
-- What a list came to, by the keys of its items, is found through its gate.
select e.target, s.name, jsonb_object_agg(s.item, a.outputs)
from edge e join task g on g.id = e.source and g.kind = 'gate' join edge i on i.target = g.id and i.kind = 'depends'
join task s on s.id = i.source and s.item <> '' join attempt a on a.id = s.attempt_id
where e.target = any(array(select unnest(%(tasks)s::bigint[]))) and e.kind = 'depends' and e.declared and a.outputs is not null
  and g.name in (s.name || ':completed', s.name || ':settled')
group by e.target, s.name
union all
select t.id, 'self', a.outputs from task t join attempt a on a.id = t.attempt_id
where t.id = any(array(select unnest(%(tasks)s::bigint[]))) and a.kind = 'poll' and a.outputs is not null;

-- name: base
-- The revision that an attempt has as its base. A commit that was dropped and came back is there twice, and the same.
select r.name, r.number, r.author, r.date
from attempt a join task t on t.id = a.task_id join revision r on r.branch_id = t.branch_id and r.name collate "C" = a.base
where a.id = %(attempt)s order by r.number desc limit 1;

-- name: early
-- The last revisions of an attempt's branch whose dates were to come when they were read, and when that was. A commit that was dropped and came back counts as read when it came first.
select r.name, min(r.read_at) as read_at
from (select r.name, r.read_at from attempt a join task t on t.id = a.task_id join revision r on r.branch_id = t.branch_id and r.date > r.read_at
      where a.id = %(attempt)s order by r.number desc limit %(most)s) r
group by r.name;

-- name: definitions
-- Frozen definitions by id.
select id, body from definition where id = any(%(ids)s);

-- name: archives_of_attempts
-- The archives of some attempts.
select distinct t.archive_id from attempt at join task t on t.id = at.task_id where at.id = any(%(attempts)s);

-- name: started
-- Note that the programs of attempts have begun, so many seconds ago.
with mine as (
    select id from attempt where id = any(array(select unnest(%(attempts)s::bigint[]))) and "end" is null
    order by id for no key update
)
update attempt a set started_at = now() - make_interval(secs =>
    (select age from unnest(%(attempts)s::bigint[], %(ages)s::float8[]) s(id, age) where s.id = a.id))
from mine where a.id = mine.id;

-- name: installation
-- The id of this installation, made when it is first asked for.
with made as (insert into installation default values on conflict do nothing returning id)
select id::text from made union all select id::text from installation limit 1;

-- name: reserve
-- Note that an attempt will outlive its task manager, and from which image; it has to be ours still.
update attempt set outlives = make_interval(secs => %(adopt_within)s), image = %(image)s
where id = %(attempt)s and process = %(process)s and "end" is null
returning id;

-- name: renew
-- Renew the leases of a task manager's attempts; an attempt that does not come back is not its own any more. One whose row another transaction has locked,
-- as it records its end, keeps the lease that it has: nobody waits for that.
with mine as materialized (
    select a.id, t.stop from attempt a join task t on t.id = a.task_id
    where a.id = any(%(attempts)s) and a.process = %(process)s and a."end" is null
), free as materialized (
    select id from attempt
    where id = any(array(select id from mine)) and process = %(process)s and "end" is null
    order by id for no key update skip locked
), renewed as (
    update attempt a set lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
    from free where a.id = free.id
    returning a.id
)
select mine.id, mine.stop, renewed.id is not null as is_renewed from mine left join renewed on renewed.id = mine.id;

-- name: stops
-- Which of a task manager's attempts have been asked to stop.
select a.id, t.stop from attempt a join task t on t.id = a.task_id
where a.process = %(process)s and a.ended_at is null and t.stop is not null;

-- name: register_manager
-- Register a task manager's process, or say that it is still here.
insert into task_manager (process, host, hostname, slots, fault, engine_fault, low_disk, account, labels, store, scratch_limit)
values (%(process)s, %(host)s, %(hostname)s, %(slots)s, %(fault)s, %(engine_fault)s, %(low_disk)s, %(account)s, %(labels)s, %(store)s, %(scratch_limit)s)
on conflict (process) do update set seen_at = clock_timestamp(), stopped_at = null,
    fault = excluded.fault, engine_fault = excluded.engine_fault, low_disk = excluded.low_disk;

-- name: unregister_manager
-- Note that a task manager has stopped.
update task_manager set stopped_at = clock_timestamp() where process = %(process)s;

-- name: expire_managers
-- Note that the earlier task managers of a host have stopped, as its present one proved. When is not known; they were there when they were heard last.
update task_manager set stopped_at = seen_at where host = %(host)s and process <> %(process)s and stopped_at is null;

-- name: beat
-- Say that the database answers; a gap since the last time starts the time of grace anew.
update heartbeat set
    steady_since = case when clock_timestamp() - beat_at > make_interval(secs => %(gap)s)
                          or pg_postmaster_start_time() > beat_at
                        then clock_timestamp() else steady_since end,
    beat_at = clock_timestamp()
returning clock_timestamp() - steady_since >= make_interval(secs => %(lease)s) as steady;

-- name: lapsed
-- Live attempts whose lease is over, and what outlives its task manager only after its reservation (seconds). Archives take turns, so that one that is
-- locked and has more of them than the limit hides nobody else's.
select id, reserved
from (
    select a.id, extract(epoch from a.outlives)::float8 as reserved, row_number() over (partition by t.archive_id order by a.id) as place
    from attempt a join task t on t.id = a.task_id
    where a.ended_at is null and a.lease_until + coalesce(a.outlives, '0') < clock_timestamp()) l
order by place, id limit 1000;

-- name: live_on
-- Live attempts of a host.
select a.id, a.process, a.outlives is not null as outlives from attempt a
where a.ended_at is null and a.host = %(host)s
order by a.id;

-- name: adopt
-- Give attempts that outlived their task manager to the present one of their host, with a new lease. Each names the process that it is taken
-- from, so that of two who want it the first gets it; it locks attempts only, as a renewal does.
with mine as (
    select a.id
    from attempt a
    join unnest(%(attempts)s::bigint[], %(processes)s::text[]) as e(id, process) on e.id = a.id and e.process = a.process
    where a.host = %(host)s and a.outlives is not null and a.ended_at is null
    order by a.id for no key update of a
), adopted as (
    update attempt a set process = %(process)s, lease_until = clock_timestamp() + make_interval(secs => %(lease)s),
        outlives = make_interval(secs => %(adopt_within)s)
    from mine where a.id = mine.id
    returning a.*
)
select t.id, a.id as attempt_id, a.number as attempts, a.kind as attempt_kind, t.name, t.item, t.definition_id, t.archive_id, t.number, t.run, run.trigger,
       b.name as branch, b.main, r.name as revision, r.author, r.date, r.message, r.previous, r.generation, a.base,
       ar.name as archive, ar.kind, ar.url, ar.uuid, ar.settings::text, ar.corrections, null::bigint as early,
       (select body::text from item where id = t.item_id) as item_body,
       t.stop, a.log_bytes, a.log_stdout, a.log_stderr,
       extract(epoch from clock_timestamp() - coalesce(a.started_at, a.claimed_at))::float8 as age
from adopted a
join task t on t.attempt_id = a.id
join run on run.id = t.run_id
join revision r on r.id = run.revision_id
join branch b on b.id = t.branch_id
join archive ar on ar.id = t.archive_id
order by a.id;

-- name: lock_attempts
-- Lock those of some attempts that belong to locked archives, and return what is needed to judge their end; the definitions only of what ended `badly`. Their tasks need no
-- lock: they are running, and nobody changes such a task but who has locked its archive.
select a.id, a.process, a.ended_at, a."end", a.lease_until + coalesce(a.outlives, '0') < clock_timestamp() as lapsed,
       t.id as task, t.kind, t.state, t.attempt_id, t.stop, t.failures, t.deferrals, t.losses,
       t.polls, extract(epoch from clock_timestamp() - t.deferred_at)::float8 as deferred_for, d.body, a.followed_until > clock_timestamp() as followed
from attempt a
join task t on t.id = a.task_id and t.archive_id = any(%(archives)s::bigint[])
left join definition d on d.id = t.definition_id and a.id = any(%(badly)s)
where a.id = any(%(attempts)s)
order by a.id for no key update of a;

-- name: end
-- Give attempts their end (what has one keeps it), and move their tasks out of running as it demands; only the attempt that owns a task can do so. Where they
-- completed is kept; of several at once the highest place counts as the last in time.
-- `ran` was measured when the transaction began, which may have waited for its locks since.
with e as (
    select * from jsonb_to_recordset(%(ends)s::jsonb) as e(
        attempt bigint, task bigint, "end" text, exit_code int, message text, outputs jsonb, ran float8,
        state task_state, delay float8, failed int, deferred int, lost int, asks_to_wait boolean, polls boolean,
        processor float8, memory bigint, sampled boolean)
), ended as (
    update attempt a set ended_at = clock_timestamp(), "end" = e."end", exit_code = e.exit_code, message = e.message,
        outputs = case when a.outputs is null then e.outputs else a.outputs || coalesce(e.outputs, '{}') end,
        started_at = coalesce(a.started_at, now() - make_interval(secs => e.ran)),
        processor_seconds = e.processor, peak_memory_bytes = e.memory, usage_sampled = e.sampled
    from e where a.id = any(array(select attempt from e)) and a.id = e.attempt and a."end" is null
), moved as (
    update task t set state = e.state,
        -- Each poll is repeated as often as `retries` say.
        failures = case when e.polls then 0 else t.failures + e.failed end, deferrals = case when e.polls then 0 else t.deferrals + e.deferred end,
        losses = t.losses + e.lost, polls = t.polls or e.polls,
        due_at = case when e.state = 'deferred' then clock_timestamp() + make_interval(secs => e.delay) end,
        deferred_at = case when e.asks_to_wait then coalesce(t.deferred_at, clock_timestamp()) else t.deferred_at end,
        settled_at = case when e.state in ('completed', 'failed', 'rejected', 'canceled') then clock_timestamp() end,
        superseded_by = case when e.state = 'canceled' then t.superseded_by end,
        by = case when e.state = 'canceled' then t.by end,
        stop = null
    from e where t.id = any(array(select task from e)) and t.id = e.task and t.attempt_id = e.attempt and {from complete t}
    returning t.id, t.branch_id, t.name, t.item, t.number, t.run, t.entry_id, t.state, t.run_id
), completed as (
    insert into completion as c (branch_id, name, item, revision_id, run, highest_number, highest_run, commit_number)
    select distinct on (m.branch_id, m.name, m.item) m.branch_id, m.name, m.item, m.entry_id, m.run,
           case when not m.fills then m.number end, case when not m.fills then m.run end,
           max(m.number) filter (where m.run = 1) over (partition by m.branch_id, m.name, m.item)
    -- Commit runs, of which there are most, belong to no backfill, and are not looked up.
    from (select *, case when run = 1 then false else (select backfill_id is not null from run r where r.id = moved.run_id) end as fills from moved) m
    where m.state = 'completed' and m.entry_id is not null
    order by m.branch_id, m.name, m.item, m.fills, m.number desc, m.run desc
    on conflict (branch_id, name, item) do update set revision_id = excluded.revision_id, run = excluded.run,
        highest_number = greatest(c.highest_number, excluded.highest_number),
        highest_run = case when excluded.highest_number is null or excluded.highest_number < c.highest_number then c.highest_run
                           when c.highest_number is null or excluded.highest_number > c.highest_number then excluded.highest_run
                           else greatest(c.highest_run, excluded.highest_run) end,
        commit_number = greatest(c.commit_number, excluded.commit_number)
)
select id from moved;

-- name: left_over
-- Lock archives that are among those that take turns and have no ready task, as far as they are free; nothing becomes ready in a locked one.
select a.id from archive a
where a.id in (
    select r.archive_id from ready_archive r
    where not exists (select from unnest(r.pools) p(pool) cross join lateral (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id limit 1) t))
order by a.id for no key update skip locked;

-- name: withdraw
-- Take locked archives from those that take turns, unless one has got a ready task before it was locked.
delete from ready_archive r
where r.archive_id = any(%(archives)s) and not exists (
    select from unnest(r.pools) p(pool) cross join lateral (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id limit 1) t);

-- name: many_pools
-- Lock archives that are said to have ready tasks of more than %(few)s pools and have none of some of these, as far as they are free.
select a.id from archive a
where a.id in (
    select r.archive_id from ready_archive r
    where cardinality(r.pools) > %(few)s and exists (select from unnest(r.pools) p(pool) where not exists (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id)))
order by a.id for no key update skip locked;

-- name: forget_pools
-- Forget the pools of which locked archives have no ready task.
update ready_archive r
set pools = array(select p.pool from unnest(r.pools) p(pool) where exists (
    select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id))
where r.archive_id = any(%(archives)s);

-- name: attempts_of
-- Those of some attempts that belong to some archives.
select a.id from attempt a join task t on t.id = a.task_id where a.id = any(%(attempts)s) and t.archive_id = any(%(archives)s);

-- name: due_archives
-- Archives with deferred tasks whose delay is over; the longest waiting first.
select archive_id from task where state = 'deferred' and due_at <= statement_timestamp() group by archive_id order by min(due_at);

-- name: make_due
-- Take deferred tasks of archives whose delay is over back to waiting, so many of each archive.
update task t set state = {to due}, due_at = null
where t.id = any(array(
    select d.id
    from unnest(%(archives)s::bigint[]) a(id)
    cross join lateral (
        select d.id from task d
        where d.state = 'deferred' and d.due_at <= statement_timestamp() and d.archive_id = a.id
        order by d.due_at limit %(each)s) d))
  and {from due}
returning t.id;

-- name: next_due
-- Seconds until the next deferred task is due.
select extract(epoch from min(due_at) - clock_timestamp())::float8 from task where state = 'deferred';
