-- Actions of people on tasks and runs. Called by queue/control.py inside a transaction that has
-- locked the archive's row.

-- name: lock_tasks
-- Lock tasks, so that no claim takes one in between, and return the facts that decide whether an
-- action is possible.
select t.id, t.run_id, t.archive_id, t.branch_id, t.number, t.run, t.name, t.item, t.state, t.attempt_id, t.attempts, t.stop, t.polls,
       t.waived, t.superseded_by, t.root_id, t.kind, t.by, t.program, t.deleted
from task t where t.id = any(%(tasks)s) order by t.id for no key update;

-- name: cancel
-- Cancel tasks that are not running.
update task t set state = {to cancel}, by = %(by)s, settled_at = clock_timestamp(), due_at = null
where t.id = any(%(tasks)s) and {from cancel}
returning t.id;

-- name: could_start
-- The tasks to stop and the tasks to hold while runs are canceled or deleted in steps: running
-- tasks that nobody has asked to stop, and tasks that could start in the meantime. An unstarted
-- task could start unless it is held, or waits for the success of an unstarted task of its run. A
-- deferred task could start if it is due within `within` seconds. Ready tasks come first.
select t.id, t.state from task t
where t.run_id = any(%(runs)s::bigint[]) and t.kind = 'ordinary'
  and (t.state in ('waiting', 'ready') or t.state = 'running' and t.stop is distinct from 'cancel'
       or t.state = 'deferred' and t.due_at < clock_timestamp() + make_interval(secs => %(within)s))
  and not (t.unmet > 0 and exists (
      select from edge e join task s on s.id = e.source
      where e.target = t.id and not e.met and e.kind = 'depends' and not e.crossing and not e.settled and not e.failed
        and s.kind = 'ordinary' and s.state in ('waiting', 'held', 'ready')))
order by t.state <> 'ready', t.priority, t.entry_id, t.run, t.position, t.id;

-- name: set_aside
-- Hold unstarted tasks, and delay deferred ones by some seconds, while their run is canceled or
-- deleted in steps. `hold`: the audit log entry.
update task t set
    state = case when {from hold t} then {to hold} else t.state end,
    hold_id = case when {from hold t} then %(hold)s else t.hold_id end,
    release_id = case when {from hold t} then null else t.release_id end,
    due_at = case when t.state = 'deferred' then greatest(t.due_at, clock_timestamp() + make_interval(secs => %(delay)s)) end,
    asks = false
where t.id = any(%(tasks)s) and ({from hold t} or t.state = 'deferred');

-- name: forget_set_aside
-- Remove the hold from canceled tasks if a cancellation or deletion of their run or backfill had
-- held them: a retry does not hold them again for this reason.
update task t set hold_id = null
where t.id = any(%(tasks)s) and exists (select from deed d where d.id = t.hold_id and d.task_id is null and d.verb in ('cancel', 'delete'));

-- name: ask_to_stop
-- Ask running tasks to stop. A cancellation replaces a restart.
update task t set stop = case when t.stop = 'cancel' then t.stop else %(stop)s end,
    by = case when t.stop = 'cancel' then t.by else %(by)s end
where t.id = any(%(tasks)s) and {from stop}
returning t.id, t.attempt_id, t.stop;

-- name: skip
-- Skip tasks that have not started, as a person decided.
update task t set state = {to skip}, by = %(by)s, as_completed = %(as_completed)s, waived = true, settled_at = clock_timestamp(), due_at = null
where t.id = any(%(tasks)s) and {from skip}
returning t.id;

-- name: waive
-- Waive failed or rejected tasks: the tasks that wait for them may continue.
update task t set waived = true, as_completed = t.as_completed or %(as_completed)s, by = %(by)s
where t.id = any(%(tasks)s) and t.state in ('failed', 'rejected')
returning t.id;

-- name: prioritize
-- Set the priority of unstarted tasks, as a person decided.
update task set priority = %(priority)s, prioritized = true
where id = any(%(tasks)s) and kind = 'ordinary' and state in ('waiting', 'held', 'ready')
returning id;

-- name: prioritize_behind
-- Set the priority of the tasks that depend on some tasks (`sources`) inside their runs, directly
-- or through others, to the `priorities` in the outputs of these. A task keeps its priority if it
-- has started, or if a person set the priority. A task of an item sets the priority of tasks of the
-- same item only. If several sources lead to a task, the lowest number counts.
with recursive behind(id, item, priority) as (
    select t.id, said.item, s.priority
    from unnest(%(sources)s::bigint[], %(priorities)s::int[]) s(id, priority) join task said on said.id = s.id
    join edge e on e.source = s.id and e.kind = 'depends' and not e.crossing
    join task t on t.id = e.target and (said.item = '' or t.item = said.item)
    union
    select t.id, b.item, b.priority
    from behind b join edge e on e.source = b.id and e.kind = 'depends' and not e.crossing
    join task t on t.id = e.target and (b.item = '' or t.item = b.item)
)
update task t set priority = b.priority
from (select id, min(priority) as priority from behind group by id) b
where t.id = any(array(select id from behind)) and t.id = b.id and t.kind = 'ordinary' and t.state in ('waiting', 'held', 'ready')
  and not t.prioritized
