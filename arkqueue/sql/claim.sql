-- Claims, leases and the ends of attempts: the statements that a task manager causes, and those
-- that run when a task manager is silent.
--
-- `array(select unnest(…))` lets the server keep one plan for any number of ids. With a plain array
-- it would plan each call anew, because the plan looks cheaper, and planning takes longer than
-- running. A plan may date from the time when the tables were empty: `offset 0`, or an array of ids
-- beside the join (`end`), makes even such a plan look rows up by index.

-- part: found
-- The place from which a claim reads the ready tasks of an archive `r`, and which of the claim's
-- pools have such a task; no row if none has. The statement starts from the few pools of the claim,
-- so an archive with many labels costs no more. `gone`: the ledger entries whose runs are ending
-- and whose tasks are not held yet (queue/ending.py). `supersedes`: tasks are superseded in steps
-- (queue/superseding.py), and victims that no step has reached yet do not start. Both are null
-- nearly always.
select c.pools, f.*
from (select coalesce((place->>0)::int, -2147483648) as priority, coalesce((place->>1)::bigint, 0) as entry_id,
             coalesce((place->>2)::int, 0) as run, coalesce((place->>3)::int, 0) as position, coalesce((place->>4)::bigint, 0) as id,
             (select range_agg(int8range(entry_id, entry_id, '[]')) from ending where not is_aside) as gone,
             (select true from superseding limit 1) as supersedes
      from (select %(floors)s::jsonb -> r.archive_id::text as place offset 0) f offset 0) f
cross join lateral (select array(
    select p.pool from unnest(%(pools)s::text[]) p(pool)
    cross join lateral (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id and (f.gone is null or not t.entry_id <@ f.gone) and (f.supersedes is null or not is_superseded(t.id))
            and (t.priority, t.entry_id, t.run, t.position, t.id) >= (f.priority, f.entry_id, f.run, f.position, f.id) limit 1) t
    where p.pool = any(r.pools)) as pools offset 0) c
where c.pools <> '{}'

-- part: picked
-- Lock the tasks that an archive gives at its turn `w`, at most its share.
cross join unnest(w.pools) p(pool)
cross join lateral (
    select case when cardinality(w.pools) = 1 then w.most else (
        select count(*) from (
            select t.pool from unnest(w.pools) o(pool) cross join lateral (
                select t.pool, t.priority, t.entry_id, t.run, t.position, t.id from task t
                where {from claim t} and t.pool = o.pool and t.archive_id = w.archive_id and (w.gone is null or not t.entry_id <@ w.gone) and (w.supersedes is null or not is_superseded(t.id))
                  and (t.priority, t.entry_id, t.run, t.position, t.id) >= (w.priority, w.entry_id, w.run, w.position, w.id)
                order by t.priority, t.entry_id, t.run, t.position, t.id limit w.most) t
            order by t.priority, t.entry_id, t.run, t.position, t.id limit w.most) first
        where first.pool = p.pool) end as share) s
cross join lateral (
    select t.id from task t
    where {from claim t} and t.pool = p.pool and t.archive_id = w.archive_id and (w.gone is null or not t.entry_id <@ w.gone) and (w.supersedes is null or not is_superseded(t.id))
      and (t.priority, t.entry_id, t.run, t.position, t.id) >= (w.priority, w.entry_id, w.run, w.position, w.id)
    order by t.priority, t.entry_id, t.run, t.position, t.id limit s.share for no key update skip locked) t

