-- Archives, notices and the ledger: the statements that store revisions and make runs of them.

-- name: ask_to_look
-- Request a scan of some archives' repositories. If two notices name revision numbers, the higher
-- number is kept, whichever came later.
insert into look as l (archive_id, revision)
select id, %(revision)s from archive where id = any(%(archives)s) and removed_at is null
on conflict (archive_id) do update set asked = excluded.asked, (asked_at, revision) = (
    select case when late then l.asked_at else now() end, case when late then l.revision else coalesce(excluded.revision, l.revision) end
    from (select l.revision ~ '^[0-9]{1,18}$' and excluded.revision ~ '^[0-9]{1,18}$'
                 and lpad(l.revision, 18, '0') > lpad(excluded.revision, 18, '0')) as told(late)
)
returning archive_id;

-- name: scan_of_archive
-- The progress of the scan of an archive's repository. `asked`: the newest notice that no scan has
-- covered. `is_tried`: a scan has failed since the last request.
select a.name, a.stopped, a.trouble, a.next_read_at > clock_timestamp() as is_tried, l.asked, l.looked
from archive a left join look l on l.archive_id = a.id where a.id = %(archive)s;

-- name: let_be_due
-- Make an archive due for a scan, also during the delay after a failure, because the cause may be
-- fixed now. `by`: the person who asked for the scan, for the audit log; null: no entry.
with remembered as (insert into deed (by, verb, archive_id) select %(by)s, 'sync', %(archive)s where %(by)s::text is not null)
update archive set next_read_at = least(next_read_at, clock_timestamp()) where id = %(archive)s;

-- name: sweep_all
-- Make every archive, or some archives, due for a scan: nobody knows what was committed while no
-- queue manager ran. The statement waits for no archive. It returns the archives that another
-- transaction has locked.
with wanted as materialized (
    select id from archive where removed_at is null and stopped is null and (%(archives)s::bigint[] is null or id = any(%(archives)s))
), free as materialized (
    select id from archive where id = any(array(select id from wanted)) order by id for no key update skip locked
), swept as (
    update archive set next_read_at = least(next_read_at, clock_timestamp()) where id = any(array(select id from free))
)
select id from wanted where id <> all(array(select id from free));

-- name: to_read
-- The archives to scan, at most `most`: first those named by a notice, then those that are due, and
-- of each kind the longest-waiting first. The statement reads each archive's row: an index on
-- `next_read_at` would cost the record of each scan more than it saves here.
select a.id, a.name, l.asked, l.revision, a.trouble is not null as troubled,
       coalesce(extract(epoch from clock_timestamp() - l.asked_at), 0)::float8 as waited
from archive a left join look l on l.archive_id = a.id
where a.removed_at is null and a.stopped is null
  and (a.next_read_at <= statement_timestamp()
       or a.trouble is null and a.id in (select n.archive_id from look n where n.asked <> n.looked))
order by coalesce(l.asked <> l.looked and a.trouble is null, false) desc, coalesce(l.asked_at, a.next_read_at)
limit %(most)s;

-- name: read_done
-- Record a complete scan. The next scan comes after an interval (`sweep`), and the notice is
-- deleted, unless another one came during the scan. The commit does not wait for the disk, because
-- the claim of the planned tasks would wait behind it. If a crash loses the record, the archive is
-- scanned again.
with quickly as materialized (select set_config('synchronous_commit', 'off', true)), read as (
    update archive set read_at = clock_timestamp(), next_read_at = clock_timestamp() + make_interval(secs => %(sweep)s),
        trouble = null, trouble_since = null
    from quickly
    where id = %(archive)s
    returning id
)
delete from look l using read where l.archive_id = read.id and l.asked = %(asked)s;

-- name: read_quietly
-- Record that archives are unchanged since their last scan. The statement waits for no archive: an
-- archive whose row is locked stays due, and so does one that has got a notice or a fault in the
-- meantime.
update archive set read_at = clock_timestamp(), next_read_at = clock_timestamp() + make_interval(secs => %(sweep)s)
where id = any(array(
    select a.id from archive a
    where a.id = any(%(archives)s) and a.removed_at is null and a.stopped is null and a.trouble is null
      and not exists (select from look l where l.archive_id = a.id)
    order by a.id for no key update skip locked));

-- name: expect
-- Keep a notice of a revision that the repository does not have yet.
update look set looked = %(asked)s where archive_id = %(archive)s;

-- name: read_failed
-- Record why and since when an archive could not be read. The delay before the next try is as long
-- as the fault has lasted so far, between `first` and `longest` seconds.
update archive set trouble = %(trouble)s, trouble_since = coalesce(trouble_since, clock_timestamp()),
    next_read_at = clock_timestamp() + greatest(make_interval(secs => %(first)s),
        least(make_interval(secs => %(longest)s), clock_timestamp() - coalesce(trouble_since, clock_timestamp())))
where id = %(archive)s;

-- name: stop_archive
-- Stop a locked archive: it is not read until a person resumes it.
update archive set stopped = %(why)s where id = %(archive)s;

-- name: withhold
-- Remove a locked archive from `ready_archive`, also if it has ready tasks: no claim takes these.
delete from ready_archive where archive_id = %(archive)s;