returning t.id;

-- name: skipped_because_of
-- The tasks that were skipped because of some roots.
select id from task where root_id = any(%(roots)s) and state = 'skipped' order by id;

-- name: may_come_back
-- The tasks that were skipped because of some roots, without those of deleted items, and of other
-- runs only where these still exist.
select t.id from task t join task r on r.id = t.root_id join run on run.id = t.run_id join revision v on v.id = run.revision_id
where t.root_id = any(%(roots)s) and t.state = 'skipped' and not t.deleted
  and (t.run_id = r.run_id or run.deleted_at is null and v.dropped_at is null)
order by t.id;

-- name: to_waive
-- The failed and rejected tasks of one name up to a revision that nobody has waived.
select id from task
where branch_id = %(branch)s and name = %(name)s and number <= %(until)s and state in ('failed', 'rejected') and kind = 'ordinary' and not waived
  and run_id <> all(array(select run_id from purging))
order by id;

-- part: needs_of
-- The edges from a task `s` that stays skipped to tasks that cannot run then, whatever its root is.
select target, failed from edge where source = s.id and not met and kind = 'depends' and (failed or not settled and not crossing) offset 0

-- name: staying_skipped
-- The candidates (design 5.6, 5.8) that stay skipped. An edge leads to them from a bad task that is
-- neither among the `roots` nor the `candidates`, or (`is_unneeded`) from a task that did not fail
-- although they need its failure. The row of such a candidate has the first of its roots. The
-- candidates behind these stay skipped, too: each edge to one is a row with its `source`, without a
-- root. Where an edge skips or not, depending on the new root of its source, the next call judges it.
--
-- There may be tens of thousands of candidates, and as many bad tasks. So each candidate is reached
-- once. Lists of ids are in subqueries that the server hashes, because each task would search a list
-- from its beginning; without `is true`, the server would join each task with the list.
with recursive direct as materialized (
    select e.target as id, min(r.id) as root, bool_or(e.failed) as is_unneeded
    from edge e join task s on s.id = e.source join task r on r.id = case when s.root_id is null then s.id else root_behind(s.id, s.root_id) end
    where e.target = any(%(candidates)s) and not e.met and e.kind = 'depends'
      and case when e.failed then s.state in ('completed', 'canceled', 'skipped')
               else not e.settled and (not e.crossing or e.product and (r.state <> 'failed' or r.waived))
                    and s.state in ('failed', 'rejected', 'canceled', 'skipped') and not s.as_completed end
      and s.id not in (select unnest(%(candidates)s::bigint[] || %(roots)s::bigint[]))
    group by e.target
), reached(id) as (
    select id from direct
    union
    select e.target from reached s cross join lateral ({part needs_of}) e
    where (e.target in (select unnest(%(candidates)s::bigint[]))) is true
)
select id, root, null::bigint as source, is_unneeded from direct
union all
select e.target, null, s.id, e.failed from reached s cross join lateral ({part needs_of}) e
where (e.target in (select unnest(%(candidates)s::bigint[]))) is true;

-- name: change_root
-- Set the new root of tasks that stay skipped.
update task t set root_id = r.root from unnest(%(tasks)s::bigint[], %(roots)s::bigint[]) r(id, root) where t.id = r.id;

-- name: reopen
-- Set skipped tasks back to waiting.
update task t set state = {to reopen}, asks = false, root_id = null, blocks = 0, settled_at = null, by = null
where t.id = any(%(tasks)s) and {from reopen}
returning t.id;

-- name: named_in_run
-- The tasks of a run with a name, of one item or of all.
select t.id, t.state, t.kind, t.name, t.item, t.root_id from task t
where t.run_id = %(run)s and t.name = %(name)s and (%(item)s::text is null or t.item = %(item)s) and t.kind <> 'gate' and not t.deleted
order by t.item, t.id;

-- name: names_in_run
-- The names of the tasks that a run, or one item of it, has from its workflow files.
select t.name from task t
where t.run_id = %(run)s and t.kind = 'ordinary' and not t.deleted and (%(item)s::text is null or t.item = %(item)s)
group by t.name order by min(t.position), t.name;

-- name: passable_inside
-- The dependencies between the tasks of a run, or of one item, without those of tasks that a person
-- skipped: these pass no dependency on.
select e.target, e.source
from task t join edge e on e.target = t.id and e.kind = 'depends' and not e.crossing
where t.run_id = %(run)s and not t.deleted and not (t.state = 'skipped' and t.root_id is null)
  and (%(item)s::text is null or t.item = %(item)s and t.kind = 'ordinary');

-- name: waited_for_in_vain
-- Those of some settled tasks for which another task of their run still waits: a retry with --from
-- was interrupted before it reached them.
select distinct e.source from edge e join task t on t.id = e.target
where e.source = any(%(tasks)s) and not e.met and not e.crossing and e.kind = 'depends' and t.state in ('waiting', 'held');

