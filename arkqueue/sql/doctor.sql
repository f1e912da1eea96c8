-- The checks of views/doctor.py: rules that always hold and that no constraint can express. Each block
-- selects the rows that break its rule; the comment of the block is the rule, which people read.
--
-- Each block returns at most %(most)s rows. `archive`, `run` and `task` are ids (null: the row belongs
-- to none that exists); `what` says what is wrong. Blocks without `what` select all rows, and
-- views/doctor.py judges them. %(archive)s: the archive to check; null: all. All checks see one
-- snapshot, which has only the results of whole transactions.

-- name: doctor_unmet
-- The counter of a task is its number of unmet edges, plus one until its run lets it in, and plus
-- one while it cancels its victims in steps. REPORT has no edges, and counts tasks. While the run
-- is being stored, the counter includes edges that are still to be stored.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('it counts %%s unmet edges, and has %%s', t.unmet, coalesce(e.n, 0)) as what
from task t left join (select target, count(*) as n from edge where not met and kind <> 'cancels' group by target) e on e.target = t.id
left join (select unnest(to_let_in) as id from planning) l on l.id = t.id
left join (select distinct task_id as id from superseding) s on s.id = t.id
where t.kind <> 'report' and t.unmet <> coalesce(e.n, 0) + (l.id is not null)::int + (s.id is not null)::int and not exists (select from planning p where p.run_id = t.run_id and p.to_let_in is null) and t.run_id <> all(array(select run_id from purging))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_reports
-- A REPORT that waits counts the unsettled tasks of its run.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('it counts %%s unsettled tasks of its run, which has %%s', t.unmet, coalesce(o.n, 0)) as what
from task t
left join (select run_id, count(*) as n from task where settled_at is null and kind not in ('gate', 'report') group by run_id) o on o.run_id = t.run_id
where t.kind = 'report' and t.settled_at is null and t.state = 'waiting' and t.unmet <> coalesce(o.n, 0) and not exists (select from planning p where p.run_id = t.run_id and p.to_let_in is null)
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_waiting
-- A waiting task has an unmet edge, asks for locks, would cancel other tasks during a pause, or is
-- about to be canceled in steps. A task that may run has no unmet edge.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when t.state = 'waiting' then 'it waits, and nothing is left that it could wait for'
            else format('it is %%s, and has %%s unmet edges', t.state, t.unmet) end as what
from task t join archive a on a.id = t.archive_id
where t.settled_at is null and (t.state = 'waiting') = (t.unmet = 0) and t.state <> 'held' and not (t.state = 'waiting' and (t.asks or t.cancels and a.is_paused or is_superseded(t.id)))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_met
-- An edge whose source meets it is marked as met. Exceptions: edges from a canceled or skipped task of
-- another run to a settled task, and edges from the COMMIT of a run that is being let in.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('its edge from %%s at %%s.%%s, which is %%s, is not met', s.name || coalesce('/' || nullif(s.item, ''), ''), s.number, s.run, s.state) as what
from edge e join task s on s.id = e.source join task t on t.id = e.target
where not e.met and e.kind <> 'cancels'
  and case when e.failed then s.state in ('failed', 'rejected')
           else meets(e.settled, e.crossing and e.kind <> 'exclusive' and not e.product, s.state, s.as_completed, s.waived, s.blocks) end
  and not (e.crossing and e.kind = 'depends' and s.state in ('canceled', 'skipped') and t.settled_at is not null)
  and not (s.kind = 'commit' and not e.crossing and exists (select from planning p where p.run_id = s.run_id))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_skips
-- A task is skipped if one of its edges can never be met: the source ended badly, its product is lost,
-- or the source of a `when: failed` did not fail. A task that is being superseded in steps is canceled
-- instead.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('it is %%s, and what it needs will not come: %%s is %%s', t.state, s.name, s.state) as what
from edge e join task s on s.id = e.source join task t on t.id = e.target join task r on r.id = case when s.root_id is null then s.id else root_behind(s.id, s.root_id) end
where not e.met and e.kind = 'depends'
  and case when e.failed then s.state in ('completed', 'canceled', 'skipped')
           else not e.settled and s.state in ('failed', 'rejected', 'canceled', 'skipped') and not s.as_completed
                and (not e.crossing or e.product and (r.state <> 'failed' or r.waived)) end
  and {from skip t} and t.id not in (select id from being_superseded)
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_roots
-- The root of a skipped task is a task that ended badly, but was not skipped because of another task;
-- or a task that completed although the skipped one needed its failure. A task that was skipped in a
-- removed run or a deleted item keeps its root, and is then a root itself. Tasks elsewhere that were
-- skipped because of a task of a rewritten revision keep their root, too.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when t.state <> 'skipped' then format('it is %%s, and has a root by which it would be skipped', t.state)
            when r.id is null then 'the task because of which it was skipped does not exist'
            else format('it was skipped because of %%s, which is %%s', r.name, r.state) end as what
from task t left join task r on r.id = t.root_id join run on run.id = t.run_id join revision v on v.id = run.revision_id
where t.root_id is not null
  and (t.state <> 'skipped' or r.id is null
       or not t.deleted and (r.run_id = t.run_id or run.deleted_at is null and v.dropped_at is null)
          and (r.root_id is not null and not (r.deleted or exists (select from run g where g.id = r.run_id and g.deleted_at is not null)) or r.state not in ('failed', 'rejected', 'canceled', 'skipped')
               and not (r.state = 'completed' and exists (select from edge e where e.source = r.id and e.failed)))
          and not exists (
              select from task o join run g on g.id = o.run_id join revision gv on gv.id = g.revision_id
              where o.root_id = r.id and o.run_id <> r.run_id and gv.dropped_at is not null))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_blocks
-- The column `blocks` of a canceled or skipped task follows from its unmet edges. All other tasks block
-- nothing in later runs.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('it blocks %%s in later runs, and by its unmet edges %%s', (array['nothing', 'what needs its completion', 'all that waits for it'])[t.blocks + 1],
              (array['nothing', 'what needs its completion', 'all that waits for it'])[coalesce(b.blocks, 0) + 1]) as what