-- name: offer_again
-- Put a locked archive that continues into `ready_archive`, if it has ready tasks.
insert into ready_archive (archive_id, pools, tier, limited)
select a.id, array_agg(distinct t.pool), a.tier, a.max_running is not null from task t join archive a on a.id = t.archive_id
where t.archive_id = %(archive)s and t.state = 'ready' and not a.withheld
group by a.id
on conflict (archive_id) do update set pools = excluded.pools;

-- name: pause_archive
-- Pause a locked archive. If it is paused already, only a pause with a reason changes the row.
update archive set paused_at = clock_timestamp(), paused_by = %(by)s, pause_reason = %(reason)s
where id = %(archive)s and (paused_at is null or %(reason)s <> '');

-- name: resume_archive
-- End the pause of a locked archive. `is_paused`: the archive is still paused, because the
-- installation is.
update archive set paused_at = null, paused_by = null, pause_reason = null,
    paused_with_all = (select paused_at is not null from pause)
where id = %(archive)s and is_paused
returning is_paused;

-- name: pause_all
-- Pause the installation; archives that are added from now on are paused, too. If it is paused
-- already, only a pause with a reason changes the row.
update pause set paused_at = clock_timestamp(), paused_by = %(by)s, reason = %(reason)s where paused_at is null or %(reason)s <> '';

-- name: resume_all
-- End the pause of the installation.
update pause set paused_at = null, paused_by = null, reason = null;

-- name: with_all
-- The archives whose rows do not repeat the present pause of the installation, or its end, yet.
select a.id from archive a, pause p where a.paused_with_all <> (p.paused_at is not null) and a.removed_at is null order by a.id;

-- name: follow_all
-- Copy the pause of the installation, or its end, to locked archives.
update archive set paused_with_all = (select paused_at is not null from pause)
where id = any(%(archives)s) and paused_with_all <> (select paused_at is not null from pause)
returning id, is_paused;

-- name: drain
-- Drain a host: its task managers claim nothing. If it is drained already, only a drain with a
-- reason changes the row.
insert into drain (host, drained_by, reason) values (%(host)s, %(by)s, %(reason)s)
on conflict (host) do update set drained_at = excluded.drained_at, drained_by = excluded.drained_by, reason = excluded.reason where excluded.reason <> '';

-- name: name_of_host
-- The name of a host, as its newest task manager has it.
select hostname from task_manager where host = %(host)s order by seen_at desc limit 1;

-- name: end_drain
-- End the drain of a host.
delete from drain where host = %(host)s returning host;

-- name: why_stopped
-- The reason why an archive is stopped; no row if it is not.
select name, stopped from archive where id = %(archive)s and stopped is not null;

-- name: branches
-- An archive's branches with their heads.
select b.id, b.name, b.main, b.deleted_at is not null as deleted, r.number, r.name as revision, r.author, r.date, r.message,
       r.origin, r.generation, b.head_id, b.import_until
from branch b left join revision r on r.id = b.head_id
where b.archive_id = %(archive)s order by b.main desc, b.name;

-- name: archive_with_branches
-- An archive, and its branches with their heads, as in `branches`, without messages and origins,
-- which may be long. Only the first row has the settings. An archive without branches has one row.
select a.url, a.uuid, a.kind, a.stopped, a.trouble, a.removed_at, case when row_number() over (order by b.main desc, b.name) = 1 then a.settings end as settings,
       b.id, b.name, b.main, b.deleted_at is not null as deleted, r.number, r.name as revision, r.author, r.date,
       b.head_id, b.import_until, exists (select from planning p where p.branch_id = b.id) as planning
from archive a left join branch b on b.archive_id = a.id left join revision r on r.id = b.head_id
where a.id = %(archive)s order by b.main desc, b.name;

-- name: add_branch
-- Track a branch, or track it again.
insert into branch (archive_id, name, main) values (%(archive)s, %(name)s, %(main)s)
on conflict (archive_id, name) do update set deleted_at = null, main = excluded.main or branch.main
returning id, head_id, main;

-- name: add_branches
-- Track branches that were not tracked before.
insert into branch (archive_id, name, main, import_until)
select %(archive)s, b.name, b.main, b.until from unnest(%(names)s::text[], %(mains)s::bool[], %(untils)s::text[]) b(name, main, until)
returning id, name;

-- name: unset_main
-- Let an archive have no main branch. Returns the branch that was.
update branch set main = false where archive_id = %(archive)s and main returning id, name, head_id;

-- name: delete_branch
-- Record that a branch was deleted, or is no longer tracked.
update branch set deleted_at = clock_timestamp() where id = %(branch)s;

-- name: head
-- The row of a branch, which this statement locks, with its head; whether the branch or its archive
-- is gone, and whether the archive is stopped or on hold. `scheduled`: the branch has schedules.
-- `exclusives`: the exclusive tasks that close the gate to the next revision (design 5.14), in the
-- head's commit run, and in manual and scheduled runs.
select b.head_id, r.number, r.name as revision, r.generation,
       b.deleted_at is not null or a.removed_at is not null as gone, a.stopped is not null as stopped, a.hold_id, b.import_id, b.import_until,
       a.name as archive, a.settings::text as settings, w.files, r.is_foreign,
       case when b.accepted_files is not null or a.settings->'workflow_authors'->0 is null then b.accepted_files
            else (select m.accepted_files from branch m where m.archive_id = a.id and m.main limit 1) end as accepted,
       b.accepted_files is null as inherits,
       exists (select from planning p where p.branch_id = b.id and p.next < p.items) as planning, exists (select from schedule s where s.branch_id = b.id) as scheduled,
       array(select t.id from task t join run on run.id = t.run_id
             where t.branch_id = b.id and t.exclusive and t.settled_at is null
               and run.trigger <> 'submission' and (run.trigger <> 'commit' or t.number = r.number)
               and not exists (select from edge e where e.source = t.id and e.kind = 'exclusive' and e.crossing)
             order by t.id) as exclusives