-- part: lost_once
-- Whether the command of a task is meant to run once and was lost: nobody knows whether it has done
-- its work.
t.losses > 0 and not t.polls and d.body->>'on_lost' = 'fail'

-- part: ran_once
-- Whether a task must not run twice unless a person says so: it has completed, is deferred or was lost.
(t.state in ('completed', 'deferred') and (d.body ? 'poll' or d.body->>'on_lost' = 'fail') or {part lost_once})

-- name: part_behind
-- The tasks that run again with a task of a run, or of one item (`passable_inside`): whether one of
-- them runs, or must not run twice (`done_once`), and the first %(most)s of those that ended.
with recursive part as (
    select %(task)s::bigint as id
    union
    select t.id from part p join edge e on e.source = p.id and e.kind = 'depends' and not e.crossing join task t on t.id = e.target
    where not t.deleted and not (t.state = 'skipped' and t.root_id is null) and (%(item)s::text is null or t.item = %(item)s and t.kind = 'ordinary')
)
select coalesce(bool_or(t.state = 'running'), false) as is_running, coalesce(bool_or({part ran_once}), false) as ran_once,
       coalesce((array_agg(t.id order by t.id) filter (where t.kind = 'ordinary' and t.settled_at is not null and t.state <> 'skipped'))[:%(most)s], '{}') as ended
from part join task t on t.id = part.id left join definition d on d.id = t.definition_id;

-- name: done_once
-- Those of some tasks that must not run twice unless a person says so: they have completed, are
-- deferred or were lost, and have `poll` or `on_lost: fail` (design 5.30).
select t.id from task t join definition d on d.id = t.definition_id
where t.id = any(%(tasks)s) and {part ran_once}
order by t.id limit %(most)s;

-- name: lost_once
-- Those of some tasks whose command is meant to run once and was lost.
select t.id from task t join definition d on d.id = t.definition_id
where t.id = any(%(tasks)s) and {part lost_once}
order by t.id;

-- name: gone_among
-- The tasks, among some, that nothing will run any more: see `gone` in views/outdated.py.
select t.id from task t join run on run.id = t.run_id join revision r on r.id = run.revision_id join branch b on b.id = t.branch_id join archive a on a.id = t.archive_id
where t.id = any(%(tasks)s::bigint[])
  and (run.deleted_at is not null or t.deleted or a.removed_at is not null or r.dropped_at is not null or b.deleted_at is not null)
order by t.id;

-- name: not_permitted
-- The tasks, among some, that could not start because the settings of their archive do not permit
-- what they ask for. Left out are tasks that may start by now: a setting that decides this was
-- changed since then. For a task without an image in an archive without one, the default image of the
-- task manager decides, too, and a task manager that started later may have one.
--
-- The statement reads the newest `entries` entries of the audit log of each archive, once for all
-- tasks. A setting may have been changed after a task that failed before these entries.
with refused as materialized (
    select t.id, t.archive_id, at.ended_at, coalesce(d.body->>'image', a.settings->>'image') is null as is_without_image
    from task t join attempt at on at.id = t.attempt_id join archive a on a.id = t.archive_id join definition d on d.id = t.definition_id
    where t.id = any(%(tasks)s::bigint[]) and at."end" = 'not-permitted'
), changed as materialized (
    select own.archive_id, coalesce(
               max(d.at) filter (where d.verb = 'set' and d.note ~ '(^|; )(process|image|images|users|networks): '),
               case when count(d.at) = %(entries)s then min(d.at) end) as at
    from (select distinct archive_id from refused) own
    left join lateral (select at, verb, note from deed where archive_id = own.archive_id order by id desc limit %(entries)s) d on true
    group by own.archive_id
)
select r.id from refused r join changed c on c.archive_id = r.archive_id
where (c.at is null or c.at < r.ended_at)
  and not (r.is_without_image and exists (select from task_manager m where m.stopped_at is null and m.started_at > r.ended_at))
order by r.id;

-- name: redo
-- Set ended or deferred tasks back to waiting, with new counters (design 5.30).
update task t set state = {to redo}, retries = t.retries + (t.kind = 'ordinary')::int, asks = false, root_id = null, blocks = 0, superseded_by = null, settled_at = null, due_at = null, by = null, stop = null,
    waived = false, as_completed = false, fault = null, failures = 0, deferrals = 0, losses = 0,
    deferred_at = case when t.polls then clock_timestamp() end
where t.id = any(%(tasks)s) and {from redo}
returning t.id;

-- name: unmeet_between
-- Mark edges inside a run as unmet, each given by its source and its target. A ready target waits
-- again.
with reopened as (
    update edge e set met = false
    from unnest(%(sources)s::bigint[], %(targets)s::bigint[]) given(source, target)
    where e.target = given.target and e.source = given.source and e.met and not e.crossing and e.kind = 'depends'
    returning e.target
), counted as (
    select target, count(*)::int as n from reopened group by target
)
update task t set unmet = t.unmet + c.n, asks = false,
    state = case when {from unmeet t} then {to unmeet} else t.state end
from counted c where t.id = c.target;