from task t
left join (
    select c.id, max(blocks_behind(e.settled and not e.failed, e.crossing and not e.product, c.root_id is not null, s.state, s.waived, s.blocks,
                                   s.attempts > 0 or s.unmet = 0 or e.product)) as blocks
    from edge e join task c on c.id = e.target and c.state in ('canceled', 'skipped') join task s on s.id = e.source
    where not e.met and e.kind in ('depends', 'stopping') and not (e.failed and s.state in ('completed', 'failed', 'rejected')) group by c.id) b on b.id = t.id
where t.blocks <> coalesce(b.blocks, 0) and t.run_id <> all(array(select run_id from purging)) and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_running
-- A task is running exactly as long as its newest attempt has no end.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when a.id is null then 'it is running, and has no attempt without an end'
            when t.state <> 'running' then format('it is %%s, and its attempt %%s has no end', t.state, a.number)
            else format('its attempt %%s has no end, and is not its newest', a.number) end as what
from (select id, task_id, number from attempt where ended_at is null) a
full join (select id, archive_id, run_id, state, attempt_id from task where settled_at is null and state = 'running') r on r.id = a.task_id
join task t on t.id = coalesce(a.task_id, r.id)
where (a.id is null or r.id is null or t.attempt_id is distinct from a.id)
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_attempts
-- A task's row has the number of its attempts, and the id of the newest attempt.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('it counts %%s attempts and has %%s; its newest is %%s, and it says %%s', t.attempts, coalesce(a.n, 0), coalesce(a.newest::text, 'none'),
              coalesce(t.attempt_id::text, 'none')) as what
from task t left join (select task_id, count(*) as n, max(number) as last, max(id) as newest from attempt group by task_id) a on a.task_id = t.id
where (t.attempts <> coalesce(a.n, 0) or t.attempts <> coalesce(a.last, 0) or t.attempt_id is distinct from a.newest)
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_outcomes
-- The state of a task with a program follows from the end of its newest attempt, if the task has
-- completed, failed or rejected its input. Exception: a task that failed without an attempt, because
-- its lock had no valid name.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when a.id is null then format('it %%s, and has no attempt', w.did)
            else format('it %%s, and its newest attempt %%s ended as: %%s%%s', w.did, a.number, a."end", ', exit code ' || a.exit_code) end as what
from task t left join attempt a on a.id = t.attempt_id
cross join lateral (select case t.state when 'rejected' then 'rejected its input' else t.state::text end as did) w
where t.program and t.state in ('completed', 'failed', 'rejected') and not (t.state = 'failed' and t.fault is not null) and (a.id is null or a."end" is not null)
  and t.state is distinct from case when a."end" = 'exited' then case a.exit_code when 0 then 'completed' when 65 then 'rejected' else 'failed' end
                                    when a."end" in ('timed-out', 'not-started', 'not-permitted', 'lost') then 'failed' end::task_state
  and t.run_id <> all(array(select run_id from purging)) and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_polls
-- A task with a poll is polled after its command has ended with 75. From then on, and not before, its
-- attempts are polls.
select t.archive_id as archive, t.run_id as run, t.id as task, format('it is %%s%%s', t.state, w.what) as what
from task t left join definition d on d.id = t.definition_id left join attempt a on a.id = t.attempt_id
cross join lateral (select concat(
    case when t.polls and not coalesce(d.body ? 'poll', false) then ', and polled, and has no poll' end,
    case when t.polls and t.deferred_at is null then ', and polled, and was never deferred' end,
    case when t.state = 'running' and a.id is not null and (a.kind = 'poll') <> t.polls then format(', and its attempt is a %%s', a.kind) end) as what) w
where w.what <> '' and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_marks
-- The columns of a task fit its state: stop request, times, waiver, superseding task, fired `cancels`,
-- counters and priority.
select t.archive_id as archive, t.run_id as run, t.id as task, format('it is %%s%%s', t.state, w.what) as what
from task t cross join lateral (select concat(
    case when t.stop is not null and t.state <> 'running' then ', and asked to stop' end,
    case when t.superseded_by is not null and not (t.state = 'canceled' or t.state = 'running' and t.stop = 'cancel') then ', and superseded' end,
    case when (t.due_at is not null) <> (t.state = 'deferred') then case when t.due_at is null then ', and never due' else ', and has a time at which it is due' end end,
    case when t.waived and t.state not in ('failed', 'rejected', 'skipped') then ', and waived' end,
    case when t.as_completed and not t.waived then ', and counts as completed, and nobody waived it' end,
    case when t.fired and not t.cancels then ', and has fired, and cancels nothing' end,
    case when not t.program and t.state in ('ready', 'running', 'deferred', 'failed', 'rejected') then ', and has no program' end,
    case when least(t.attempts, t.retries, t.failures, t.deferrals, t.losses) < 0 then ', and counts less than nothing' end,
    case when t.priority not between %(least)s and %(greatest)s then format(', and has the priority %%s', t.priority) end,
    case when t.blocks not in (0, 1, 2) then format(', and blocks %%s', t.blocks) end) as what) w
where w.what <> '' and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_holds
-- A held task names its hold. Apart from held tasks, only canceled and skipped tasks name a hold. Each
-- hold and release that a task names, and the hold of an archive or an import, has an audit log entry.
select t.archive_id as archive, t.run_id as run, t.id as task, format('it is %%s%%s', t.state, w.what) as what
from task t cross join lateral (select concat(
    case when t.state = 'held' and t.hold_id is null then ', and nothing holds it' end,
    case when t.hold_id is not null and t.state not in ('held', 'canceled', 'skipped') then ', and nobody has released it' end,
    case when t.hold_id is not null and t.kind not in ('ordinary', 'report') then ', and no task that can be held' end,
    case when t.hold_id > 0 and not exists (select from deed d where d.id = t.hold_id and d.archive_id = t.archive_id) then ', and held by an entry that is not there' end,
    case when t.hold_id is not null and t.release_id is not null then ', and held and released at once' end,
    case when t.release_id is not null and not exists (select from deed d where d.id = t.release_id) then ', and released by an entry that is not there' end) as what) w