from branch b join archive a on a.id = b.archive_id left join revision r on r.id = b.head_id left join workflow w on w.id = r.workflow_id
where b.id = %(branch)s for no key update of b;

-- name: lock_for_import
-- The heads of branches, whose rows this statement locks, but of none that is gone or stopped or has
-- an import already.
select b.id, b.head_id from branch b join archive a on a.id = b.archive_id
where b.id = any(%(branches)s) and b.deleted_at is null and b.import_until is null and a.removed_at is null and a.stopped is null
order by b.id for no key update of b;

-- name: begin_import
-- Hold the runs of revisions that are appended to branches, for each up to a revision.
update branch b set import_id = %(hold)s, import_until = w.until
from unnest(%(branches)s::bigint[], %(untils)s::text[]) w(id, until) where b.id = w.id;

-- name: end_import
-- End the hold of appended revisions of a branch.
update branch set import_id = null, import_until = null where id = %(branch)s;

-- name: accept_workflow
-- Accept the workflow files of a branch.
update branch set accepted_files = %(files)s where id = %(branch)s;

-- name: accept_heads
-- Accept the workflow files of all heads of an archive.
update branch b set accepted_files = w.files from revision r join workflow w on w.id = r.workflow_id where b.archive_id = %(archive)s and r.id = b.head_id;

-- name: keep_workflows
-- Store parsed workflow files, by content.
insert into workflow (digest, files, tasks, faults, schema)
select * from unnest(%(digests)s::bytea[], %(files)s::bytea[], %(tasks)s::jsonb[], %(faults)s::jsonb[], %(schemas)s::json[])
on conflict (digest) do nothing;

-- name: keep_definitions
-- Store definitions, by content.
insert into definition (digest, body, cancels)
select * from unnest(%(digests)s::bytea[], %(bodies)s::jsonb[], %(cancels)s::jsonb[])
on conflict (digest) do nothing;

-- name: repair_definitions
-- Restore stored definitions that somebody has changed in the database. Others are not locked.
update definition d set body = new.body, cancels = new.cancels
from unnest(%(digests)s::bytea[], %(bodies)s::jsonb[], %(cancels)s::jsonb[]) new(digest, body, cancels)
where d.digest = new.digest and (d.body, d.cancels) is distinct from (new.body, new.cancels);

-- name: lock_lists
-- The given lists that are stored. They are locked, so that no purge removes them in between.
select digest from list where digest = any(%(digests)s::text[]) order by digest for key share;

-- name: keep_list
-- Store a list, by content. `keep_part_of_list` stores its items.
insert into list (digest) values (%(digest)s) on conflict (digest) do nothing;

-- name: keep_part_of_list
-- Store items of a list; `first`: the place of the first one.
insert into list_part (digest, first, items) values (%(digest)s, %(first)s, %(items)s::jsonb) on conflict (digest, first) do nothing;

-- name: lists_there
-- The given lists that are stored.
select digest from list where digest = any(%(digests)s::text[]);