-- name: start_over
-- Let the next attempt of tasks that do not run be an attempt of the command, not a poll (design
-- 5.29).
update task set polls = false where id = any(%(tasks)s) and polls and state <> 'running';

-- name: retry
-- Set failed, canceled or skipped tasks back to waiting, with new counters. The deadline of a
-- polled task begins at once. `counts`: true for a retry by a person.
update task t set state = {to retry}, retries = t.retries + %(counts)s::int, asks = false, root_id = null, blocks = 0, superseded_by = null, settled_at = null, by = null, stop = null,
    waived = false, as_completed = false, fault = null, failures = 0, deferrals = 0, losses = 0,
    deferred_at = case when t.polls then clock_timestamp() end
where t.id = any(%(tasks)s) and {from retry}
returning t.id;

-- name: retry_and_hold
-- Set canceled tasks back and hold them, like `retry` and then `hold`: they return with their run,
-- and start only after a release. One statement writes half as much as two. `hold`: the audit log
-- entry.
update task t set state = {to hold}, asks = false, root_id = null, blocks = 0, superseded_by = null, settled_at = null, by = null, stop = null,
    waived = false, as_completed = false, fault = null, failures = 0, deferrals = 0, losses = 0,
    deferred_at = case when t.polls then clock_timestamp() end, hold_id = coalesce(t.hold_id, %(hold)s), release_id = null
where t.id = any(%(tasks)s) and {from retry t} and t.kind = 'ordinary'
returning t.id;

-- name: retry_now
-- Set deferred tasks back to waiting before they are due, with new counters.
update task t set state = {to due}, retries = t.retries + 1, due_at = null, failures = 0, deferrals = 0, losses = 0,
    deferred_at = case when t.polls then clock_timestamp() end
where t.id = any(%(tasks)s) and {from due}
returning t.id;

-- name: poll_now
-- Make the polls of deferred tasks due at once.
update task t set state = {to due}, due_at = null where t.id = any(%(tasks)s) and t.polls and {from due}
returning t.id;

-- name: polled_of_run
-- The deferred tasks of a run that are polled.
select id from task where run_id = %(run)s and state = 'deferred' and polls order by id;

-- name: polled_of_archive
-- The deferred tasks of an archive that are polled.
select t.id from task t join run on run.id = t.run_id and run.deleted_at is null
where t.archive_id = %(archive)s and t.state = 'deferred' and t.polls order by t.id;

-- name: unmeet
-- Mark the edges from reopened tasks inside their run as unmet, except the edges to targets that
-- have started (design 5.8). A ready target waits again.
with reopened as (
    update edge e set met = false
    from task t
    where e.source = any(%(sources)s) and e.met and not e.crossing and e.kind in ('depends', 'exclusive')
      and t.id = e.target and t.state not in ('running', 'deferred')
    returning e.target
), counted as (
    select target, count(*)::int as n from reopened group by target
)
update task t set unmet = t.unmet + c.n, asks = false,
    state = case when {from unmeet t} then {to unmeet} else t.state end
from counted c where t.id = c.target
returning t.id;

-- name: unjudged
-- Settled tasks of other runs with unmet edges to reopened tasks: while both ends were settled,
-- nothing judged these edges.
select distinct e.source from edge e join task s on s.id = e.source and s.settled_at is not null
where e.target = any(%(tasks)s) and not e.met and e.crossing and e.kind = 'depends';

-- name: gates_behind
-- The gates of lists that some items have let pass, if nothing behind the gate has started in the
-- run. `gates`: the gate, and the gates that passed because of it. `ready`: the ready tasks behind
-- these gates.
with recursive behind(gate, id, passed) as (
    select g.id, g.id, true
    from edge e join task g on g.id = e.target and g.kind = 'gate' and g.state = 'completed'
    where e.source = any(%(tasks)s) and not e.crossing and e.kind = 'depends'
    union
    select b.gate, t.id, t.state = 'completed' and not t.program
    from behind b
    cross join lateral (select target from edge where source = b.id and not crossing and kind = 'depends' offset 0) e
    join task t on t.id = e.target
    where b.passed
)
select b.gate, array_agg(b.id) filter (where b.passed) as gates, coalesce(array_agg(b.id) filter (where t.state = 'ready'), '{}') as ready
from behind b join task t on t.id = b.id
group by b.gate having not bool_or(t.attempts > 0 and t.state not in ('waiting', 'held', 'ready'))
order by b.gate;

-- name: untick_report
-- Let REPORTs wait for reopened tasks again, except a REPORT that runs for a person's update. The
-- rows of REPORT are locked already (`keep`), so no claim takes one in between.
update task t set unmet = t.unmet + c.n, state = case when {from unmeet t} then {to unmeet} else t.state end
from (select run_id, count(*)::int as n from task where id = any(%(tasks)s) and kind <> 'gate' group by run_id) c join run on run.id = c.run_id
where t.id = run.report_id and t.state in ('waiting', 'held', 'ready') and run.updating is null
  and not exists (select from report r where r.run_id = run.id and r.made_by is null);