where w.what <> '' and (%(archive)s::bigint is null or t.archive_id = %(archive)s)
union all
select a.id, null, null, 'it is on hold by an entry of the audit log that is not there'
from archive a
where a.hold_id is not null and not exists (select from deed d where d.id = a.hold_id) and (%(archive)s::bigint is null or a.id = %(archive)s)
union all
select b.archive_id, null, null, format('branch %%s: its import is held by an entry of the audit log that is not there', quote_literal(b.name))
from branch b
where b.import_id is not null and not exists (select from deed d where d.id = b.import_id) and (%(archive)s::bigint is null or b.archive_id = %(archive)s)
limit %(most)s;

-- name: doctor_ready
-- A ready task has the place and the pool by which claims find it. A running task keeps its place,
-- because its end records the revision at which it completed.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when t.entry_id is distinct from run.revision_id then format('it is %%s, and has the place of another revision', t.state)
            when t.ready_at is null then 'it is ready, and nobody knows since when'
            else format('it is ready in the pool %%s, and needs the pool %%s', coalesce(t.pool, 'of none'), p.pool) end as what
from task t join run on run.id = t.run_id join archive a on a.id = t.archive_id left join definition d on d.id = t.definition_id
cross join lateral (select coalesce(d.pool, a.pool) || case when d.scratch is null then d.labels else labels_in_scratch(d.labels, d.scratch, t.run_id, t.item) end as pool) p
where t.settled_at is null
  and (t.state in ('ready', 'running') and t.entry_id is distinct from run.revision_id
       or t.state = 'ready' and (t.ready_at is null or t.pool is distinct from p.pool))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_turns
-- Every archive with a ready task takes turns at claims, unless it is withheld. A withheld archive takes
-- no turns.
select coalesce(a.id, r.archive_id) as archive, null::bigint as run, t.task,
       case when a.id is null then 'an archive that does not exist takes turns at claims'
            when t.task is null then 'it is stopped or paused, and takes turns at claims'
            else format('it has ready tasks of the pool %%s, and takes no turns at claims for them', t.pool) end as what
from archive a
full join ready_archive r on r.archive_id = a.id
left join (select archive_id, pool, min(id) as task from task where settled_at is null and state = 'ready' group by archive_id, pool) t
    on t.archive_id = a.id and not a.withheld and not coalesce(t.pool = any(r.pools), false)
where (a.id is null or t.task is not null or a.withheld and r.archive_id is not null)
  and (%(archive)s::bigint is null or coalesce(a.id, r.archive_id) = %(archive)s) limit %(most)s;

-- name: doctor_pauses
-- Each archive repeats the pause of the installation. A pause, or its end, that began within the last
-- minute may be under way.
select a.id as archive, null::bigint as run, null::bigint as task,
       case when a.paused_with_all then 'it is paused with the whole installation, which is not paused' else 'it is not paused, and the whole installation is' end as what
from archive a, pause p
where a.removed_at is null and a.paused_with_all <> (p.paused_at is not null)
  and not exists (select from (select * from deed order by id desc limit 1000) d
                  where d.archive_id is null and d.verb in ('pause', 'resume') and d.note like '--all%%' and d.at > clock_timestamp() - interval '1 minute')
  and (%(archive)s::bigint is null or a.id = %(archive)s) limit %(most)s;

-- name: doctor_slots
-- Each running attempt of an archive with max_running has one of the archive's slots, and each taken
-- slot has such an attempt. The number of open slots is the limit.
select a.id as archive, w.run, w.task, w.what
from archive a cross join lateral (
    select t.run_id as run, t.id as task, 'its attempt runs, and has no slot of its archive' as what
    from task t where a.max_running is not null and t.archive_id = a.id and t.settled_at is null and t.state = 'running'
      and not exists (select from slot s where s.attempt_id = t.attempt_id and s.archive_id = a.id)
    union all
    select null, null, format('its slot %%s names an attempt that does not run, or belongs to another archive', s.number)
    from slot s where s.archive_id = a.id and s.attempt_id is not null
      and not exists (select from attempt at join task t on t.id = at.task_id where at.id = s.attempt_id and at.ended_at is null and t.archive_id = a.id)
    union all
    select null, null, format('it has %%s open slots, and `max_running` is %%s', count(s.number), coalesce(a.max_running::text, 'not set'))
    from (select number from slot where archive_id = a.id and not closed) s having count(s.number) <> coalesce(a.max_running, 0)
    union all
    select null, null, 'it takes turns at claims with another tier or limit than its own'
    from ready_archive r where r.archive_id = a.id and (r.tier, r.limited) <> (a.tier, a.max_running is not null)) w
where (%(archive)s::bigint is null or a.id = %(archive)s) limit %(most)s;

-- name: doctor_locks
-- `lock_use` has a row for each lock of a task that waits for its locks, has been granted them, or runs
-- its command (a poll takes no locks). The row says whether the lock is granted, and has the task's
-- place in the claim's order.
select t.archive_id as archive, t.run_id as run, t.id as task, format('it is %%s, and does not stand in the lines of the locks that it names', t.state) as what
from task t join definition d on d.id = t.definition_id and d.locks
where t.settled_at is null and (t.state in ('ready', 'running') and not t.polls or t.asks)
  and (not t.in_line
       -- What a name with a field came to is known to nobody else: several may have come to the same.
       or exists (select from jsonb_array_elements_text(d.body->'lock') n
                  where n not like '%%${{%%' and not exists (select from lock_use u where u.task_id = t.id and u.name = n))
       or (select count(*) from lock_use u where u.task_id = t.id)
          not between case when d.body->>'lock' like '%%${{%%' then 1 else jsonb_array_length(d.body->'lock') end
                  and jsonb_array_length(d.body->'lock'))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s)
union all
select t.archive_id, t.run_id, t.id, format('it is %%s, and %%s', t.state, case when t.asks then 'asks for locks' else 'has locks' end)
from task t left join (select distinct task_id from lock_use) u on u.task_id = t.id
where case when t.asks then t.settled_at is null and (t.state <> 'waiting' or t.unmet > 0 or u.task_id is null)
           else u.task_id is not null and t.state not in ('ready', 'running') end
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s)
union all
select t.archive_id, t.run_id, t.id, format('it is %%s, and stands at its lock %%s as one that %%s, or in another place than its own', t.state, u.name, case when u.granted then 'has it' else 'waits' end)
from lock_use u join task t on t.id = u.task_id
where (u.granted <> (t.state in ('ready', 'running')) or (u.archive_id, u.priority, u.entry_id, u.run, u.position) <> (t.archive_id, t.priority, t.entry_id, t.run, t.position))
  and (%(archive)s::bigint is null or u.archive_id = %(archive)s)