-- part: taken
-- Begin an attempt for each of the `kept` tasks. A poll starts with the outputs of the attempt
-- before it, so that the newest attempt always has all outputs of the task.
taken as (
    update task t set state = {to claim}, attempt_id = nextval('attempt_id'), attempts = t.attempts + 1
    where t.id = any(array(select id from kept))
    returning t.id, t.run_id, t.archive_id, t.branch_id, t.number, t.run, t.definition_id, t.name, t.item, t.item_id, t.priority, t.entry_id, t.position, t.attempt_id, t.attempts, t.kind as task_kind,
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
-- The facts that a task manager receives about each claimed task.
select t.id, t.priority, t.entry_id, t.position, t.attempt_id, t.attempts, t.attempt_kind, t.task_kind, t.name, t.item, t.definition_id, t.archive_id, t.number, t.run, run.trigger,
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

-- name: claim
-- Take up to %(slots)s ready tasks of some pools: each becomes running, with a new attempt whose
-- lease belongs to this process. The statement waits for no lock.
--
-- Archives take turns in the order of their ids, starting after the archive %(after)s and
-- continuing from the lowest id. At its turn, an archive gives its share of the slots in the order
-- of the index `task_ready`: priority, ledger entry, run, position, id. The ids of items follow the
-- order of their list. If an archive has ready tasks of several pools, `share` is the number of
-- tasks of each pool among the first ones, so a claim locks only the tasks that it takes. It
-- considers some more archives than it has slots, because other claims may have locked tasks that
-- this claim sees. It looks at these only if it needs them: for the shares, it counts no more
-- archives than it has slots.
--
-- A claim of a drained host returns nothing. This statement also returns nothing while an archive
-- with ready tasks has a limit or a tier of its own: then `claim_in_tiers` does the work.
--
-- %(floors)s are the places from which a claim reads the ready tasks of some archives, by the
-- archives' ids. While an old snapshot keeps the index entries of claimed tasks, the claim skips
-- these entries (`Turns`).
with turn as materialized (
    select c.* from (values (1, %(after)s::bigint, 9223372036854775807), (2, -1, %(after)s::bigint)) around(lap, above, up_to)
    cross join lateral (
        select around.lap, r.archive_id, c.* from ready_archive r cross join lateral ({part found}) c
        where r.archive_id > around.above and r.archive_id <= around.up_to
        order by r.archive_id limit %(turns)s) c
    where not exists (select from ready_archive where limited or tier <> 5) and not exists (select from drain where host = %(host)s)
    limit %(turns)s
), kept as materialized (
    select t.id, w.lap, w.most as share
    from (select turn.*, ceil(%(slots)s::numeric / (select count(*) from (select from turn limit %(slots)s) first))::int as most from turn offset 0) w
    {part picked}
    limit %(slots)s
), {part taken}
{part given}
order by kept.lap, t.archive_id, t.priority, t.entry_id, t.run, t.position, t.id;

-- name: claim_in_tiers
-- Like `claim`, for archives with tiers or limits.
--
-- Archives of a lower tier go before the others, and archives of one tier take turns. An archive
-- that gives its whole share may have more tasks. Then the tasks of higher tiers are left to the
-- next claim (`kept`).
--
-- `t.tier + 0` makes the planner expect one row, which is right for most installations, instead of
-- a hundred.
--
-- A limited archive has a turn only while it has free slots, and gives as many tasks as it has free
-- slots. `room`: the slots that this claim has locked.
with recursive tier(tier) as (
    (select r.tier from ready_archive r where not exists (select from drain where host = %(host)s) order by r.tier limit 1)
    union all
    select (select r.tier from ready_archive r where r.tier > t.tier order by r.tier limit 1) from tier t where t.tier is not null
), turn as materialized (
    select r.archive_id, r.tier, r.limited, r.pools, r.priority, r.entry_id, r.run, r.position, r.id, r.gone, r.supersedes, row_number() over (order by r.tier, r.lap, r.archive_id) as turn,
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
{part given}
order by kept.turn, t.priority, t.entry_id, t.run, t.position, t.id;

-- name: labeled_pools
-- The pools with labels, of some kinds, for which there may be ready tasks and whose labels this
-- task manager has.
select distinct p.pool from ready_archive r cross join unnest(r.pools) p(pool)
where p.pool like '%% %%' and split_part(p.pool, ' ', 1) = any(%(pools)s) and string_to_array(split_part(p.pool, ' ', 2), ',') <@ %(labels)s::text[];

-- name: inputs
-- The newest outputs of the dependencies of some tasks, by task and dependency (design 3, INPUTS).
-- A task that polls also gets its own outputs (design 5.29).
select e.target, s.name, a.outputs
from edge e
join task s on s.id = e.source
join attempt a on a.id = s.attempt_id
where e.target = any(array(select unnest(%(tasks)s::bigint[]))) and e.kind = 'depends' and e.declared and a.outputs is not null
union all
-- The outputs of a list by the keys of its items, found through the gate of the list.
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
-- The revision that is the base of an attempt. If a dropped commit came back, two revisions have
-- its id and the same files.
select r.name, r.number, r.author, r.date
from attempt a join task t on t.id = a.task_id join revision r on r.branch_id = t.branch_id and r.name collate "C" = a.base
where a.id = %(attempt)s order by r.number desc limit 1;

-- name: early
-- The last revisions of an attempt's branch whose date was in the future when they were read, with
-- the time of the reading. For a dropped commit that came back, the first reading counts.
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
-- Store when the programs of attempts began. `ages`: seconds before now.
with mine as (
    select id from attempt where id = any(array(select unnest(%(attempts)s::bigint[]))) and "end" is null
    order by id for no key update
)
update attempt a set started_at = now() - make_interval(secs =>
    (select age from unnest(%(attempts)s::bigint[], %(ages)s::float8[]) s(id, age) where s.id = a.id))
from mine where a.id = mine.id;

-- name: installation
-- The id of this installation, made at the first request.
with made as (insert into installation default values on conflict do nothing returning id)
select id::text from made union all select id::text from installation limit 1;

-- name: reserve
-- Store that an attempt in a container continues if its task manager stops, and its image; only if
-- the attempt still belongs to this process.
update attempt set outlives = make_interval(secs => %(adopt_within)s), image = %(image)s
where id = %(attempt)s and process = %(process)s and "end" is null
returning id;

-- name: renew
-- Renew the leases of a task manager's attempts. An attempt that the result leaves out no longer
-- belongs to this process. Another transaction may have locked the row of an attempt to record its
-- end; such an attempt keeps its present lease (`is_renewed` is false), and the statement does not
-- wait.
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
-- The attempts of a task manager that were asked to stop.
select a.id, t.stop from attempt a join task t on t.id = a.task_id
where a.process = %(process)s and a.ended_at is null and t.stop is not null;

-- name: register_manager
-- Register a task manager's process, or note that it still runs. `is_news`: it is new, runs again, or
-- has other faults than before. The text of `low_disk` differs each time, as it has the free bytes.
with before as (select fault, engine_fault, low_disk, stopped_at from task_manager where process = %(process)s)
insert into task_manager (process, host, hostname, slots, fault, engine_fault, low_disk, account, labels, store, scratch_limit)
values (%(process)s, %(host)s, %(hostname)s, %(slots)s, %(fault)s, %(engine_fault)s, %(low_disk)s, %(account)s, %(labels)s, %(store)s, %(scratch_limit)s)
on conflict (process) do update set seen_at = clock_timestamp(), stopped_at = null,
    fault = excluded.fault, engine_fault = excluded.engine_fault, low_disk = excluded.low_disk
returning not exists (
    select from before b
    where b.stopped_at is null and (b.fault, b.engine_fault) is not distinct from (task_manager.fault, task_manager.engine_fault)
      and (b.low_disk is null) = (task_manager.low_disk is null)) as is_news;

-- name: unregister_manager
-- Record that a task manager has stopped.
update task_manager set stopped_at = clock_timestamp() where process = %(process)s;

-- name: expire_managers
-- Record that the earlier task managers of a host have stopped, which the present one has proved.
-- The time of their last report counts as the end.
update task_manager set stopped_at = seen_at where host = %(host)s and process <> %(process)s and stopped_at is null;

-- name: beat
-- Record that the database answers. After a gap, the grace period starts anew.
update heartbeat set
    steady_since = case when clock_timestamp() - beat_at > make_interval(secs => %(gap)s)
                          or pg_postmaster_start_time() > beat_at
                        then clock_timestamp() else steady_since end,
    beat_at = clock_timestamp()
returning clock_timestamp() - steady_since >= make_interval(secs => %(lease)s) as steady;

-- name: lapsed
-- Live attempts whose lease is over. Attempts in containers (`outlives`) count only when their
-- reservation is over, too; `reserved`: its length in seconds. The attempts of archives alternate,
-- so that a locked archive with more of them than the limit does not hide those of other archives.
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
-- Give attempts whose task manager stopped to the present task manager of their host, with a new
-- lease. Each attempt is given with the process that it belonged to, so if two task managers want
-- it, the first one gets it. Like a renewal, the statement locks only attempts.
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
select t.id, a.id as attempt_id, a.number as attempts, a.kind as attempt_kind, t.kind as task_kind, t.name, t.item, t.definition_id, t.archive_id, t.number, t.run, run.trigger,
       b.name as branch, b.main, r.name as revision, r.author, r.date, r.message, r.previous, r.generation, a.base,
       ar.name as archive, ar.kind, ar.url, ar.uuid, ar.settings::text, ar.corrections, null::bigint as early,
       (select body::text from item where id = t.item_id) as item_body,
       t.stop, a.log_bytes, a.log_stdout, a.log_stderr, coalesce(ended.lines, 0)::bigint as log_lines,
       extract(epoch from clock_timestamp() - coalesce(a.started_at, a.claimed_at))::float8 as age
from adopted a
join task t on t.attempt_id = a.id
join run on run.id = t.run_id
join revision r on r.id = run.revision_id
join branch b on b.id = t.branch_id
join archive ar on ar.id = t.archive_id
-- The line ends of the stored log; an older version did not count those that it left out.
left join lateral (
    select coalesce(c.before + case when c.stream = 'note' then 0 else c.lines end,
                    (select sum(case when o.stream = 'note' then 0 else coalesce(o.lines, 0) end) from log_chunk o where o.attempt_id = a.id)) as lines
    from log_chunk c where c.attempt_id = a.id order by c.position desc limit 1
) ended on true
order by a.id;

-- name: lock_attempts
-- Lock those of some attempts that belong to locked archives, and return the facts that decide what
-- their ends mean. `archives`: the locked archives; null: those that `lock_free_archives` has just
-- locked. Only attempts that ended `badly` need their definitions. The tasks are not locked: they
-- are running, and only a transaction that has locked the archive changes a running task.
select a.id, a.process, a.ended_at, a."end", a.lease_until + coalesce(a.outlives, '0') < clock_timestamp() as lapsed,
       t.id as task, t.kind, t.state, t.attempt_id, t.stop, t.failures, t.deferrals, t.losses,
       t.polls, extract(epoch from clock_timestamp() - t.deferred_at)::float8 as deferred_for, d.body, a.followed_until > clock_timestamp() as followed
from attempt a
join task t on t.id = a.task_id and t.archive_id = any(coalesce(%(archives)s::bigint[], nullif(current_setting('arkqueue.locked', true), '')::bigint[]))
left join definition d on d.id = t.definition_id and a.id = any(%(badly)s)
where a.id = any(%(attempts)s)
order by a.id for no key update of a;

-- name: end
-- Store the ends of attempts that have none, and move their tasks out of running; only for the
-- attempt that owns a task. Also store where the tasks completed: if several tasks with the same
-- key complete at once, the one at the highest place counts as the last in time. `ran` was measured
-- when the transaction began, which may have waited for locks since. A field that an end leaves
-- out is null, false or 0.
with e as (
    select attempt, task, "end", exit_code, coalesce(message, '') as message, outputs, ran, state, delay, coalesce(failed, 0) as failed, coalesce(deferred, 0) as deferred,
           coalesce(lost, 0) as lost, coalesce(asks_to_wait, false) as asks_to_wait, coalesce(polls, false) as polls, processor, memory, sampled
    from jsonb_to_recordset(%(ends)s::jsonb) as e(
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
        -- After a deferral, a poll has all of its `retries` again.
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
    -- Most runs are commit runs, which are run 1 and belong to no backfill, so they are not looked
    -- up.
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
-- Lock those archives in `ready_archive` that have no ready task and that no other transaction has
-- locked. While an archive is locked, none of its tasks becomes ready.
select a.id from archive a
where a.id in (
    select r.archive_id from ready_archive r
    where not exists (select from unnest(r.pools) p(pool) cross join lateral (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id limit 1) t))
order by a.id for no key update skip locked;

-- name: withdraw
-- Remove locked archives from `ready_archive`, unless a task became ready before the lock.
delete from ready_archive r
where r.archive_id = any(%(archives)s) and not exists (
    select from unnest(r.pools) p(pool) cross join lateral (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id limit 1) t);

-- name: many_pools
-- Lock those archives in `ready_archive` with more than %(few)s pools that have no ready task of
-- some of these pools, unless another transaction has locked them.
select a.id from archive a
where a.id in (
    select r.archive_id from ready_archive r
    where cardinality(r.pools) > %(few)s and exists (select from unnest(r.pools) p(pool) where not exists (
        select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id)))
order by a.id for no key update skip locked;

-- name: forget_pools
-- Remove the pools for which locked archives have no ready task from `ready_archive`.
update ready_archive r
set pools = array(select p.pool from unnest(r.pools) p(pool) where exists (
    select from task t where {from claim t} and t.pool = p.pool and t.archive_id = r.archive_id))
where r.archive_id = any(%(archives)s);

-- name: attempts_of
-- The given attempts that belong to some archives.
select a.id from attempt a join task t on t.id = a.task_id where a.id = any(%(attempts)s) and t.archive_id = any(%(archives)s);

-- name: due_archives
-- Archives with deferred tasks whose delay is over; first the archive whose task has been due
-- longest.
select archive_id from task where state = 'deferred' and due_at <= statement_timestamp() group by archive_id order by min(due_at);

-- name: make_due
-- Set deferred tasks whose delay is over back to waiting, a limited number for each archive.
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