-- name: started_after
-- Tasks of later runs that some tasks (`sources`) have let start, directly, through gates that
-- passed, or through tasks that never began (design 5.19). A task that never began has also let
-- start the tasks that were skipped because of it. `purged_start` covers purged tasks. A task that is
-- being purged counts as started if it has let a task of a further run start, as in
-- `starts_in_runs`: `purged_start` may not have all starts yet. `source`: the given tasks and the
-- gates of their lists. The tasks that a gate has let start count as started even if the gate waits
-- again.
with recursive source(id) as materialized (
    select unnest(%(sources)s::bigint[])
    union
    select g.id from edge e join task g on g.id = e.target and g.kind = 'gate' where e.source = any(%(sources)s) and not e.crossing
), behind(id) as (
    select e.target
    from source s cross join lateral (select target from edge where source = s.id and crossing and met and kind <> 'cancels' offset 0) e
    union
    select step.target
    from behind b
    join task g on g.id = b.id and (not g.program and g.state = 'completed' or g.state in ('canceled', 'skipped') and g.attempts = 0)
    cross join lateral (
        select e.target from edge e where e.source = g.id and e.crossing and e.met and e.kind <> 'cancels'
        union all
        select t.id from task t join edge e on e.target = t.id and e.source = g.id and e.kind <> 'cancels'
        where t.run_id = g.run_id
          and case when g.state = 'completed' then e.met else t.state in ('canceled', 'skipped') and t.attempts = 0 end) step
), found as (
    -- The first tasks that are found, in no order: an order would make the statement read all of a
    -- long history.
    select number, run, name, item from (
        select p.number, p.run, p.name, p.item from purged_start p where p.task_id = any(array(select id from source))
        union all
        select coalesce(p.number, t.number), coalesce(p.run, t.run), coalesce(p.name, case when t.kind = 'gate' then 'COMMIT' else t.name end), coalesce(p.item, t.item)
        from behind b join task t on t.id = b.id
        left join purged_start p on p.task_id = t.id and t.attempts = 0 and t.state in ('completed', 'canceled', 'skipped')
        where t.attempts > 0 or p.task_id is not null
           or t.run_id = any(array(select run_id from purging)) and t.state in ('completed', 'canceled', 'skipped')
              and exists (select from edge e where e.source = t.id and e.crossing and e.met and e.kind <> 'cancels')) t limit %(most)s
)
select distinct a.name as archive, b.name as branch, b.main, f.number, f.run, f.name, f.item
from found f, task s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id
where s.id = (%(sources)s::bigint[])[1] order by f.number, f.run, f.name;

-- name: completed_after
-- The completions of some tasks, given by name and item, at later places of a branch (design 5.19),
-- also in purged runs; the latest first. `after_number`, `after_run`: the given place. A task
-- without a program replaces nothing. A task of a submission that belongs to no item does the work
-- of that submission only, which no other run does. `cause`: the trigger of a run that is to be
-- made at the given places; null: the runs exist.
select a.name as archive, b.name as branch, b.main, c.highest_number as number, c.highest_run as run, c.name, c.item, n.number as after_number, n.run as after_run
from unnest(%(names)s::text[], %(items)s::text[], %(numbers)s::bigint[], %(runs)s::int[]) n(name, item, number, run)
join completion c on c.branch_id = %(branch)s and c.name = n.name and c.item = n.item and (c.highest_number, c.highest_run) > (n.number, n.run)
join branch b on b.id = c.branch_id join archive a on a.id = b.archive_id
where n.item <> '' or coalesce(%(cause)s::text, (select o.trigger from run o where o.branch_id = %(branch)s and o.number = n.number and o.run = n.run)) <> 'submission'
order by c.highest_number desc, c.highest_run desc, c.name limit %(most)s;

-- name: superseders
-- Later tasks whose `cancels` have fired and that cancel tasks of these names and items at a place
-- (design 5.11). `cause`: the trigger of a run that is to be made at this place; null: the run
-- exists.
select n.name, n.item, f.number, f.run, f.name as later
from unnest(%(names)s::text[], %(items)s::text[], %(attempts)s::int[]) n(name, item, attempts)
join task f on f.branch_id = %(branch)s and f.fired and (f.number, f.run) > (%(number)s, %(run)s) and f.run_id <> all(array(select run_id from purging))
join definition d on d.id = f.definition_id
cross join jsonb_to_recordset(d.cancels) as c(name text, here boolean, unstarted boolean)
where not c.here and c.name = n.name and (f.item = n.item or f.item = '' or n.item = '') and not (c.unstarted and n.attempts > 0)
  and (coalesce(%(cause)s::text, (select o.trigger from run o where o.branch_id = %(branch)s and o.number = %(number)s and o.run = %(run)s)) <> 'submission'
       or f.item = n.item and (select g.trigger from run g where g.id = f.run_id) = 'submission')
order by f.number, f.run limit %(most)s;