limit %(most)s;

-- name: doctor_holders
-- No more tasks have a lock than its capacity. Exceptions: running tasks that were granted the lock
-- before its capacity was set, and tasks that were granted a lock of the installation within the next
-- 10 seconds.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('it is %%s, and one of %%s tasks that have the lock %%s, which has room for %%s', t.state, h.n, h.name, h.capacity) as what
from (select u.scope, u.name, case when k.name is null then 1 else k.capacity end as capacity,
             count(*) as n, count(*) filter (where t.state = 'ready') as unstarted, max(t.ready_at) as granted_at
      from lock_use u join task t on t.id = u.task_id left join lock k on k.scope = u.scope and k.name = u.name
      where u.granted and t.state in ('ready', 'running') and (%(archive)s::bigint is null or u.scope in (0, %(archive)s))
      group by u.scope, u.name, k.name, k.capacity
      having count(*) > case when k.name is null then 1 else k.capacity end) h
-- When somebody last set the capacity. The grants of an archive's lock take turns with that.
cross join lateral (
    select case when h.scope = 0 then (select max(d.at) + interval '10 seconds' from deed d where d.archive_id is null and d.verb = 'lock set' and starts_with(d.note, h.name || ' '))
                else (select max(d.at) from deed d where d.archive_id = h.scope and d.verb = 'lock set' and starts_with(d.note, h.name || ' ')) end as at) s
join lock_use u on u.scope = h.scope and u.name = h.name and u.granted join task t on t.id = u.task_id and t.state in ('ready', 'running')
where (h.scope <> 0 and h.unstarted > 0 or s.at is null or h.granted_at > s.at)
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_tasks
-- The archive, branch, number and run of a task's row are those of its run.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when run.id is null then format('its run %%s does not exist', t.run_id) else 'its archive, branch, number or run is not that of its run' end as what
from task t left join run on run.id = t.run_id
where (run.id is null and t.run_id <> all(array(select run_id from purging)) or (t.archive_id, t.branch_id, t.number, t.run) <> (run.archive_id, run.branch_id, run.number, run.run))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_runs
-- The archive, branch and number of a run's row are those of its revision. A run has one COMMIT, and the
-- REPORT that its row names.
select run.archive_id as archive, run.id as run, null::bigint as task,
       case when (r.branch_id, r.number) <> (run.branch_id, run.number) or b.archive_id <> run.archive_id
                then 'its archive, branch or number is not that of its revision'
            when c.n <> 1 then format('it has %%s tasks COMMIT', c.n)
            when c.reports <> 0 and run.report_id is null or c.reports > 1 then format('it has %%s tasks REPORT', c.reports)
            when c.named = 0 then 'the REPORT that it names is none of its own'
            else 'it has no REPORT' end as what
from run join revision r on r.id = run.revision_id join branch b on b.id = run.branch_id
left join (
    select t.run_id, count(*) filter (where t.kind = 'commit') as n, count(*) filter (where t.kind = 'report') as reports,
           count(*) filter (where t.kind = 'report' and t.id = o.report_id) as named
    from task t join run o on o.id = t.run_id where t.kind in ('commit', 'report') group by t.run_id) c on c.run_id = run.id