-- name: lists_removed
-- The last purge that may have removed the lists of a revision's workflow files: a purge of runs
-- whose revisions have the same workflow files. No row: no such run was purged.
select to_char(d.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC by ' || d.by as told
from revision r
join revision o on o.branch_id = r.branch_id and o.workflow_id = r.workflow_id
join purged_run p on p.branch_id = o.branch_id and p.number = o.number
join deed d on d.id = p.deed_id
where r.id = %(revision)s order by d.id desc limit 1;

-- name: lists
-- The items of stored lists, in parts; each item is a pair of key and body.
select digest, items from list_part where digest = any(%(digests)s::text[]) order by digest, first;

-- name: add_list_uses
-- Store which lists the workflow files of runs name.
insert into list_use (run_id, digest) select * from unnest(%(runs)s::bigint[], %(digests)s::text[]);

-- name: begin_planning
-- Store what is still to be planned of a run.
insert into planning (run_id, archive_id, branch_id, names, without, hold_id, behind, items, lists)
values (%(run)s, %(archive)s, %(branch)s, %(names)s, %(without)s, %(hold)s, %(behind)s, %(items)s, %(lists)s::jsonb);

-- name: plannings
-- The runs that are still to be planned, or whose tasks are to be let in, the oldest first; without
-- runs of stopped archives, and without stored runs whose COMMIT still waits. `idle`: seconds since
-- the last portion was stored. `is_of_commit`: the reader of the archive's repository plans the
-- run, unless it had ended before COMMIT passed.
select p.run_id as run, p.archive_id as archive, p.next >= p.items as is_stored, extract(epoch from clock_timestamp() - p.stored_at)::float8 as idle,
       run.trigger = 'commit' and (p.to_let_in is null or c.settled_at < p.stored_at) as is_of_commit
from planning p join archive a on a.id = p.archive_id join run on run.id = p.run_id
join task c on c.branch_id = p.branch_id and c.name = 'COMMIT' and c.item = '' and c.number = run.number and c.run = run.run
where a.stopped is null and (p.to_let_in is null or c.settled_at is not null) order by p.run_id;

-- name: planning
-- The part of a run that is still to be planned, and the place of the run. `gone`: the run's
-- revision, branch or archive is gone. `commit_id`, `commit_state`: the run's COMMIT.
select p.*, c.id as commit_id, c.state as commit_state, c.settled_at is not null as has_commit_settled, run.number, run.run, run.trigger, run.report_id, run.revision_id, run.backfill_id, coalesce(p.hold_id, a.hold_id) as hold, a.settings::text as settings, b.name as branch, b.main, a.name as archive,
       a.stopped is not null as stopped, w.tasks, d.id as files_id, b.deleted_at is not null or a.removed_at is not null or r.dropped_at is not null as gone,
       (select u.store from upload u where u.run_id = p.run_id) as store
from planning p join run on run.id = p.run_id join branch b on b.id = p.branch_id join archive a on a.id = p.archive_id
join revision r on r.id = run.revision_id left join backfill f on f.id = run.backfill_id
join revision d on d.id = coalesce(f.revision_id, run.revision_id) join workflow w on w.id = d.workflow_id
join task c on c.branch_id = p.branch_id and c.name = 'COMMIT' and c.item = '' and c.number = run.number and c.run = run.run
where p.run_id = %(run)s;

-- name: planning_of_branch
-- The runs of a branch with tasks left to plan or to let in, the oldest first. `is_stored`: all
-- tasks are planned.
select run_id as run, next >= items as is_stored from planning where branch_id = %(branch)s order by run_id;

-- name: plan_on
-- Record that a run is planned up to an item.
update planning set next = %(next)s, stored_at = clock_timestamp() where run_id = %(run)s;

-- name: begin_to_let_in
-- Mark a run as stored, and name the tasks that wait for this besides their edges: those that need
-- the completion of no other task of the run.
update planning set stored_at = clock_timestamp(), to_let_in = array(
    select t.id from task t
    where t.run_id = %(run)s and t.kind = 'ordinary'
      and not exists (
        select from edge e join task s on s.id = e.source
        where e.target = t.id and e.kind = 'depends' and not e.settled and not e.crossing
          and s.kind <> 'commit' and not (s.kind = 'gate' and starts_with(s.name, %(everything)s)))
    order by t.id)
where run_id = %(run)s;

-- name: some_cancel
-- One of some tasks that has `cancels`; no row if none has.
select id from task where id = any(%(tasks)s::bigint[]) and cancels limit 1;

-- name: behind_commit
-- The next tasks of a large run whose edges from its COMMIT, which has completed, are not met.
select target from edge where source = %(commit)s and not met and kind = 'depends' and not crossing and not failed limit %(most)s;

-- name: meet_commit
-- Meet the edges of some tasks of a large run from its COMMIT, which has completed. Returns the
-- target of each edge.
update edge set met = true
where target = any(%(tasks)s::bigint[]) and source = %(commit)s and kind = 'depends' and not crossing and not failed and not met returning target;

-- name: let_in
-- Count met edges (`counts`) off tasks of a large run. Returns the tasks that may enter now, and
-- (`is_judged`) the tasks that may block less in later runs, or let other canceled or skipped tasks
-- block less.
with let as (
    update task t set unmet = t.unmet - c.n from unnest(%(tasks)s::bigint[], %(counts)s::int[]) c(id, n) where t.id = c.id returning t.id, t.unmet, t.state, t.blocks
)
select id, state <> 'waiting' as is_judged from let where unmet = 0 and state in ('waiting', 'held') or blocks > 0 order by id;

-- name: let_in_next
-- Record that the next `count` tasks of a run were let in.
update planning set to_let_in = to_let_in[%(count)s + 1:] where run_id = %(run)s;

-- name: end_planning
-- Mark a run as completely planned.
delete from planning where run_id = %(run)s;

-- name: settled_beside_planning
-- Settled tasks whose edges into a run are still unmet, because the tasks settled while the run was
-- being planned; and gates of the run that were canceled or skipped before all of their sources
-- were stored.
select distinct e.source as id
from task t cross join lateral (select source from edge where target = t.id and not met and kind <> 'cancels' offset 0) e
join task s on s.id = e.source and s.settled_at is not null
where t.run_id = %(run)s
union
select id from task where run_id = %(run)s and kind = 'gate' and state in ('canceled', 'skipped');

-- name: stored_of_run
-- The stored tasks of a run, by their keys, and whether they meet an edge inside the run.
select t.id, t.name, t.item, t.kind, t.number, t.run, meets(true, false, t.state, t.as_completed, t.waived, t.blocks) as settled,
       meets(false, false, t.state, t.as_completed, t.waived, t.blocks) as passes, null::boolean as produced,
       case when t.settled_at is not null then t.state in ('failed', 'rejected') end as failed, t.deleted or t.as_completed as is_ignored
from unnest(%(names)s::text[], %(items)s::text[]) n(name, item)
cross join lateral (select * from task t where t.branch_id = %(branch)s and t.name = n.name and t.item = n.item and t.number = %(number)s and t.run = %(run)s offset 0) t;

-- name: exclusives_of_run
-- The unsettled exclusive tasks of a run.
select id from task where run_id = %(run)s and exclusive and settled_at is null order by id;

-- name: use_lists
-- Record that an archive has had a task with a list.
update archive set uses_lists = true where id = %(archive)s and not uses_lists;

-- name: add_items
-- Store the items of runs.
insert into item (id, run_id, body)
select * from unnest(%(id)s::bigint[], %(run_id)s::bigint[], %(body)s::json[]);

-- name: names_ever
-- The names of all tasks that a branch ever had.
select name from task_name where branch_id = %(branch)s;

-- name: unsettled_items
-- The items, of tasks of some names before a place of the branch, that have not settled, or that
-- never began and block tasks that wait for any end. `nearest` finds the nearest one for each key.
-- For the names in `through`, a gate stands for the nearest list until it passes, so the items of
-- this list are left out; its name is the task's name and the suffix `gate`. The gate does not wait for items
-- that were deleted or waived as completed, so these stay in the result.
with near as materialized (
    select n.name, g.number, g.run from unnest(%(names)s::text[]) n(name)
    left join lateral (
        select number, run, state from task g
        where g.branch_id = %(branch)s and n.name = any(%(through)s::text[]) and g.name = n.name || %(gate)s::text and g.item = '' and (g.number, g.run) < (%(number)s, %(run)s)
          and g.run_id <> all(array(select run_id from purging))
        order by g.number desc, g.run desc limit 1) g
    -- If a later task of the name has no list, that task is the nearest occurrence, and no gate
    -- stands for the items. A gate that has passed stands for no item, either: it stays passed if an
    -- item runs again after a task behind the gate has started (design 5.30).
    on g.state <> 'completed' and not exists (
        select from task p where p.branch_id = %(branch)s and p.name = n.name and p.item = '' and (p.number, p.run) > (g.number, g.run) and (p.number, p.run) < (%(number)s, %(run)s)
          and p.run_id <> all(array(select run_id from purging)))
)
select t.name, t.item
from near
cross join lateral (
    select name, item from task t
    where t.branch_id = %(branch)s and t.name = near.name and t.settled_at is null and t.item <> ''
      and t.number <= %(number)s and (t.number, t.run) < (%(number)s, %(run)s) and ((t.number, t.run) is distinct from (near.number, near.run) or t.deleted or t.as_completed) offset 0) t
union
select t.name, t.item from task t
where t.blocks > 1 and t.branch_id = %(branch)s and t.name = any(%(names)s) and t.item <> '' and (t.number, t.run) < (%(number)s, %(run)s)
  and ((t.name, t.number, t.run) not in (select name, number, run from near where number is not null) or t.deleted or t.as_completed);

-- name: content_ids
-- The ids of stored workflow files and definitions.
select digest, id from workflow where digest = any(%(workflows)s::bytea[])
union all
select digest, id from definition where digest = any(%(definitions)s::bytea[]);

-- name: new_ids
-- New ids of revisions, runs, tasks and items, and whether runs of a branch were purged.
select array(select nextval('revision_id') from generate_series(1, %(revisions)s)) as revisions,
       array(select nextval('run_id') from generate_series(1, %(runs)s)) as runs,
       array(select nextval('task_id') from generate_series(1, %(tasks)s)) as tasks,
       array(select nextval('item_id') from generate_series(1, %(items)s)) as items,
       exists (select from purged_run where branch_id = %(branch)s) as has_purged;

-- name: add_revisions
-- Append revisions to the ledger. Here and in the statements that store runs, edges and tasks,
-- `unnest` unpacks only texts and columns with nulls, and subscripts read all other arrays: each
-- array costs `unnest` 4 µs before the first row. In arrays of texts or with nulls, each subscript
-- would read from the beginning.
insert into revision (id, branch_id, number, generation, workflow_id, baseline, is_foreign, name, author, date, message, origin, previous, paths_digest)
select (%(id)s::bigint[])[n], (%(branch)s::bigint[])[n], (%(number)s::bigint[])[n], (%(generation)s::int[])[n], (%(workflow)s::bigint[])[n],
       (%(baseline)s::bool[])[n], (%(foreign)s::bool[])[n], name, author, (%(date)s::timestamptz[])[n], message, origin, previous, paths_digest
from unnest(%(name)s::text[], %(author)s::text[], %(message)s::text[], %(origin)s::text[], %(previous)s::text[], %(paths_digest)s::text[]) with ordinality u(name, author, message, origin, previous, paths_digest, n);

-- name: set_heads
-- Move the heads of branches, each unless somebody else moved it (compare and set). The caller does
-- not read the result: if a head has moved, casting a text to a number fails, which rolls the
-- transaction back.
with moved as (
    update branch b set head_id = h.head
    from unnest(%(branch)s::bigint[], %(head)s::bigint[], %(known)s::bigint[]) h(branch, head, known)
    where b.id = h.branch and b.head_id is not distinct from h.known
    returning b.id)
select case when count(*) < cardinality(%(branch)s::bigint[]) then ('a head moved while its row was locked; heads that did not: ' || count(*))::int end from moved;

-- name: drop_revisions
-- Mark the revisions that a rewrite took off a branch.
update revision set dropped_at = coalesce(dropped_at, clock_timestamp())
where branch_id = %(branch)s and name = any(%(names)s)
returning id;

-- name: correct_revision
-- Store the corrected author and date of a revision, as an administrator changed them in the
-- repository. Files that were exported earlier may show the old ones.
with corrected as (
    update revision set author = %(author)s, date = %(date)s where id = %(revision)s
)
update archive set corrections = corrections + 1 where id = %(archive)s;

-- name: runs_of_revisions
-- The runs of some revisions.
select run.id from run join revision r on r.branch_id = run.branch_id and r.number = run.number
where r.id = any(%(revisions)s);

-- name: runs_of_branch
-- The runs of a branch that have unsettled tasks.
select distinct run_id from task
where branch_id = %(branch)s and settled_at is null;

-- part: keys
-- Some keys, and with %(every_name)s all names that the branch ever had.
(
    select * from unnest(%(names)s::text[], %(items)s::text[]) n(name, item)
    union all
    select name, '' from task_name where branch_id = %(branch)s and %(every_name)s
) n(name, item)

-- name: nearest
-- For each key, and with %(every_name)s for every name that the branch ever had: the nearest
-- occurrence before a place of the branch (design 5.7). `settled`: the occurrence meets an edge
-- from another run that waits for any end. `passes`: it meets an edge that needs its completion.
-- `produced`: its product exists; null if it may still come. `failed`: it failed or rejected its
-- input; null if it has not settled.
select n.name, n.item, t.id, t.kind, t.number, t.run, meets(true, true, t.state, t.as_completed, t.waived, t.blocks) as settled,
       meets(false, true, t.state, t.as_completed, t.waived, t.blocks) as passes,
       case when meets(false, false, t.state, t.as_completed, t.waived, t.blocks) then true
            when t.state in ('failed', 'rejected', 'canceled', 'skipped')
              and (coalesce(r.state, t.state) <> 'failed' or coalesce(r.waived, t.waived)) then false end as produced,
       case when t.settled_at is not null then t.state in ('failed', 'rejected') end as failed, t.deleted or t.as_completed as is_ignored
from {part keys}
cross join lateral (
    select * from task t
    where t.branch_id = %(branch)s and t.name = n.name and t.item = n.item and (t.number, t.run) < (%(number)s, %(run)s) and t.run_id <> all(array(select run_id from purging))
    order by t.number desc, t.run desc limit 1) t
left join task r on r.id = case when t.root_id is not null then root_behind(t.id, t.root_id) end;

-- name: nearest_purged
-- The keys of `nearest` whose nearest occurrence completed and was purged: the stored completion is
-- nearer than any existing task. Called only if runs of the branch were purged, because starting
-- this statement takes longer than the whole of `nearest`.
select n.name, n.item
from {part keys}
where exists (
    select from completion c join revision l on l.id = c.revision_id
    cross join lateral (values (c.highest_number, c.highest_run), (l.number, c.run), (c.commit_number, 1)) o(number, run)
    where c.branch_id = %(branch)s and c.name = n.name and c.item = n.item and (o.number, o.run) < (%(number)s, %(run)s)
      and not exists (
        select from task t
        where t.branch_id = %(branch)s and t.name = n.name and t.item = n.item
          and (t.number, t.run) >= (o.number, o.run) and (t.number, t.run) < (%(number)s, %(run)s) and t.run_id <> all(array(select run_id from purging))));

-- name: nearest_of_commits
-- For each name that commit runs of the branch ever had, and for some items: the nearest occurrence
-- in a commit run (run 1 of a revision) before a place of the branch (design 5.7). If a revision
-- has the name only in other runs, the statement continues with the revision before. If the
-- occurrence completed and was purged, there is no row.
with recursive n(name, item) as (
    select name, '' from task_name where branch_id = %(branch)s and commits union all select 'COMMIT', ''
    union all
    select name || gate, '' from task_name, unnest(%(gates)s::text[]) gate where branch_id = %(branch)s and commits
    union all
    select * from unnest(%(names)s::text[], %(items)s::text[])
), walk(name, item, number, run) as (
    select n.name, n.item, t.number, t.run
    from n cross join lateral (
        select number, run from task t
        where t.branch_id = %(branch)s and t.name = n.name and t.item = n.item and (t.number, t.run) < (%(number)s, %(run)s) and t.run_id <> all(array(select run_id from purging))
        order by t.number desc, t.run desc limit 1) t
    union all
    select w.name, w.item, t.number, t.run
    from walk w cross join lateral (
        select number, run from task t
        where t.branch_id = %(branch)s and t.name = w.name and t.item = w.item and (t.number, t.run) <= (w.number, 1) and t.run_id <> all(array(select run_id from purging))
        order by t.number desc, t.run desc limit 1) t
    where w.run > 1
)
select t.name, t.item, t.id, t.kind, t.number, t.run, meets(true, true, t.state, t.as_completed, t.waived, t.blocks) as settled,
       meets(false, true, t.state, t.as_completed, t.waived, t.blocks) as passes, null::boolean as produced, null::boolean as failed, t.deleted or t.as_completed as is_ignored
from walk w
-- Each row is found by its key: the planner does not know the number of rows, and a join might
-- compare each with each.
cross join lateral (select * from task t where t.branch_id = %(branch)s and t.name = w.name and t.item = w.item and t.number = w.number and t.run = 1 offset 0) t
where w.run = 1
  and not exists (
    select from completion c join revision l on l.id = c.revision_id
    cross join lateral (values (c.highest_number, c.highest_run), (l.number, c.run), (c.commit_number, 1)) o(number, run)
    where exists (select from purged_run where branch_id = %(branch)s)
      and c.branch_id = %(branch)s and c.name = w.name and c.item = w.item and o.run = 1 and o.number < %(number)s and o.number > t.number);

-- name: keep_names
-- Store the task names of branches, and which of them commit runs have.
insert into task_name as known (branch_id, name, commits)
select * from unnest(%(branches)s::bigint[], %(names)s::text[], %(commits)s::bool[])
on conflict (branch_id, name) do update set commits = true where excluded.commits and not known.commits;

-- name: add_runs
-- Store runs.
insert into run (id, archive_id, branch_id, revision_id, number, run, report_id, trigger, by, faults, backfill_id)
select r.id, %(archive)s, r.branch, r.revision, r.number, r.run, r.report, r.trigger, r.by, r.faults, r.backfill
from (
    select (%(id)s::bigint[])[n] as id, (%(branch)s::bigint[])[n] as branch, (%(revision)s::bigint[])[n] as revision,
           (%(number)s::bigint[])[n] as number, (%(run)s::int[])[n] as run, report, trigger, by, faults, backfill
    from unnest(%(report)s::bigint[], %(trigger)s::text[], %(by)s::text[], %(faults)s::jsonb[], %(backfill)s::bigint[]) with ordinality u(report, trigger, by, faults, backfill, n)) r;

-- name: add_edges
-- Store edges.
insert into edge (target, source, kind, settled, crossing, declared, product, failed, met)
select (%(target)s::bigint[])[n], (%(source)s::bigint[])[n], (%(kind)s::edge_kind[])[n], (%(settled)s::bool[])[n], (%(crossing)s::bool[])[n],
       (%(declared)s::bool[])[n], (%(product)s::bool[])[n], (%(failed)s::bool[])[n], (%(met)s::bool[])[n]
from unnest(%(target)s::bigint[]) with ordinality u(target, n);

-- name: add_tasks
-- Store tasks, each as waiting, completed (a gate that passed), held or ready.
insert into task (id, branch_id, run_id, archive_id, number, run, name, item, definition_id, position, kind, program, cancels, exclusive, unmet,
                  hold_id, priority, state, settled_at, ready_at, pool, entry_id, item_id)
select t.id, t.branch, t.run_id, %(archive)s, t.number, t.run, t.name, t.item, t.definition, t.position, t.kind, t.program, t.cancels, t.exclusive,
       t.unmet, t.hold, t.priority, case when t.passed then {to pass} when t.ready then {to enable} when t.hold is not null then {to hold} else 'waiting' end, case when t.passed then clock_timestamp() end,
       case when t.ready then clock_timestamp() end,
       case when t.ready then (select coalesce(d.pool, (select pool from archive where id = %(archive)s)) || d.labels from definition d where d.id = t.definition) end,
       case when t.ready then t.entry end, t.item_id
from (
    select (%(id)s::bigint[])[n] as id, (%(branch)s::bigint[])[n] as branch, (%(run_id)s::bigint[])[n] as run_id, (%(entry)s::bigint[])[n] as entry,
           (%(number)s::bigint[])[n] as number, (%(run)s::int[])[n] as run, (%(position)s::int[])[n] as position, (%(kind)s::task_kind[])[n] as kind,
           (%(program)s::bool[])[n] as program, (%(cancels)s::bool[])[n] as cancels, (%(exclusive)s::bool[])[n] as exclusive,
           (%(unmet)s::int[])[n] as unmet, (%(passed)s::bool[])[n] as passed, (%(ready)s::bool[])[n] as ready, (%(priority)s::int[])[n] as priority,
           name, item, definition, hold, item_id
    from unnest(%(name)s::text[], %(item)s::text[], %(definition)s::bigint[], %(hold)s::bigint[], %(item_id)s::bigint[]) with ordinality u(name, item, definition, hold, item_id, n)) t;

-- name: offer
-- Put an archive into `ready_archive` for tasks that were stored as ready, unless it is withheld.
insert into ready_archive as r (archive_id, pools, tier, limited)
select a.id, o.pools, a.tier, a.max_running is not null
from (select array_agg(distinct pool) as pools from task where id = any(array(select unnest(%(tasks)s::bigint[])))) o, archive a
where a.id = %(archive)s and not a.withheld and not exists (select from ready_archive r where r.archive_id = %(archive)s and r.pools @> o.pools)
on conflict (archive_id) do update set pools = array(select distinct p from unnest(r.pools || excluded.pools) p);

-- name: next_gate
-- The unsettled COMMIT of the next revision after a number, if there is one.
select t.id from task t
where t.branch_id = %(branch)s and t.kind = 'commit' and t.settled_at is null and t.run = 1 and t.number > %(number)s
order by t.number, t.run limit 1 for no key update;

-- name: add_exclusive_edges
-- Add edges from some exclusive tasks to a COMMIT, which then waits until they have settled.
with stored as (
    insert into edge (target, source, kind, settled, crossing, declared, met)
    select %(gate)s, unnest(%(sources)s::bigint[]), 'exclusive', true, true, false, false
    returning target
)
update task set unmet = unmet + (select count(*) from stored) where id = %(gate)s;

-- name: revision_at
-- A revision with its workflow files. `gone`: the revision, its branch or its archive is gone.
-- `hold_id`, `settings`: the hold and the settings of its archive.
select r.id, r.number, r.name, r.author, r.date, r.message, r.paths_digest, coalesce(r.dropped_at, b.deleted_at, a.removed_at) is not null as gone, a.hold_id,
       a.settings::text as settings, w.tasks, w.faults, w.schema,
       r.is_foreign and w.files is distinct from b.accepted_files as is_foreign,
       a.name as archive, a.kind, a.url, a.uuid, b.name as branch, b.main, b.archive_id, b.id as branch_id
from revision r join workflow w on w.id = r.workflow_id join branch b on b.id = r.branch_id join archive a on a.id = b.archive_id
where r.id = %(revision)s;

-- name: last_run
-- The highest run number of a revision.
select coalesce(greatest((select max(run) from run where branch_id = %(branch)s and number = %(number)s),
                         (select max(run) from purged_run where branch_id = %(branch)s and number = %(number)s)), 0) as run;

-- name: add_archive
-- Register an archive. If the installation is paused at the same time, the pause waits for this
-- transaction, so that the new archive is paused, too.
insert into archive (name, kind, url, repository, uuid, folder, settings, paused_with_all)
select %(name)s, %(kind)s, %(url)s, %(repository)s, %(uuid)s, %(folder)s, %(settings)s, p.paused_at is not null
from (select paused_at from pause for share) p
on conflict (name) where removed_at is null do nothing
returning id;

-- name: rename_removed
-- Rename the removed archive whose name another archive has now.
update archive set name = name || '~' || (select count(*) + 1 from archive o where starts_with(o.name, %(name)s || '~'))
where name = %(name)s and removed_at is not null;

-- name: remove_archive
-- Stop watching an archive; its history stays readable.
update archive set removed_at = clock_timestamp() where id = %(archive)s and removed_at is null returning id;

-- name: drop_look
-- Delete the notices for an archive.
delete from look where archive_id = %(archive)s;

-- name: change_archive
-- Change the settings of an archive.
update archive set settings = %(settings)s where id = %(archive)s returning id;

-- name: change_pool
-- Set the pools of an archive's ready tasks, and of tasks that ask for locks, by its present
-- settings.
update task t set pool = p.pool
from (select t.id, coalesce(d.pool, a.pool) || case when d.scratch is null then d.labels else labels_in_scratch(d.labels, d.scratch, t.run_id, t.item) end as pool
      from task t join definition d on d.id = t.definition_id join archive a on a.id = t.archive_id
      where t.archive_id = %(archive)s and (t.state = 'ready' or t.asks)) p
where t.id = p.id and (t.state = 'ready' or t.asks) and t.pool <> p.pool;

-- name: change_turn
-- Store the pools of an archive's ready tasks, its tier, and whether it has a limit.
update ready_archive r set pools = array(select distinct t.pool from task t where t.archive_id = r.archive_id and t.state = 'ready'),
    tier = a.tier, limited = a.max_running is not null
from archive a where r.archive_id = %(archive)s and a.id = r.archive_id;

-- name: retire_branch
-- Rename a branch to keep its history, because its repository went back in time.
update branch set name = %(name)s, main = false, deleted_at = clock_timestamp() where id = %(branch)s;

-- name: rewound
-- The number of retired branches of an archive.
select count(*) from branch where archive_id = %(archive)s and name like 'rewound~%%';

-- name: history_of_branch
-- The number of listed runs of a branch, without that of the baseline, and of its running tasks.
select (select count(*) from run where branch_id = %(branch)s and deleted_at is null and report_id is not null) as runs,
       (select count(*) from task where branch_id = %(branch)s and settled_at is null and state = 'running') as running;

-- name: take_up
-- Let an archive continue after a rewind. `still`: why it stays stopped, if another of its branches
-- has to be rewound, too.
update archive set stopped = %(still)s, trouble = null, trouble_since = null, uuid = %(uuid)s, next_read_at = clock_timestamp()
where id = %(archive)s;

-- name: go_on
-- Let a stopped archive continue, unless another person has already done so, or it was stopped
-- again for another reason.
update archive set stopped = null, trouble = null, trouble_since = null, next_read_at = clock_timestamp()
where id = %(archive)s and stopped = %(stopped)s;

-- name: archive
-- One archive.
select id, name, kind, url, repository, uuid, folder, settings, stopped, trouble, removed_at, paused_at, is_paused, hold_id is not null as is_on_hold from archive where id = %(archive)s;

-- name: archives_watched
-- All archives that are not removed.
select id, name, kind, url, repository, uuid, folder, settings, stopped, trouble from archive where removed_at is null order by name;

-- name: repositories_watched
-- The repositories of all archives that are not removed.
select id, name, kind, repository, uuid, folder from archive where removed_at is null order by name;

-- name: repositories_stamp
-- The number of watched archives, and a stamp that changes with their names and repositories.
select count(*) as n, bit_xor(hashtextextended(concat_ws(chr(31), name, kind, repository, uuid, folder), id)) as stamp from archive where removed_at is null;

-- name: archive_of_revision
-- The archive that a revision belongs to.
select b.archive_id from revision r join branch b on b.id = r.branch_id where r.id = %(revision)s;

-- name: origin_of
-- The task that made a revision, if a task made it.
select r.origin from revision r join branch b on b.id = r.branch_id join archive a on a.id = b.archive_id
where a.name = %(archive)s and r.number::text = %(number)s and (b.name = %(branch)s or %(branch)s::text is null and b.main);