-- name: tasks_to_act_on
-- The tasks that an action on a run or on an item may concern, in the order of the workflow files;
-- and since when the run is canceled or deleted.
select t.id, t.name, t.item, t.state, t.program, t.polls, t.waived, t.superseded_by, coalesce(run.deleted_at, run.canceled_at) as run_ended_at from task t join run on run.id = t.run_id
where t.run_id = %(run)s and t.kind = 'ordinary' and not t.deleted and (%(item)s::text is null or t.item = %(item)s)
order by t.position, t.item, t.id;

-- name: tasks_to_act_on_now
-- The same of some tasks, which are judged again. A block of its own: with a condition for both, a
-- prepared statement would read all tasks of the run.
select t.id, t.name, t.item, t.state, t.program, t.polls, t.waived, t.superseded_by, coalesce(run.deleted_at, run.canceled_at) as run_ended_at from task t join run on run.id = t.run_id
where t.id = any(%(tasks)s) and t.kind = 'ordinary' and not t.deleted;

-- name: runs_failed
-- The runs of an archive with failed tasks that nobody waived, oldest first, each with the number
-- of these tasks.
select t.run_id as id, count(*)::int as tasks from task t join run on run.id = t.run_id and run.deleted_at is null
where t.archive_id = %(archive)s and t.state = 'failed' and t.kind = 'ordinary' and not t.waived group by t.run_id order by t.run_id;

-- name: waits_inside
-- The dependencies between the tasks of a run.
select e.target, e.source
from task t join edge e on e.target = t.id and e.kind = 'depends' join task s on s.id = e.source and s.run_id = t.run_id
where t.run_id = %(run)s;

-- name: cancelable
-- The unsettled tasks of runs that an action may concern.
select id from task
where run_id = any(%(runs)s) and settled_at is null
  and kind = 'ordinary'
order by id;

-- name: not_started
-- The tasks of runs that have not started.
select id from task
where run_id = any(%(runs)s) and state in ('waiting', 'held', 'ready', 'deferred')
  and kind = 'ordinary'
order by id;

-- name: report_to_cancel
-- The REPORT of a run, if it would still run its command, or is held.
select t.id from run join task t on t.id = run.report_id where run.id = %(run)s and (t.program or t.state = 'held') and {from cancel t};

-- name: cancel_run
-- Record that a person canceled a run.
update run set canceled_at = clock_timestamp(), canceled_by = %(by)s where id = %(run)s and canceled_at is null;

-- name: uncancel_run
-- Mark a run as not canceled any more, because one of its tasks is retried.
update run set canceled_at = null, canceled_by = null
where id in (select run_id from task where id = any(%(tasks)s)) and canceled_at is not null;

-- name: delete_run
-- Turn a run into a tombstone; its history stays readable. `tasks`: the tasks that the deletion
-- canceled or waived. `undelete_run` brings them back, together with those that `delete_further`
-- recorded.
update run set deleted_at = clock_timestamp(), deleted_by = %(by)s, deleted_tasks = coalesce(deleted_tasks, '{}') || %(tasks)s::bigint[] where id = %(run)s and deleted_at is null;

-- name: delete_further
-- Record the tasks that a deletion in steps may cancel or waive, before the run becomes a
-- tombstone.
update run set deleted_tasks = coalesce(deleted_tasks, '{}') || %(tasks)s::bigint[] where id = %(run)s;

-- name: keep_from_undeletion
-- Record that a person canceled or waived some tasks during the unfinished deletion of their run,
-- so that `undelete_run` does not undo it.
update run set deleted_tasks = array(select unnest(run.deleted_tasks) except select unnest(%(tasks)s::bigint[]))
where run.id in (select run_id from task where id = any(%(tasks)s)) and run.deleted_tasks is not null and run.deleted_at is null;

-- name: begin_to_undelete
-- Undelete a run whose tasks are brought back in steps: `deleted_tasks` still names them.
update run set deleted_at = null, deleted_by = null where id = %(run)s;

-- name: undelete_run
-- Undelete a run, after all its tasks have been brought back.
update run set deleted_at = null, deleted_by = null, deleted_tasks = null where id = %(run)s;

-- name: unwaive
-- Take back the waivers of a deletion, so that the failures count again.
update task set waived = false where id = any(%(tasks)s) and state in ('failed', 'rejected') returning id;

-- name: hold_undeleted
-- Hold the tasks that return with their run or item, without gates of lists. `hold`: the audit log
-- entry.
update task t set state = {to hold}, asks = false, hold_id = coalesce(t.hold_id, %(hold)s), release_id = null
where t.id = any(%(tasks)s) and t.run_id = %(run)s and t.kind = 'ordinary' and {from hold t};

-- name: stale_roots
-- The tasks of other runs that are roots of skipped tasks of a run, although the roots were retried
-- since: while a run is deleted, its tasks are not judged again.
select distinct r.id
from task t join task r on r.id = t.root_id and r.run_id <> t.run_id
where t.run_id = %(run)s and t.state = 'skipped'
  and (root_behind(r.id, r.root_id) <> r.id or r.state not in ('failed', 'rejected', 'canceled', 'skipped')
       and not (r.state = 'completed' and exists (select from edge e where e.source = r.id and e.failed)));