where ((r.branch_id, r.number) <> (run.branch_id, run.number) or b.archive_id <> run.archive_id or coalesce(c.n, 0) <> 1
       or case when r.baseline and run.trigger = 'commit' then run.report_id is not null else coalesce(c.named, 0) <> 1 or c.reports <> 1 end)
  and (%(archive)s::bigint is null or run.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_deleted
-- The tasks of a deleted run or item are settled, except the run's COMMIT, REPORT and gates, and polls
-- that are still stopping; no task waits for its failures. A canceled run has unsettled tasks only while
-- tasks are stopping, or while its cancellation has not reached all tasks: the cancellation is under
-- way, or was interrupted, and holds the others. An item has a tombstone if its tasks are marked as
-- deleted, and only then.
with canceling as materialized (
    select t.run_id from task t join deed d on d.id = t.hold_id
    where t.state = 'held' and d.verb = 'cancel' and d.run_id = t.run_id and d.task_id is null
)
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when not d.is_deleted then format('it is %%s, and its run was canceled', t.state)
            when t.settled_at is null then format('it is %%s, and its %%s was deleted', t.state, d.what)
            else format('it is %%s and not waived, and its %%s was deleted', t.state, d.what) end as what
from run join task t on t.run_id = run.id
cross join lateral (select run.deleted_at is not null or t.deleted as is_deleted, case when t.deleted then 'item' else 'run' end as what) d
where (d.is_deleted
           and (t.settled_at is null and t.kind = 'ordinary' and not (t.state = 'running' and t.polls and t.stop is not distinct from 'cancel') or t.state in ('failed', 'rejected') and not t.waived and t.kind <> 'report')
       or run.canceled_at is not null and t.settled_at is null and t.kind = 'ordinary' and not (t.state = 'running' and t.stop is not distinct from 'cancel')
           and run.id not in (select run_id from canceling))
  and (%(archive)s::bigint is null or run.archive_id = %(archive)s)
union all
select t.archive_id, t.run_id, t.id, case when t.deleted then 'its item is deleted, and has no tombstone' else 'its item has a tombstone, and it does not say so' end
from task t left join deleted_item d on d.run_id = t.run_id and d.item = t.item
where t.kind = 'ordinary' and t.deleted <> (d.item is not null)
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_ledger
-- Each revision has its commit run, unless the run was purged. The numbers and ledger entries of a
-- branch grow together, each entry names the one that it follows, and the branch's head is the last
-- entry.
select b.archive_id as archive, null::bigint as run, null::bigint as task,
       case when l.id is null then format('branch %%s: its head does not exist, or it has revisions and no head', quote_literal(b.name))
            when l.is_last and b.head_id is distinct from l.id then format('branch %%s: its head is not its last revision %%s', quote_literal(b.name), l.number)
            when l.id < l.before then format('branch %%s: revision %%s was read before the one that it follows', quote_literal(b.name), l.number)
            when l.previous <> l.follows then format('branch %%s: revision %%s follows %%s, and says that it follows %%s', quote_literal(b.name), l.number, l.follows, l.previous)
            else format('branch %%s: revision %%s has no commit run', quote_literal(b.name), l.number) end as what
from branch b
left join (
    select r.id, r.branch_id, r.number, r.previous, lag(r.id) over w as before, lag(r.name) over w as follows, lead(r.id) over w is null as is_last,
           exists (select from run where run.revision_id = r.id and run.trigger = 'commit')
               or exists (select from purged_run p where p.branch_id = r.branch_id and p.number = r.number and p.run = 1) as has_run
    from revision r window w as (partition by r.branch_id order by r.number)) l on l.branch_id = b.id
where case when l.id is null then b.head_id is not null
           else l.is_last and b.head_id is distinct from l.id or l.id < l.before or l.previous <> l.follows or not l.has_run end
  and (%(archive)s::bigint is null or b.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_edges
-- An edge connects two tasks of one branch: a crossing edge comes from an earlier place, any other edge
-- from the same run. Edges inside a purged run stay until the purge deletes them.
select coalesce(t.archive_id, s.archive_id) as archive, coalesce(t.run_id, s.run_id) as run, coalesce(t.id, s.id) as task,
       case when t.id is null then format('an edge leads from it to a task that does not exist (%%s)', e.target)
            when s.id is null then format('an edge leads to it from a task that does not exist (%%s)', e.source)
            when t.branch_id <> s.branch_id then 'an edge leads to it from another branch'
            when e.crossing <> (t.run_id <> s.run_id) then format('its edge from %%s says wrongly whether it leads from one run to another', s.name)
            else format('an edge leads to it from %%s of a later run', s.name) end as what
from edge e left join task t on t.id = e.target left join task s on s.id = e.source
where (t.id is null or s.id is null or t.branch_id <> s.branch_id or e.crossing <> (t.run_id <> s.run_id)
       or e.crossing and (s.number, s.run) >= (t.number, t.run))
  and not (t.id is null and s.id is null and exists (select from purged_task p where p.id = e.source))
  and not (not e.crossing and coalesce(t.run_id, s.run_id) = any(array(select run_id from purging)))
  and (%(archive)s::bigint is null or coalesce(t.archive_id, s.archive_id) = %(archive)s) limit %(most)s;

-- name: doctor_completions
-- The completions of a branch's tasks are recorded, each with the place of the task or a higher one. So
-- are the commit runs in which tasks completed. No place lies behind the last revision of the branch.
select a.archive_id as archive, null::bigint as run, null::bigint as task,
       format('branch %%s: %%s completed at %%s, and %%s', quote_literal(a.name), quote_literal(t.name), t.number,
              case when c.branch_id is null then 'this is not recorded' else format('the highest recorded place is %%s, and the highest recorded commit run %%s', c.highest_number, coalesce(c.commit_number::text, 'none')) end) as what
from (select branch_id, name, item, max(number) as number, max(number) filter (where run = 1) as of_commit
      from task t where state = 'completed' and program and (t.run = 1 or not exists (select from run where run.id = t.run_id and run.backfill_id is not null))
      group by branch_id, name, item) t
join branch a on a.id = t.branch_id
left join completion c on c.branch_id = t.branch_id and c.name = t.name and c.item = t.item
where (c.branch_id is null or c.highest_number < t.number or coalesce(c.commit_number, -1) < t.of_commit or not exists (select from revision r where r.id = c.revision_id and r.branch_id = c.branch_id))
  and (%(archive)s::bigint is null or a.archive_id = %(archive)s)
union all
select b.archive_id, null, null,
       format('branch %%s: %%s is said to have completed at %%s, and the last revision is %%s', quote_literal(b.name), quote_literal(c.name), greatest(c.highest_number, c.commit_number), h.number)
from branch b join revision h on h.id = b.head_id join completion c on c.branch_id = b.id
where greatest(c.highest_number, c.commit_number) > h.number and (%(archive)s::bigint is null or b.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_purged_starts
-- A recorded start of purged tasks belongs to an existing task of an earlier run.
select t.archive_id as archive, t.run_id as run, p.task_id as task,
       case when t.id is null then 'it is gone, and a task that was purged is said to have started after it'
            else format('a task of %%s.%%s is said to have been purged after it had started because of this one, which is of no earlier run', p.number, p.run) end as what
from purged_start p left join task t on t.id = p.task_id
where (t.id is null or (p.number, p.run) <= (t.number, t.run))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_names
-- The names of a branch's ordinary tasks are recorded for PREV:*.
select b.archive_id as archive, null::bigint as run, null::bigint as task,
       format('branch %%s: its tasks called %%s are not recorded', quote_literal(b.name), quote_literal(t.name)) as what
from (select branch_id, name from task where kind = 'ordinary' group by branch_id, name) t
join branch b on b.id = t.branch_id
where not exists (select from task_name n where n.branch_id = t.branch_id and n.name = t.name)
  and (%(archive)s::bigint is null or b.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_definitions
-- The definition of a task can be read, and has the task's name.
-- `unreadable`: the definitions that Python cannot read; `faults`: what is wrong with each.
select t.archive_id as archive, t.run_id as run, t.id as task,
       case when d.id is null then 'it has no definition'
            when d.id = any(%(unreadable)s) then format('its definition (%%s) %%s', d.id, (%(faults)s::text[])[array_position(%(unreadable)s::bigint[], d.id)])
            when jsonb_typeof(d.cancels) <> 'array' then format('the cancels of its definition (%%s) are no list', d.id)
            else format('its definition is that of %%s', coalesce(d.body->>'name', 'no task')) end as what
from task t left join definition d on d.id = t.definition_id
where (t.kind = 'ordinary' and (d.id is null or jsonb_typeof(d.cancels) <> 'array' or d.body->>'name' is distinct from t.name)
       or d.id = any(%(unreadable)s))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s)
union all
select null, null, null, format('the definition %%s, which no task has, %%s', u.id, u.fault)
from unnest(%(unreadable)s::bigint[], %(faults)s::text[]) u(id, fault)
where %(archive)s::bigint is null and not exists (select from task t where t.definition_id = u.id) limit %(most)s;

-- name: definitions_after
-- The next definitions in the order of their ids.
select id, body from definition where id > %(after)s order by id limit %(most)s;

-- name: doctor_declared
-- A task says the same as its definition: whether it has a program, cancels anything and is exclusive.
select t.archive_id as archive, t.run_id as run, t.id as task, format('its columns do not say what its definition says: %%s', w.what) as what
from task t join definition d on d.id = t.definition_id cross join lateral (select concat_ws(', ',
    case when t.program <> (d.body ?| array['command', 'script']) then format('program is %%s', t.program) end,
    case when t.cancels <> (d.cancels <> '[]') then format('cancels is %%s', t.cancels) end,
    case when t.exclusive <> (d.body->'exclusive' is not distinct from 'true') then format('exclusive is %%s', t.exclusive) end) as what) w
where t.kind = 'ordinary' and d.body->>'name' = t.name and w.what <> '' and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_flags
-- An archive says that it uses locks, or lists, if it has tasks that do.
select a.id as archive, null::bigint as run, null::bigint as task, format('it has tasks that use %%s, and archive.%%s is false', f.what, f.name) as what
from archive a cross join lateral (
    select 'locks' as what, 'uses_locks' as name where not a.uses_locks and a.id in (select archive_id from lock_use)
    union all
    select 'lists', 'uses_lists' where not a.uses_lists and exists (select from task t join run on run.id = t.run_id and run.archive_id = a.id where t.item_id is not null)) f
where %(archive)s::bigint is null or a.id = %(archive)s limit %(most)s;

-- name: doctor_documents
-- The faults of a run, and the tasks and faults of stored workflow files, are lists of objects.
with bad as (
    select b.archive_id, run.id as run, 'the faults of its workflow files' as what, run.faults as body from run join branch b on b.id = run.branch_id where run.faults <> '[]'
    union all
    select b.archive_id, null, format('the tasks of its revision %%s', r.number), w.tasks from workflow w join revision r on r.workflow_id = w.id join branch b on b.id = r.branch_id where w.tasks <> '[]'
    union all
    select b.archive_id, null, format('the faults of its revision %%s', r.number), w.faults from workflow w join revision r on r.workflow_id = w.id join branch b on b.id = r.branch_id where w.faults <> '[]'
)
select bad.archive_id as archive, bad.run, null::bigint as task, bad.what || ' cannot be read' as what
from bad where (jsonb_typeof(bad.body) <> 'array' or jsonb_path_exists(bad.body, '$[*] ? (@.type() <> "object")')) and (%(archive)s::bigint is null or bad.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_moments
-- A stored time is a moment, and not infinite.
select m.archive_id as archive, m.run_id as run, m.task_id as task, 'it has an infinite time' as what from (
    select id as archive_id, null::bigint as run_id, null::bigint as task_id from archive
    where not (isfinite(created_at) and isfinite(coalesce(removed_at, created_at)) and isfinite(coalesce(trouble_since, created_at)) and isfinite(coalesce(read_at, created_at)) and isfinite(coalesce(next_read_at, created_at)) and isfinite(coalesce(paused_at, created_at)))
    union all
    select b.archive_id, null, null from revision r join branch b on b.id = r.branch_id where not (isfinite(r.date) and isfinite(coalesce(r.dropped_at, r.date)) and isfinite(coalesce(r.read_at, r.date)) and isfinite(coalesce(b.deleted_at, r.date)))
    union all
    select archive_id, id, null from run where not (isfinite(created_at) and isfinite(coalesce(canceled_at, created_at)) and isfinite(coalesce(deleted_at, created_at)) and isfinite(coalesce(left_out_since, created_at)))
    union all
    select archive_id, run_id, id from task where 'infinity' = any(array[due_at, ready_at, settled_at, deferred_at]) or '-infinity' = any(array[due_at, ready_at, settled_at, deferred_at])
    union all
    select t.archive_id, t.run_id, t.id from attempt a join task t on t.id = a.task_id where not (isfinite(a.claimed_at) and isfinite(coalesce(a.started_at, a.claimed_at)) and isfinite(coalesce(a.ended_at, a.claimed_at)))) m
where %(archive)s::bigint is null or m.archive_id = %(archive)s limit %(most)s;

-- name: doctor_items
-- A task of an item has the item, and an item belongs to the run of its tasks.
select t.archive_id as archive, t.run_id as run, t.id as task, 'its item does not exist, or is of another run' as what
from task t left join item i on i.id = t.item_id
where (t.item_id is not null and i.run_id is distinct from t.run_id or (t.item_id is null) <> (t.item = '')) and (%(archive)s::bigint is null or t.archive_id = %(archive)s)
union all
select null, i.run_id, null, format('item %%s belongs to a run that does not exist (%%s)', i.id, i.run_id)
from item i where %(archive)s::bigint is null and not exists (select from run where run.id = i.run_id) and i.run_id <> all(array(select run_id from purging)) limit %(most)s;

-- name: doctor_scratch
-- A scratch folder belongs to a run that exists.
select null::bigint as archive, s.run_id as run, null::bigint as task, format('the scratch folder %%s belongs to a run that does not exist (%%s)', s.id, s.run_id) as what
from scratch s where %(archive)s::bigint is null and not exists (select from run where run.id = s.run_id) and s.run_id <> all(array(select run_id from purging)) limit %(most)s;

-- name: doctor_scratch_limit
-- The scratch folders and attachments of a host take less room than its scratch_limit. If they take
-- more, the largest are named.
with there as materialized (
    select s.store, s.bytes, r.archive_id, s.run_id, 'its scratch folder' || case when s.item = '' then '' else ' of the item ' || quote_literal(s.item) end || ' takes' as what
    from scratch s join run r on r.id = s.run_id where s.removed_at is null and s.bytes > 0
    union all
    select u.store, u.size, u.archive_id, u.run_id, case when u.run_id is null then format('the attachments that are being uploaded as %%s (upload %%s) take', quote_literal(u.sender_id), u.id) else 'its attachments take' end
    from upload u where u.removed_at is null
)
select t.archive_id as archive, t.run_id as run, null::bigint as task,
       format('%%s %%s on %%s, where all of them take %%s and scratch_limit is %%s: no other is made there',
              t.what, pg_size_pretty(t.bytes), m.hostname, pg_size_pretty(o.bytes), pg_size_pretty(m.scratch_limit)) as what
from (select store, sum(bytes)::bigint as bytes from there group by store) o
cross join lateral (select hostname, scratch_limit from task_manager m where m.store = o.store order by m.seen_at desc limit 1) m
cross join lateral (select * from there t where t.store = o.store order by t.bytes desc, t.run_id limit 3) t
where m.scratch_limit > 0 and o.bytes >= m.scratch_limit and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_attachments
-- Attachments belong to a run that exists. An upload without a run is removed a day after somebody last continued it.
select u.archive_id as archive, null::bigint as run, null::bigint as task,
       case when u.run_id is not null then format('upload %%s belongs to a run that does not exist (%%s)', u.id, u.run_id)
            else format('upload %%s of %%s, %%s files with %%s, was continued last at %%s and is still there', u.id, quote_literal(u.sender_id), u.files, pg_size_pretty(u.size),
                        to_char(u.continued_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC') end as what
from upload u
where (u.run_id is null and u.continued_at < clock_timestamp() - interval '25 hours' or u.run_id is not null and not exists (select from run where run.id = u.run_id))
  and (%(archive)s::bigint is null or u.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_lone_attempts
-- Every attempt belongs to a task, unless a purge is about to delete it. Every piece of a log belongs to
-- an attempt.
select null::bigint as archive, null::bigint as run, null::bigint as task, format('attempt %%s belongs to a task that does not exist (%%s)', a.id, a.task_id) as what
from attempt a
where %(archive)s::bigint is null and not exists (select from task t where t.id = a.task_id) and not exists (select from purged_task p where p.id = a.task_id)
union all
select null, null, null, format('%%s pieces of a log belong to an attempt that does not exist (%%s)', count(*), c.attempt_id)
from log_chunk c where %(archive)s::bigint is null and not exists (select from attempt a where a.id = c.attempt_id) group by c.attempt_id limit %(most)s;

-- name: doctor_lone_rows
-- Each row about unfinished work belongs to a run and a task that exist: a place at a lock, the planning
-- or the end of a run, the cancellations of a task in steps, and a notification of a run.
with known as (select id from run union all select run_id from purging)
select u.archive_id as archive, null::bigint as run, u.task_id as task, format('the lock %%s is %%s by a task that does not exist (lock_use)', u.name, case when u.granted then 'occupied' else 'waited for' end) as what
from lock_use u where not exists (select from task t where t.id = u.task_id) and (%(archive)s::bigint is null or u.archive_id = %(archive)s)
union all
select p.archive_id, p.run_id, null, format('a run that does not exist (%%s) is being planned (planning)', p.run_id)
from planning p where p.run_id not in (select id from known) and (%(archive)s::bigint is null or p.archive_id = %(archive)s)
union all
select p.archive_id, p.run_id, l.id, 'a task that does not exist waits for its run to be let in (planning)'
from planning p cross join lateral unnest(p.to_let_in) l(id)
where not exists (select from task t where t.id = l.id) and (%(archive)s::bigint is null or p.archive_id = %(archive)s)
union all
select e.archive_id, e.run_id, null, format('a run that does not exist (%%s) is being ended (ending)', e.run_id)
from ending e where e.run_id not in (select id from known) and (%(archive)s::bigint is null or e.archive_id = %(archive)s)
union all
select s.archive_id, s.run_id, s.task_id, format('a task that does not exist cancels %%s in steps (superseding)', s.name)
from superseding s where not exists (select from task t where t.id = s.task_id and t.run_id = s.run_id) and (%(archive)s::bigint is null or s.archive_id = %(archive)s)
union all
select d.archive_id, d.run_id, null, format('notification %%s is about a run that does not exist (%%s) (delivery)', d.id, d.run_id)
from delivery d
where d.run_id <> 0 and not exists (select from known k where k.id = d.run_id) and not exists (select from purged_run p where p.id = d.run_id)
  and (%(archive)s::bigint is null or d.archive_id = %(archive)s)
union all
select d.archive_id, d.run_id, l.id, format('notification %%s is about a task that does not exist (delivery)', d.id)
from delivery d join run on run.id = d.run_id cross join lateral unnest(d.tasks) l(id)
where not exists (select from task t where t.id = l.id) and (%(archive)s::bigint is null or d.archive_id = %(archive)s)
limit %(most)s;

-- name: doctor_backfills
-- The tasks of a backfill are defined in the workflow files of its revision.
select f.archive_id as archive, null::bigint as run, null::bigint as task,
       format('backfill %%s has the task %%s, which the workflow files of revision %%s do not define', f.number, n.name, r.number) as what
from backfill f join revision r on r.id = f.revision_id join workflow w on w.id = r.workflow_id cross join lateral unnest(f.tasks) n(name)
where not jsonb_path_exists(w.tasks, '$[*] ? (@.name == $name)', jsonb_build_object('name', n.name))
  and (%(archive)s::bigint is null or f.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_kept_reports
-- The reports of a run are numbered 1, 2, …. A report that was sent was first given to the command of
-- REPORT. A REPORT that runs for a person's report runs for one that exists.
select run.archive_id as archive, run.id as run, null::bigint as task,
       case when run.id is null then format('report %%s belongs to a run that does not exist (%%s)', r.number, r.run_id)
            when r.number <> r.place then format('report %%s is its %%s.', r.number, r.place)
            else format('report %%s was sent, and never given to a command', r.number) end as what
from (select run_id, number, row_number() over (partition by run_id order by number) as place, sent_at is not null and not is_given as is_odd from report) r
left join run on run.id = r.run_id
where (run.id is null and not exists (select from purged_run p where p.id = r.run_id) or r.number <> r.place or r.is_odd)
  and (%(archive)s::bigint is null or run.archive_id = %(archive)s)
union all
select run.archive_id, run.id, t.id, format('it runs for report %%s, which nobody wanted', run.updating)
from run join task t on t.id = run.report_id
where run.updating is not null and t.settled_at is null
  and not exists (select from report w where w.run_id = run.id and w.number = run.updating and w.is_given and w.made_by is not null)
  and (%(archive)s::bigint is null or run.archive_id = %(archive)s)
limit %(most)s;

-- name: doctor_removals
-- A removal for good leaves nothing of its logs and outputs. A removal that began within the last ten minutes may be under way.
select t.archive_id as archive, t.run_id as run, t.id as task,
       format('%%s of its attempt %%s were removed, and are there', case when a.outputs is not null and a.outputs_removal_id is not null then 'the outputs' else 'pieces of the log' end, a.number) as what
from attempt a join task t on t.id = a.task_id
where (a.outputs is not null and a.outputs_removal_id is not null
       or a.log_removal_id is not null and exists (select from log_chunk c where c.attempt_id = a.id)
          and exists (select from deed d where d.id = a.log_removal_id and d.at < clock_timestamp() - interval '10 minutes'))
  and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_logs
-- The pieces of a log do not overlap, and none lies behind its end. The middle of a long log is left out
-- on purpose.
select t.archive_id as archive, t.run_id as run, t.id as task, format('the log of its attempt %%s has pieces that overlap, or lie behind its end', a.number) as what
from (select attempt_id, min(position) as first, max(position + octet_length(data)) as last, bool_or(is_overlapping) as is_overlapping
      from (select attempt_id, position, data, coalesce(position < lag(position + octet_length(data)) over (partition by attempt_id order by position), false) as is_overlapping
            from log_chunk) c
      group by attempt_id) c
join attempt a on a.id = c.attempt_id join task t on t.id = a.task_id
where (c.is_overlapping or c.last > a.log_bytes) and (%(archive)s::bigint is null or t.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_purged
-- A purged run has no row, and no tasks. The audit log says who purged it.
select run.archive_id as archive, run.id as run, null::bigint as task, 'it was purged, but exists' as what
from purged_run p join run on run.id = p.id or (run.branch_id, run.number, run.run) = (p.branch_id, p.number, p.run)
where %(archive)s::bigint is null or run.archive_id = %(archive)s
union all
select t.archive_id, t.run_id, t.id, 'its run was purged, and it is there'
from purged_task p join task t on t.id = p.id where %(archive)s::bigint is null or t.archive_id = %(archive)s
union all
select b.archive_id, null, null, format('branch %%s: nobody knows who purged run %%s of revision %%s', quote_literal(b.name), p.run, p.number)
from purged_run p join branch b on b.id = p.branch_id
where not exists (select from deed d where d.id = p.deed_id) and (%(archive)s::bigint is null or b.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_purging
-- A run that is being purged in steps is purged already for everybody, and its archive knows that it
-- purges. Nothing of it waits or runs. A purge that began more than ten minutes ago and is not under
-- way was killed.
select p.archive_id as archive, p.run_id as run, null::bigint as task, w.what
from purging p join archive a on a.id = p.archive_id
cross join lateral (select case
    when not exists (select from purged_run r where r.id = p.run_id) then 'it is being purged, and counts as not purged'
    when not a.purges then 'it is being purged, and its archive does not know it'
    when exists (select from task t where t.run_id = p.run_id and t.settled_at is null) then 'it is being purged, and has tasks that are not settled'
    when p.begun_at < clock_timestamp() - interval '10 minutes' then format('run %%s was purged, and not all of its tasks are deleted', p.run_id) end as what) w
where w.what is not null and (%(archive)s::bigint is null or p.archive_id = %(archive)s)
union all
select a.id, null, null, 'it purges no run, and says that it does'
from archive a
where a.purges and not exists (select from purging p where p.archive_id = a.id) and (%(archive)s::bigint is null or a.id = %(archive)s) limit %(most)s;

-- name: doctor_schedules
-- A schedule's last run is a run of the schedule's branch.
select b.archive_id as archive, s.run_id as run, null::bigint as task,
       format('branch %%s: the last run of the schedule %%s of %%s does not exist, or is of another branch', quote_literal(b.name), quote_literal(s.cron),
              array_to_string(s.tasks, ', ')) as what
from schedule s join branch b on b.id = s.branch_id left join run on run.id = s.run_id
where s.run_id is not null and run.branch_id is distinct from s.branch_id and (%(archive)s::bigint is null or b.archive_id = %(archive)s) limit %(most)s;

-- name: doctor_settings
-- The settings of an archive can be read, and its `keep` and `keep_logs` are valid ages.
select id as archive, null::bigint as run, null::bigint as task, name, settings::text
from archive where %(archive)s::bigint is null or id = %(archive)s order by id;

-- name: doctor_times
-- The cron expression and the time zone of a schedule are valid.
select distinct b.archive_id as archive, null::bigint as run, null::bigint as task, b.name, s.cron, s.zone
from schedule s join branch b on b.id = s.branch_id where %(archive)s::bigint is null or b.archive_id = %(archive)s order by 1, 4, 5, 6;

-- name: doctor_sequences
-- No sequence will give an id that exists already.
select null::bigint as archive, null::bigint as run, null::bigint as task, format('the next ids of the table %%s are in use: its highest is %%s', s.name, s.highest) as what
from (select 'task' as name, (select max(id) from task) as highest, (select last_value from task_id) as last
      union all select 'run', (select max(id) from run), (select last_value from run_id)
      union all select 'revision', (select max(id) from revision), (select last_value from revision_id)
      union all select 'attempt', (select max(id) from attempt), (select last_value from attempt_id)
      union all select 'item', (select max(id) from item), (select last_value from item_id)) s
where %(archive)s::bigint is null and s.highest > s.last limit %(most)s;

-- name: doctor_places
-- The places of some runs, from which their names are made.
select run.id, a.name as archive, b.name as branch, b.main, run.number, run.run
from run join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id where run.id = any(%(runs)s);

-- name: doctor_archives
-- The names of archives, also of removed ones.
select id, name from archive where id = any(%(archives)s);