-- name: roots_by_deletion
-- The skipped tasks of a deleted run, or of deleted items of it, that are roots because they are
-- deleted (`root_behind`): tasks of other runs need their products or their failures. A task whose
-- own root was deleted after it may still be the stored root of such tasks.
select t.id from task t
where t.run_id = %(run)s and (%(items)s::text[] is null or t.item = any(%(items)s)) and t.state = 'skipped' and t.root_id is not null
  and (root_behind(t.id, t.root_id) = t.id and exists (select from edge e where e.source = t.id and (e.product or e.failed) and not e.met)
       or exists (select from task o where o.root_id = t.id))
order by t.id;

-- name: roots_of_gates
-- The roots of the skipped gates of a run. To judge whether such a gate comes back with its root,
-- each item of its list has to be read.
select distinct root_id as id from task where run_id = %(run)s and kind = 'gate' and state = 'skipped' and root_id is not null;

-- name: waive_run
-- Waive the failures of a deleted run.
update task set waived = true where run_id = %(run)s and state in ('failed', 'rejected') and not waived returning id;

-- name: waive_deleted
-- Waive a failure that a poll found after its run, or its item, was deleted.
update task t set waived = true from run
where t.id = any(%(tasks)s) and t.state in ('failed', 'rejected') and run.id = t.run_id and (run.deleted_at is not null or t.deleted)
returning t.id;

-- name: items_of_run
-- The tasks of some items of a run, and whether the items are deleted.
select id, item, deleted from task where run_id = %(run)s and item = any(%(items)s::text[]) and kind = 'ordinary' order by id;

-- name: tombstone_of_item
-- The tombstone of an item.
select deleted_at, deleted_by, tasks from deleted_item where run_id = %(run)s and item = %(item)s;

-- name: in_other_lists
-- The given tasks of one run whose item has also tasks of another list, each with the name of such
-- a task.
select t.id, t.item, min(o.name) as other
from task t join task o on o.run_id = t.run_id and o.item = t.item and o.kind = 'ordinary' and o.item_id <> t.item_id
where t.id = any(%(tasks)s::bigint[]) group by t.id, t.item order by t.id;

-- name: delete_items
-- Turn items into tombstones. `tasks`: the tasks that the deletion canceled or waived, which
-- `undelete_item` brings back.
with deleted as (
    update task set deleted = true where run_id = %(run)s and item = any(%(items)s::text[]) and kind = 'ordinary' returning id, item
)
insert into deleted_item (run_id, item, deleted_by, tasks)
select %(run)s, item, %(by)s, coalesce(array_agg(id order by id) filter (where id = any(%(tasks)s::bigint[])), '{}') from deleted group by item;

-- name: undelete_item
-- Undelete an item.
with deleted as (
    delete from deleted_item where run_id = %(run)s and item = %(item)s
)
update task set deleted = false where run_id = %(run)s and item = %(item)s and kind = 'ordinary';

-- name: waive_item
-- Waive the failures of a deleted item.
update task set waived = true where id = any(%(tasks)s) and state in ('failed', 'rejected') and not waived returning id;

-- name: stand_alone
-- Add edges from some items to the gates of `PREV:*` that still wait for the gate of their list; an
-- edge that was met becomes unmet. Returns the items that have such an edge now.
with alone as (
    insert into edge (target, source, kind, settled, crossing, declared, met)
    select x.target, i.source, 'depends', false, true, true, false
    from unnest(%(tasks)s::bigint[]) t(id)
    cross join lateral (select source, target from edge where source = t.id and not crossing and kind = 'depends' and not settled offset 0) i
    join task g on g.id = i.target and g.kind = 'gate'
    cross join lateral (select target from edge where source = g.id and crossing and kind = 'depends' and not settled and not met offset 0) x
    join task p on p.id = x.target and p.kind = 'gate'
    on conflict (target, source, kind, settled) do update set met = false where edge.met
    returning target, source
), waiting as (
    update task t set unmet = t.unmet + c.n from (select target, count(*)::int as n from alone group by target) c
    where t.id = c.target
)
select distinct source as id from alone;

-- name: leave_item
-- Let the run continue without the tasks of a deleted item: meet the edges from these tasks to the
-- gates of lists and to other tasks of the run.
with met as (
    update edge e set met = true
    where e.source = any(%(tasks)s) and not e.met and not e.crossing and e.kind = 'depends' and not e.failed and e.target <> all(%(tasks)s)
    returning e.target
)
update task t set unmet = t.unmet - c.n from (select target, count(*)::int as n from met group by target) c
where t.id = c.target
returning t.id, t.settled_at is not null as is_settled;

-- name: skipped_behind
-- The tasks of a run that were skipped because of some deleted tasks and are not deleted
-- themselves.
select t.id from task t where t.root_id = any(%(roots)s) and t.state = 'skipped' and not t.deleted and t.run_id = %(run)s order by t.id;

-- name: stale_roots_of
-- The tasks that are roots of skipped tasks of an item, although the roots were retried since:
-- while an item is deleted, its tasks are not judged again.
select distinct r.id
from task t join task r on r.id = t.root_id
where t.id = any(%(tasks)s) and t.state = 'skipped'
  and (root_behind(r.id, r.root_id) <> r.id or r.state not in ('failed', 'rejected', 'canceled', 'skipped')
       and not (r.state = 'completed' and exists (select from edge e where e.source = r.id and e.failed)));

-- name: settled_before
-- The settled tasks from which an unmet edge leads to some tasks.
select distinct e.source from edge e join task s on s.id = e.source and s.settled_at is not null
where e.target = any(%(tasks)s) and not e.met and e.kind = 'depends';

-- name: settled_of_run
-- All settled tasks of a run.
select id from task where run_id = %(run)s and settled_at is not null order by id;

-- name: running_of_run
-- The running tasks of a run.
select id from task where run_id = %(run)s and state = 'running' order by id;

-- name: bad_of_run
-- The failures of a run that nobody has waived.
select id from task where run_id = %(run)s and state in ('failed', 'rejected') and not waived order by id;

-- name: unsettled_of_run
-- A run's tasks that are not settled.
select id from task where run_id = %(run)s and settled_at is null order by id;

-- name: lock_ready_targets
-- Lock the ready tasks that a reopened task may set back to waiting, before they are judged.
select t.id from task t
where t.id = any(array(
    select e.target from unnest(%(sources)s::bigint[]) s(id)
    cross join lateral (select target from edge where source = s.id and met and not crossing offset 0) e
    cross join lateral (select from task where id = e.target and state = 'ready' offset 0) ready)) and t.state = 'ready'
order by t.id for no key update;

-- name: place_of_task
-- The place, name, state and canceler of a task, the trigger of its run, and whether its run or
-- revision is gone.
select t.id, run.trigger, t.archive_id, t.state, t.superseded_by, t.number, t.run, t.name, t.item, a.name as archive, b.name as branch, b.main,
       t.deleted, run.deleted_at as run_deleted_at, coalesce(r.dropped_at, b.deleted_at, a.removed_at) is not null as gone
from task t join run on run.id = t.run_id join revision r on r.id = run.revision_id
join branch b on b.id = t.branch_id join archive a on a.id = t.archive_id
where t.id = %(task)s;

-- name: place_of_run
-- The place of a run, and whether it was canceled or deleted. `planned`: the items that are planned
-- so far, if the run is not planned completely.
select run.id, run.archive_id, run.branch_id, run.number, run.run, run.deleted_at, run.canceled_at, run.report_id, run.backfill_id,
       run.faults <> '[]' as has_faults, a.name as archive, b.name as branch, b.main, p.next as planned, p.items as planned_items
from run join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id left join planning p on p.run_id = run.id and p.next < p.items
where run.id = %(run)s;

-- name: tasks_of_deletion
-- The tasks that the deletion of a run canceled or waived, or may have; null: the run was not
-- deleted. The list may be long, so `place_of_run` does not read it.
select deleted_tasks as tasks from run where id = %(run)s;

-- name: states_of_item
-- The states of an item's tasks, in the order of the workflow files.
select t.name, t.state from task_name n join run r on r.id = %(run)s and r.branch_id = n.branch_id
join task t on t.branch_id = n.branch_id and t.name = n.name and t.item = %(item)s and t.number = r.number and t.run = r.run
order by t.position, t.id;

-- name: remember
-- Add an entry to the audit log.
insert into deed (by, verb, archive_id, run_id, task_id, note) values (%(by)s, %(verb)s, %(archive)s, %(run)s, %(task)s, %(note)s) returning id;

-- name: remember_each
-- Add an entry about a run to the audit log for each of some notes.
insert into deed (by, verb, archive_id, run_id, note) select %(by)s, %(verb)s, %(archive)s, %(run)s, unnest(%(notes)s::text[]);

-- name: remember_of_tasks
-- Add an entry to the audit log for each of some tasks.
insert into deed (by, verb, archive_id, run_id, task_id, note)
select %(by)s, %(verb)s, t.archive_id, t.run_id, t.id, %(note)s from task t where t.id = any(%(tasks)s::bigint[]) order by t.number, t.run, t.position, t.id;

-- name: set_run_of_deed
-- Set the run of an audit log entry that is older than the run.
update deed set run_id = %(run)s where id = %(entry)s;

-- name: heard_of
-- The task manager of an attempt, if it has reported within some seconds.
select m.hostname, extract(epoch from clock_timestamp() - m.seen_at)::float8 as ago
from attempt a join task_manager m on m.process = a.process
where a.id = %(attempt)s and m.stopped_at is null and m.seen_at > clock_timestamp() - make_interval(secs => %(silence)s);

-- name: count_queue
-- Count the ready and the running tasks, once for each minute.
insert into queue_depth (at, ready, running)
select date_trunc('minute', clock_timestamp()), (select count(*) from task where state = 'ready'), (select count(*) from attempt where ended_at is null)
on conflict do nothing;

-- name: forget_depths
-- Delete the counts that are older than some seconds.
delete from queue_depth where at < clock_timestamp() - make_interval(secs => %(age)s);
