-- The statements for pages, answers and messages. Called by arkqueue/views; they change nothing.
-- The cost of a statement depends on the size of its result, not on the length of the history: a
-- list first finds its page by id, and then reads the tasks of this page only.
--
-- Statements with many joins take their ids as `array(select unnest(…))`, so that the server keeps
-- their plans (claim.sql): planning `show_runs` takes ten times as long as running it.

-- name: show_archives
-- Archives with their faults and pauses: all watched ones, or one archive by its id, which may be
-- removed.
select a.id, a.name, a.kind, a.url, a.repository, a.uuid, a.folder, a.settings, a.created_at, a.removed_at, a.stopped, a.trouble,
       a.trouble_since, a.read_at, a.next_read_at, l.asked_at as notice_at, l.revision as notice_revision, l.looked = l.asked as expected,
       a.is_paused, a.paused_at is null as paused_with_all, a.paused_at is not null and a.paused_with_all as paused_twice,
       coalesce(a.paused_at, p.paused_at) as paused_at, coalesce(a.paused_by, p.paused_by) as paused_by,
       coalesce(a.pause_reason, p.reason, '') as pause_reason,
       d.at as hold_at, d.by as hold_by, d.note as hold_note, (select count(*) from task t where t.archive_id = a.id and t.state = 'held') as held
from archive a left join look l on l.archive_id = a.id left join pause p on a.paused_with_all left join deed d on d.id = a.hold_id
where (%(archive)s::bigint is null and a.removed_at is null or a.id = %(archive)s)
  and (%(names)s::text[] is null or a.name = any(%(names)s))
order by a.name;

-- part: of_many
-- Whether an entry `h` of the audit log holds an import, a whole archive or a backfill.
h.run_id is null and h.task_id is null

-- part: held_ending
-- The command (`cancel` or `delete`) of an entry `h` of the audit log that holds a task, because it
-- has not reached the task yet (queue/steps.py); null: the entry is of another kind. The cancellation
-- of what was on a branch continues by itself.
case when h.verb in ('cancel', 'delete') and (h.run_id is not null or strpos(h.note, '@fill:') > 0) then h.verb end

-- part: held_note
-- The reason of an entry `h` of the audit log that holds a task `t`. The note on the hold of a list
-- begins with its name (queue/lists.py).
case when h.verb = 'undelete' then 'it was undeleted'
     when {part held_ending} = 'cancel' then 'a cancellation that has not come to its end'
     when {part held_ending} = 'delete' then 'a deletion that has not come to its end'
     when h.run_id is not null and h.task_id is null and t.item <> '' and starts_with(h.note || ': ', t.name || '/*: ') then substr(h.note, length(t.name) + 5)
     else h.note end

-- part: hold
-- The entry `h` of the audit log that holds a task `t`. A plan that is older than the entries may read
-- all of them, and the dead ones that previews leave. `offset` keeps the condition on the task out of
-- the join, so that nothing is read for a task without a hold.
left join lateral (select * from deed where t.hold_id is not null and id = t.hold_id offset 0) h on true

-- part: held_backfill
-- The number of the backfill that an entry `h` of the audit log holds (queue/backfill.py); null: it
-- holds none.
(select f.number from backfill f where f.id = run.backfill_id and h.verb in ('hold', 'cancel') and starts_with(h.note, a.name || '@fill:' || f.number))

-- name: show_holds
-- Why tasks of archives are held: for each archive, the holds with the most tasks, at most `most`,
-- the oldest first. `is_whole`: an import, a hold of the whole archive, or one of a backfill.
select t.archive_id, t.hold_id, t.tasks, h.by, h.at, h.note, h.id is not null and {part of_many} as is_whole
from unnest(%(archives)s::bigint[]) a(id)
cross join lateral (
    select t.archive_id, t.hold_id, count(*) as tasks from task t where t.archive_id = a.id and t.state = 'held'
    group by t.archive_id, t.hold_id order by tasks desc, t.hold_id limit %(most)s) t
left join deed h on h.id = t.hold_id
order by t.archive_id, t.hold_id;

-- name: held_on_branch
-- The number of held tasks of a branch.
select count(*) as held from task t where t.archive_id = %(archive)s and t.state = 'held' and t.branch_id = %(branch)s;

-- name: first_held
-- The first held task of each branch and name of an archive, at most `most`.
select min(t.id) as id from task t join run on run.id = t.run_id
where t.archive_id = %(archive)s and t.state = 'held' and run.deleted_at is null group by t.branch_id, t.name order by id limit %(most)s;

-- name: contents_of_archive
-- The numbers of what an archive has. Where watching begins, nothing ran (`baseline`). `open`: its tasks that have not started, as its removal cancels
-- them. `log_bytes`: of the newest attempts, at most `most`; `has_more`: there are more attempts.
select (select count(*) from run where run.archive_id = %(archive)s and run.deleted_at is null
          and not exists (select from revision r where r.id = run.revision_id and r.baseline and run.trigger = 'commit')) as runs, (select count(*) from submission s where s.archive_id = %(archive)s) as submissions,
       (select count(*) from schedule s join branch b on b.id = s.branch_id where b.archive_id = %(archive)s) as schedules, tasks.open, tasks.running, logs.log_bytes, logs.has_more
from (select count(*) filter (where t.state <> 'running' and (t.kind = 'ordinary' or t.kind = 'report' and (t.program or t.state = 'held'))) as open, count(*) filter (where t.state = 'running') as running
      from task t where t.branch_id = any(array(select id from branch where archive_id = %(archive)s)) and t.settled_at is null) tasks
cross join (
    select coalesce(sum(newest.log_bytes), 0)::bigint as log_bytes, count(*) > %(most)s as has_more
    from (select case when at.log_removal_id is null then at.log_bytes end as log_bytes
          from run join task t on t.run_id = run.id join attempt at on at.task_id = t.id
          where run.archive_id = %(archive)s order by run.id desc limit %(most)s + 1) newest) logs;

-- name: removal_of_archive
-- When an archive was removed, and by whom; nothing if it is watched.
select a.removed_at as at, coalesce((select d.by from deed d where d.archive_id = a.id and d.verb = 'remove' and d.run_id is null and d.task_id is null order by d.id desc limit 1), '') as by
from archive a where a.id = %(archive)s and a.removed_at is not null;

-- name: show_branches
-- The branches of archives with their heads, the main one first.
select b.archive_id, b.id, b.name, b.main, b.deleted_at, r.number, r.name as revision, r.author, r.date, r.message
from branch b left join revision r on r.id = b.head_id
where b.archive_id = any(%(archives)s) order by b.main desc, b.deleted_at is not null, b.name;

-- name: show_schedules
-- The schedules of archives.
select b.archive_id, b.name as branch, s.cron, s.zone, s.tasks, s.next_at, run.left_out, run.left_out_since, run.number, run.run, a.name as archive, b.main,
       (select max(f.fire_at) from schedule_fire f
        where (f.branch_id, f.cron, f.zone, key_of(f.tasks)) = (s.branch_id, s.cron, s.zone, key_of(s.tasks))) as fired_at
from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id left join run on run.id = s.run_id
where b.archive_id = any(%(archives)s) order by s.next_at;

-- name: schedule_of_task
-- The schedule of a branch that runs a task, with its last run.
select s.cron, s.next_at, s.run_id from schedule s where s.branch_id = %(branch)s and %(name)s = any(s.tasks) order by s.next_at limit 1;

-- name: next_fire_of_run
-- The facts that decide what the next fire of a schedule does, for the schedule's last run. `head`:
-- the number of the branch's head. `has_begun`: the run has begun. `newer`: a later occurrence of a
-- task whose product the run takes or for whose failure it waits. `awaited`: the name of such a
-- task for which the run still waits.
select s.next_at, h.number as head,
       exists (select from task t where t.run_id = run.id and t.attempts > 0 and t.kind <> 'report') as has_begun,
       (select l.id from task t join edge e on e.target = t.id join task source on source.id = e.source
        cross join lateral (
            select l.id from task l
            where l.branch_id = run.branch_id and l.name = source.name and l.item = source.item and l.number <= h.number and l.run_id <> all(array(select run_id from purging))
            order by l.number desc, l.run desc limit 1) l
        where t.run_id = run.id and (e.product or e.failed and e.crossing) and l.id <> source.id limit 1) as newer,
       (select split_part(source.name, ':', 1) from task t join edge e on e.target = t.id join task source on source.id = e.source
        where t.run_id = run.id and (e.product or e.failed and e.crossing) and not e.met order by source.name limit 1) as awaited
from schedule s join run on run.id = s.run_id
join branch b on b.id = run.branch_id join revision h on h.id = b.head_id
where run.id = %(run)s order by s.next_at limit 1;

-- name: archives_named
-- The archive of a name: the watched one, or else the one that was removed last.
select id, name, removed_at from archive where name = %(name)s order by removed_at desc nulls first limit 1;

-- name: archives_renamed
-- The removed archives that once had a name, the last one first.
select id, name from archive where starts_with(name, %(name)s || '~') order by id desc;

-- name: archives_in_short
-- The names of watched archives. `needs`: whether an archive may need a person. `is_withheld`: whether
-- none of its tasks starts.
select a.id, a.name, a.stopped is not null as is_stopped, a.stopped is not null or a.is_paused or a.hold_id is not null as is_withheld,
       a.stopped is not null or a.trouble is not null or a.hold_id is not null or a.paused_at is not null or k.scope is not null or jsonb_typeof(a.settings) <> 'object' as needs
from archive a left join (select distinct scope from lock where paused_at is not null) k on k.scope = a.id where a.removed_at is null and (%(names)s::text[] is null or a.name = any(%(names)s)) order by a.name;

-- name: scheduled_archives
-- The names of the watched archives that have schedules.
select distinct a.name from schedule s join branch b on b.id = s.branch_id join archive a on a.id = b.archive_id
where a.removed_at is null and (%(names)s::text[] is null or a.name = any(%(names)s)) order by a.name;

-- name: archive_names
-- The names of the watched archives.
select name from archive where removed_at is null order by name;

-- part: is_wanted
-- The filters of a list of runs, without that by trigger.
(%(branch)s::bigint is null or run.branch_id = %(branch)s)
and (%(number)s::bigint is null or run.number = %(number)s)
and (%(since)s::timestamptz is null or run.created_at >= %(since)s)
and (run.deleted_at is not null) = any(%(deleted)s::bool[])
and (%(backfills)s::bool is null or (run.backfill_id is not null) = %(backfills)s)

-- name: page_of_runs
-- A page of runs of all archives, newest first, by id alone.
select run.id
from run
where run.id < coalesce(%(before)s::bigint, 9223372036854775807)
  and (%(trigger)s::text is null or run.trigger = %(trigger)s)
  and {part is_wanted}
order by run.id desc limit %(limit)s;

-- name: page_of_runs_of_archives
-- A page of runs of some archives, newest first, by id alone. Runs of other archives are not read.
select page.id
from unnest(%(archives)s::bigint[]) of(archive_id)
cross join lateral (
    select run.id
    from run
    where run.archive_id = of.archive_id
      and run.id < coalesce(%(before)s::bigint, 9223372036854775807)
      and (%(trigger)s::text is null or run.trigger = %(trigger)s)
      and {part is_wanted}
    order by run.id desc limit %(limit)s
) page
order by page.id desc limit %(limit)s;

-- part: page_with_trigger
-- The newest runs of the archive `of` with one trigger. Runs with other triggers are not read.
select run.id
from run
where run.archive_id = of.id and run.trigger = %(trigger)s
  and run.id < coalesce(%(before)s::bigint, 9223372036854775807)
  and {part is_wanted}
order by run.id desc limit %(limit)s

-- name: page_of_runs_of_archives_with_trigger
-- Like `page_of_runs_of_archives`, for runs with one trigger.
select page.id
from unnest(%(archives)s::bigint[]) of(id)
cross join lateral ({part page_with_trigger}) page
order by page.id desc limit %(limit)s;

-- name: page_of_runs_with_trigger
-- Like `page_of_runs`, for runs with one trigger. A frequent trigger is found in the newest runs
-- (`nearest`). If these give too few runs, each archive is asked for its runs with the trigger.
with newest as materialized (
    select run.id, run.branch_id, run.number, run.trigger, run.created_at, run.deleted_at, run.backfill_id from run
    where run.id < coalesce(%(before)s::bigint, 9223372036854775807)
    order by run.id desc limit %(nearest)s
), near as materialized (
    select run.id from newest run
    where run.trigger = %(trigger)s
      and {part is_wanted}
    order by run.id desc limit %(limit)s
), far as (
    select page.id
    from archive of
    cross join lateral ({part page_with_trigger}) page
    where (select count(*) from near) < %(limit)s and (select count(*) from newest) = %(nearest)s
)
select id from (select id from near union select id from far) found order by id desc limit %(limit)s;

-- name: page_of_open_runs
-- A page of runs with unsettled tasks, newest first, by id alone. Settled runs are not read: their
-- number grows for ever, and a page of a rare state would look at all of them.
with open as materialized (
    select distinct t.run_id from task t
    where t.settled_at is null and t.branch_id = any(array(
        select b.id from branch b
        where (%(archives)s::bigint[] is null or b.archive_id = any(%(archives)s)) and (%(branch)s::bigint is null or b.id = %(branch)s)))
)
select run.id
from open join run on run.id = open.run_id
where run.id < coalesce(%(before)s::bigint, 9223372036854775807)
  and (%(number)s::bigint is null or run.number = %(number)s)
  and (%(trigger)s::text is null or run.trigger = %(trigger)s)
  and (%(since)s::timestamptz is null or run.created_at >= %(since)s)
  and (run.deleted_at is not null) = any(%(deleted)s::bool[])
  and (%(backfills)s::bool is null or (run.backfill_id is not null) = %(backfills)s)
order by run.id desc limit %(limit)s;

-- part: has_words
-- Whether a revision has the words, and its message and author have those of `message` and `author`.
words_of(r.author, r.message) @@ to_tsquery('simple', %(words)s)
and (%(message)s::text is null or words_of('', r.message) @@ to_tsquery('simple', %(message)s))
and (%(author)s::text is null or words_of(r.author, '') @@ to_tsquery('simple', %(author)s))

-- part: run_has_words
-- Whether the revision of a run has the words. `offset` keeps the planner from reading all revisions
-- of the installation that have them, which are many for a frequent author.
(%(words)s::text is null or exists (select from revision r where r.id = run.revision_id and {part has_words} offset 0))

-- part: newest_runs
-- The newest runs of the archive of a branch. The index of the archive's runs has this order. The
-- limit comes before the other conditions: otherwise the planner would sort all runs.
select run.id, run.branch_id, run.revision_id, run.number, run.run, run.deleted_at, run.backfill_id from run
where run.archive_id = (select b.archive_id from branch b where b.id = %(branch)s)
  and run.id < coalesce(%(before)s::bigint, 9223372036854775807)
order by run.id desc limit %(nearest)s

-- name: page_of_matching_runs
-- A page of the runs of a branch whose revisions have some words, newest first, by id alone. Frequent
-- words are found in the newest runs (`nearest`). If these give too few runs, the index of words is
-- read.
with newest as materialized (
    {part newest_runs}
), near as materialized (
    select run.id from newest run
    where run.branch_id = %(branch)s and run.deleted_at is null and run.backfill_id is null and {part run_has_words}
    order by run.id desc limit %(limit)s
), named as materialized (
    select r.id, r.number from revision r
    where (select count(*) from near) < %(limit)s and (select count(*) from newest) = %(nearest)s
      and r.branch_id = %(branch)s and {part has_words}
), far as (
    select run.id from named
    cross join lateral (
        select run.id from run
        where run.branch_id = %(branch)s and run.number = named.number and run.revision_id = named.id
          and run.deleted_at is null and run.backfill_id is null offset 0) run
    where run.id < (select min(id) from newest)
)
select id from (select id from near union all select id from far) found order by id desc limit %(limit)s;

-- name: page_of_runs_with_task
-- Like `page_of_matching_runs`, for runs with a task of a name, in a state. A frequent name is
-- found in the newest runs (`nearest`). If these give too few runs, the tasks of the name are read
-- at once, because the name is rare.
with newest as materialized (
    {part newest_runs}
), near as materialized (
    select run.id from newest run
    cross join lateral (
        select from task t where t.branch_id = %(branch)s and t.name = %(task)s and t.number = run.number and t.run = run.run
           and not t.deleted and (%(state)s::task_state is null or t.state = %(state)s) limit 1) t
    where run.branch_id = %(branch)s and run.deleted_at is null and run.backfill_id is null and {part run_has_words}
    order by run.id desc limit %(limit)s
), named as materialized (
    select distinct t.run_id from task t
    where (select count(*) from near) < %(limit)s and t.branch_id = %(branch)s and t.name = %(task)s
      and not t.deleted and (%(state)s::task_state is null or t.state = %(state)s)
), far as (
    -- Each run is found by its id: a plan for any name would read every run of the branch.
    select run.id from named
    cross join lateral (
        select run.id, run.revision_id from run
        where run.id = named.run_id and run.deleted_at is null and run.backfill_id is null offset 0) run
    where run.id < (select min(id) from newest)
      and {part run_has_words}
    order by run.id desc limit %(limit)s
)
select id from (select id from near union all select id from far) found order by id desc limit %(limit)s;

-- name: runs_with_words
-- The newest revisions with some words in their messages or authors, on present branches of watched
-- archives, and their commit runs (null: deleted). `before`: only revisions before this one. Frequent
-- words are found among the newest 1,000 revisions. Rare words are found by the index, which is read
-- only if these revisions give too few runs.
with newest as materialized (
    select id, branch_id, author, message from revision where id < coalesce(%(before)s::bigint, 9223372036854775807) order by id desc limit 1000
), near as materialized (
    select r.id from newest r
    where {part has_words}
      and r.branch_id in (
          select b.id from branch b join archive a on a.id = b.archive_id
          where a.removed_at is null and b.deleted_at is null and (%(archives)s::bigint[] is null or a.id = any(%(archives)s)))
    order by r.id desc limit %(limit)s
), indexed as materialized (
    select r.id, r.branch_id from revision r
    where {part has_words}
      and r.id < coalesce(%(before)s::bigint, 9223372036854775807)
      and (select count(*) from near) < %(limit)s
), found as (
    select id from near
    union
    (select r.id from indexed r
     where r.branch_id in (
         select b.id from branch b join archive a on a.id = b.archive_id
         where a.removed_at is null and b.deleted_at is null and (%(archives)s::bigint[] is null or a.id = any(%(archives)s)))
     order by r.id desc limit %(limit)s)
)
select run.id, found.id as revision
from (select id from found order by id desc limit %(limit)s) found
left join run on run.revision_id = found.id and run.trigger = 'commit' and run.deleted_at is null
order by found.id desc;

-- name: runs_numbered
-- The commit runs of revisions with a number, or with an id that begins with a text, on present
-- branches of watched archives, the newest first.
select run.id
from branch b join archive a on a.id = b.archive_id
cross join lateral (
    select r.id from revision r where r.branch_id = b.id and r.number = %(number)s::bigint
    union all
    (select r.id from revision r where r.branch_id = b.id and r.name collate "C" >= %(prefix)s::text and r.name collate "C" < %(prefix)s::text || 'g' limit %(limit)s)) found
join run on run.revision_id = found.id and run.trigger = 'commit'
where a.removed_at is null and b.deleted_at is null and run.deleted_at is null
  and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
order by run.id desc limit %(limit)s;

-- name: archives_like
-- The names of watched archives that contain a text, the best match first.
select name from archive
where strpos(lower(name), lower(%(text)s)) > 0 and removed_at is null and (%(archives)s::bigint[] is null or id = any(%(archives)s))
order by lower(name) <> lower(%(text)s), length(name), name limit %(limit)s;

-- name: branches_like
-- The present branches of watched archives whose names contain a text, the best match first.
select a.name as archive, b.name as branch, b.main
from branch b join archive a on a.id = b.archive_id
where strpos(lower(b.name), lower(%(text)s)) > 0 and b.deleted_at is null and a.removed_at is null
  and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
order by lower(b.name) <> lower(%(text)s), length(b.name), b.name, a.name limit %(limit)s;

-- name: task_names_like
-- The names of tasks that contain a text, with the branches that had such a task, on present
-- branches of watched archives.
select a.name as archive, b.name as branch, b.main, n.name
from task_name n join branch b on b.id = n.branch_id join archive a on a.id = b.archive_id
where strpos(lower(n.name), lower(%(text)s)) > 0 and a.removed_at is null and b.deleted_at is null
  and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
order by n.name <> %(text)s, length(n.name), n.name, a.name limit %(limit)s;

-- name: tasks_of_items_like
-- Tasks on present branches of watched archives whose item has a key that begins with a text, the
-- newest first. `above`: the first key after all such keys in the order of the index. At most
-- `looked_at` items of each list are read: first items whose key is the text, and then the last
-- ones by key. `is_cut`: a list has more such items. `task`: only tasks of this name; null: of any
-- name. `before`: only tasks older than this one.
select found.id, bool_or(found.is_cut) over () as is_cut
from archive a join branch b on b.archive_id = a.id join task_name n on n.branch_id = b.id and (%(task)s::text is null or n.name = %(task)s)
cross join lateral (
    (select t.id, t.run_id, t.deleted, false as is_cut from task t
     where t.branch_id = b.id and t.name = n.name and t.item collate "C" = %(item)s and t.item_id is not null
     order by t.item collate "C" desc, t.number desc, t.run desc limit %(looked_at)s)
    union all
    (select t.id, t.run_id, t.deleted, t.of_list > %(looked_at)s
     from (select t.*, count(*) over () as of_list
           from (select t.id, t.run_id, t.deleted from task t
                 where t.branch_id = b.id and t.name = n.name and t.item collate "C" > %(item)s and t.item collate "C" < %(above)s and starts_with(t.item, %(item)s)
                   and t.item_id is not null
                 order by t.item collate "C" desc, t.number desc, t.run desc limit %(looked_at)s + 1) t) t
     limit %(looked_at)s)) found
join run on run.id = found.run_id
where a.uses_lists and a.removed_at is null and b.deleted_at is null and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
  and run.deleted_at is null and not found.deleted and (%(before)s::bigint is null or found.id < %(before)s)
order by found.id desc limit %(limit)s;

-- name: revision_of_run
-- The revision of a run, and the URL of its archive's repository.
select a.name as archive, a.kind, a.url, a.uuid, r.name as revision, r.number, r.author, r.date, r.previous
from run join revision r on r.id = run.revision_id join archive a on a.id = run.archive_id where run.id = %(run)s;

-- part: changed
-- Whether a run has changed since its newest report. It has not while the report that the run makes
-- by itself is the newest one and is unwritten: this report shows the present state.
cross join lateral (
    select coalesce((
        select r.digest <> report_digest(run.id) and not (
                   (report.state in ('completed', 'failed', 'rejected') or report.state in ('running', 'deferred') and run.updating is null)
                   and not exists (select from report w where w.run_id = run.id and w.made_by is null))
        from report r where r.run_id = run.id order by r.number desc limit 1), false) as since_report
) changed

-- part: of_run
-- The tasks of a run, for the counts from which its state is computed (design 4). COMMIT, and tasks
-- of deleted items, whose polls may still stop, count only while they are unsettled. Gates that
-- arkqueue made do not count.
    from (
        select t.name, t.state, t.attempts, t.waived, t.superseded_by, t.settled_at,
               t.superseded_by is not null and not exists (select from task s where s.id = t.superseded_by and s.run_id = t.run_id) as is_superseded_by_later,
               t.state = 'skipped' and exists (select from task r where r.id = t.root_id and r.run_id <> t.run_id)
                   and exists (select from edge e where e.target = t.id and e.product and not e.met) as lacks_product,
               t.kind = 'ordinary' and not t.deleted as shown,
               t.settled_at is null and t.kind <> 'gate' as unsettled
        from task t where t.run_id = run.id and t.id is distinct from run.report_id
    ) of_run

-- name: show_runs
-- Runs, with the counts from which their states are computed.
select run.id, run.archive_id, run.branch_id, run.revision_id, a.name as archive, b.name as branch, b.main, run.number, run.run, run.trigger, run.by,
       run.faults, run.created_at, run.canceled_at, run.canceled_by, run.deleted_at, run.deleted_by,
       run.left_out, run.left_out_since, f.number as backfill_number, d.number as definitions_number, s.sender_id, r.name as revision, r.author, r.date, r.message, r.origin, r.generation, r.baseline and run.trigger = 'commit' as baseline, r.previous, r.dropped_at,
       run.report_id, report.state as report_state, coalesce(report.attempts, 0) > 0 as has_report_begun, changed.since_report as changed_since_report, p.next as planned, p.items as planned_items, c.*
from run
join archive a on a.id = run.archive_id
join branch b on b.id = run.branch_id
join revision r on r.id = run.revision_id
left join task report on report.id = run.report_id
left join backfill f on f.id = run.backfill_id left join revision d on d.id = f.revision_id
left join submission s on s.run_id = run.id
left join planning p on p.run_id = run.id and p.next < p.items
{part changed}
cross join lateral (
    select count(*) filter (where shown) as tasks,
           count(*) filter (where unsettled) as unsettled,
           count(*) filter (where attempts > 0 and shown) as begun,
           count(*) filter (where state = 'held' and shown) as held,
           count(*) filter (where (state in ('failed', 'rejected') and not waived or lacks_product) and shown) as bad,
           count(*) filter (where state = 'completed' and shown) as completed,
           count(*) filter (where state = 'running' and shown) as running,
           count(*) filter (where state = 'failed' and shown) as failed,
           count(*) filter (where state = 'rejected' and shown) as rejected,
           count(*) filter (where state = 'skipped' and shown) as skipped,
           count(*) filter (where state = 'canceled' and shown) as canceled,
           count(*) filter (where state = 'canceled' and shown and superseded_by is not null) as superseded,
           count(*) filter (where state = 'canceled' and shown and superseded_by is null) as canceled_otherwise,
           count(*) filter (where state = 'canceled' and shown and is_superseded_by_later) as superseded_by_later,
           max(settled_at) as settled_at
{part of_run}
) c
where run.id = any(array(select unnest(%(runs)s::bigint[])))
order by run.id desc;

-- name: runs_in_short
-- Runs for the strip on a page that shows many runs: the counts from which their states are
-- computed, the names of their running tasks, and whether their workflow files have faults.
select run.id, a.name as archive, b.name as branch, b.main, run.number, run.run, run.trigger, run.faults <> '[]' as faults, run.created_at, run.deleted_at,
       r.baseline and run.trigger = 'commit' as baseline, report.state as report_state, changed.since_report as changed_since_report, p.next as planned, c.*
from run
join archive a on a.id = run.archive_id
join branch b on b.id = run.branch_id
join revision r on r.id = run.revision_id
left join task report on report.id = run.report_id
left join planning p on p.run_id = run.id and p.next < p.items
{part changed}
cross join lateral (
    select count(*) filter (where unsettled) as unsettled,
           count(*) filter (where attempts > 0 and shown) as begun,
           count(*) filter (where state = 'held' and shown) as held,
           count(*) filter (where (state in ('failed', 'rejected') and not waived or lacks_product) and shown) as bad,
           count(*) filter (where state = 'running' and shown) as running,
           array_agg(name) filter (where state = 'running' and shown) as running_names,
           count(*) filter (where state = 'canceled' and shown and superseded_by is null) as canceled_otherwise,
           count(*) filter (where state = 'canceled' and shown and is_superseded_by_later) as superseded_by_later
{part of_run}
) c
where run.id = any(array(select unnest(%(runs)s::bigint[])))
order by run.id desc;

-- part: unneeded
-- Whether a task was skipped because the failure for which it runs did not happen (design 5.6). Instead
-- of a subquery of one value, an `exists` may be planned as one reading of all tasks.
coalesce(t.state = 'skipped' and (select root.state = 'completed' from task root where root.id = t.root_id), false) as is_unneeded

-- part: listed
-- Tasks with their newest attempts. The places of their runs are left out, because the caller knows
-- them.
select t.id, t.run_id, t.number, t.run, t.name, t.item, t.kind, t.state, not t.program as gate, t.exclusive, t.priority, t.attempts, t.losses, t.waived, t.stop, t.by, t.unmet, t.fired,
       t.definition_id, t.due_at, t.ready_at, t.settled_at, t.root_id, {part unneeded}, t.superseded_by, t.fault, t.polls,
       t.attempt_id as attempt, at.started_at, at.ended_at, at.exit_code, at."end", at.message, coalesce(tm.hostname, at.host) as host,
       t.hold_id, h.by as held_by, {part held_note} as held_note
from task t
left join attempt at on at.id = t.attempt_id
left join task_manager tm on tm.process = at.process
{part hold}

-- name: list_tasks
-- The tasks of runs with their newest attempts, in the order of the workflow files, without tasks
-- of deleted items. `item`: tasks of this item only. `tasks`: these tasks only.
{part listed}
where t.run_id = any(%(runs)s) and not t.deleted and (%(item)s::text is null or t.item = %(item)s)
  and (%(tasks)s::bigint[] is null or t.id = any(%(tasks)s))
order by t.position, t.id;

-- part: urgency
-- The place of a task among those for which one state is shown, the most urgent first: failures,
-- unsettled tasks, waived failures, and all others. `attention`: the order of states.
case when t.waived and t.state in ('failed', 'rejected') then 2 when t.settled_at is null then 1 when t.state in ('failed', 'rejected') then 0 else 3 end,
array_position(%(attention)s::text[], t.state::text)

-- name: count_cells
-- The ordinary tasks of runs by their names. A list counts as one task, represented by its most
-- urgent item.
select t.run_id, t.name, count(*)::int as items, count(*) filter (where t.state = 'completed')::int as completed,
       count(*) filter (where t.state in ('failed', 'rejected') and not t.waived)::int as bad,
       count(*) filter (where t.state = 'rejected' and not t.waived)::int as rejected,
       count(*) filter (where t.state in ('failed', 'rejected') and t.waived)::int as waived,
       count(*) filter (where t.state = 'rejected' and t.waived)::int as waived_rejected,
       (min(array[{part urgency}, t.position, t.id]))[4] as id
from task t where t.run_id = any(%(runs)s) and t.kind = 'ordinary' and not t.deleted
group by t.run_id, t.name order by t.run_id desc, min(t.position);

-- name: failures_of_runs
-- The first failures of each of some runs that nobody waived, at most `most` of each.
select f.* from unnest(%(runs)s::bigint[]) of(id) cross join lateral (
    select t.id, t.run_id, t.kind, t.state, t.waived from task t
    where t.run_id = of.id and t.state in ('failed', 'rejected') and not t.waived order by t.position, t.id limit %(most)s) f;

-- name: open_or_failed_of_run
-- If tasks of a run may be guarded, the tasks of the run on which persons act: the unsettled ones,
-- and the failures that nobody waived; at most `limit`.
select t.id, t.kind, t.state from task t
where (select coalesce(a.settings->'require_approval', '[]') <> '[]' or coalesce(a.settings->'workflow_authors', '[]') <> '[]' or jsonb_typeof(a.settings) <> 'object'
              or exists (select from task h where h.archive_id = a.id and h.run_id = run.id and h.state = 'held' and h.hold_id < 0)
       from run join archive a on a.id = run.archive_id where run.id = %(run)s)
  and t.run_id = %(run)s and not t.deleted and (t.settled_at is null and t.kind <> 'gate' or t.state in ('failed', 'rejected') and not t.waived)
order by t.position, t.id limit %(limit)s;

-- name: unaccepted_run
-- A run whose workflow files nobody has accepted, although somebody else than the archive's
-- `workflow_authors` changed them; no row: it is another one.
select run.id from run join revision r on r.id = run.revision_id join workflow w on w.id = r.workflow_id join branch b on b.id = r.branch_id join archive a on a.id = run.archive_id
where run.id = %(run)s and r.is_foreign and run.backfill_id is null and a.settings->'workflow_authors'->0 is not null and w.files is distinct from b.accepted_files;

-- name: of_backfill_to_judge
-- The unsettled tasks of a backfill, if tasks of its archive may be guarded; at most `limit`.
select t.id, t.kind, t.state from run join archive a on a.id = run.archive_id join task t on t.run_id = run.id
where run.backfill_id = %(backfill)s and run.deleted_at is null
  and (coalesce(a.settings->'require_approval', '[]') <> '[]' or coalesce(a.settings->'workflow_authors', '[]') <> '[]' or jsonb_typeof(a.settings) <> 'object')
  and not t.deleted and t.settled_at is null and t.kind <> 'gate'
order by run.id limit %(limit)s;

-- name: held_to_judge
-- Of each of some runs, one held task for each name, among its first `limit` held tasks. `hold_id` is
-- negative for a hold by a guard.
select distinct on (of.run_id, of.name, of.hold_id < 0) of.id, of.run_id from unnest(%(runs)s::bigint[]) r(id) cross join lateral (
    select t.id, t.run_id, t.name, t.hold_id from task t
    where t.archive_id = %(archive)s and t.run_id = r.id and t.state = 'held' and not t.deleted limit %(limit)s) of;

-- name: of_archive_to_judge
-- The held tasks of an archive, and the failures that nobody waived; at most `limit` of each kind.
(select t.id, t.state from task t join run on run.id = t.run_id
 where t.archive_id = %(archive)s and t.state = 'held' and not t.deleted and run.deleted_at is null limit %(limit)s)
union all
(select t.id, t.state from task t join run on run.id = t.run_id
 where t.archive_id = %(archive)s and t.state = 'failed' and not t.waived and not t.deleted and run.deleted_at is null limit %(limit)s);

-- name: one_of_each_list
-- The first item of each list of a run.
with recursive list(position, id) as (
    (select t.position, t.id from task t where t.run_id = %(run)s and t.item_id is not null order by t.position, t.id limit 1)
    union all
    select next.position, next.id from list cross join lateral (
        select t.position, t.id from task t where t.run_id = %(run)s and t.item_id is not null and t.position > list.position
        order by t.position, t.id limit 1) next)
select id from list;

-- name: states_around
-- The states of the unsettled tasks of an archive and of all tasks of a run, before a person acts
-- on them; at most `limit` tasks.
select t.id, t.state, t.waived, t.stop is not null as stops from task t
where t.branch_id in (select id from branch where archive_id = %(archive)s) and t.settled_at is null and t.kind <> 'gate' and not t.deleted
union
select t.id, t.state, t.waived, t.stop is not null from task t where t.run_id = %(run)s and t.kind <> 'gate' and not t.deleted
limit %(limit)s;

-- name: states_of
-- The states of some tasks, in the order of their revisions.
select t.id, t.state, t.waived, t.stop is not null as stops from task t where t.id = any(%(tasks)s) order by t.number, t.run, t.position, t.id;

-- name: open_before
-- Some tasks, and the tasks that they wait for, directly or through others, each with its unmet
-- edges (`sources`). No row, if there are more than `most` such tasks.
with recursive before(id) as (
    select unnest(%(tasks)s::bigint[])
    union
    select e.source from before b join edge e on e.target = b.id and not e.met and e.kind in ('depends', 'exclusive')
), near as materialized (
    select id from before limit %(most)s + 1
)
select t.id, t.branch_id, t.name, t.item, t.state, not t.program as gate, a.started_at,
       array(select e.source from edge e where e.target = t.id and not e.met and e.kind in ('depends', 'exclusive')) as sources
from near join task t on t.id = near.id left join attempt a on a.id = t.attempt_id
where (select count(*) from near) <= %(most)s;

-- name: edges_into
-- The tasks that some tasks wait for, or have waited for, and whether each edge is of the kind
-- `depends`.
select e.target, e.source, e.met, e.kind = 'depends' as is_depends from edge e where e.target = any(%(tasks)s) and e.kind not in ('cancels', 'stopping');

-- name: names_among
-- The names of some tasks, if they are in some runs.
select t.id, t.run_id, t.name from task t where t.id = any(%(tasks)s) and t.run_id = any(%(runs)s);

-- name: list_some_tasks
-- Like `list_tasks`, but with only some items (`first`) of long lists (`long`: the id of the run
-- and the name of the task).
{part listed}
where t.run_id = any(%(runs)s) and not t.deleted
  and (t.item = '' or t.id = any(%(first)s) or t.run_id::text || ' ' || t.name <> all(%(long)s::text[]))
order by t.position, t.id;

-- name: count_items
-- For each task name of some runs, the number of items in each state, how many of these are waived,
-- and the first item. `behind`: the number of held items that wait for other tasks, too.
select t.run_id, t.name, t.state, count(*)::int as n, count(*) filter (where t.waived)::int as waived,
       count(*) filter (where t.state = 'held' and t.unmet > 0)::int as behind, min(t.id) as first
from task t where t.run_id = any(%(runs)s) and t.item <> '' and not t.deleted
group by t.run_id, t.position, t.name, t.state order by t.run_id, t.position;

-- name: has_list
-- Whether the task of a name has a list in a run.
select exists (select from task t where t.run_id = %(run)s and t.item_id is not null and t.name = %(name)s and not t.deleted) as is_there;

-- name: page_of_items
-- A page of the items of a run, in the order of its files and lists, by id alone.
select t.id from task t
where t.run_id = %(run)s and t.item_id is not null and not t.deleted
  and (%(name)s::text is null or t.name = %(name)s) and (%(states)s::text[] is null or t.state::text = any(%(states)s))
  and (t.position, t.id) > (coalesce((select position from task where id = %(after)s::bigint), -1), coalesce(%(after)s::bigint, 0))
order by t.position, t.id limit %(limit)s;

-- name: show_tasks
-- Tasks by id, with their places and their newest attempts.
select t.id, t.run_id, t.branch_id, t.number, t.run, t.name, t.item, t.kind, t.state, not t.program as gate, t.exclusive, t.priority, t.attempts, t.losses, t.waived, t.stop, t.by, t.unmet, t.fired, t.asks,
       t.definition_id, t.due_at, t.ready_at, t.settled_at, t.root_id, {part unneeded}, t.superseded_by, t.fault, t.polls, t.deferred_at, t.retries,
       t.deferred_at + (select make_interval(secs => (d.body->>'deadline')::float8) from definition d where d.id = t.definition_id) as deadline_at,
       t.attempt_id as attempt, at.claimed_at, at.started_at, at.ended_at, at.exit_code, at."end", at.message, coalesce(tm.hostname, at.host) as host,
       at.lease_until, at.lease_until < clock_timestamp() as lapsed, at.lease_until + at.outlives as reserved_until, tm.seen_at,
       coalesce(tm.stopped_at is null and tm.seen_at > clock_timestamp() - make_interval(secs => %(silence)s), false) as heard,
       a.name as archive, b.name as branch, b.main, r.name as revision, run.deleted_at as run_deleted_at, t.deleted, run.left_out, run.left_out_since,
       r.dropped_at, b.deleted_at, a.removed_at, a.stopped, a.max_running, a.id as archive_id,
       a.is_paused, a.paused_at is null as paused_with_all, a.paused_at is not null and a.paused_with_all as paused_twice,
       coalesce(a.paused_at, p.paused_at) as paused_at, coalesce(a.paused_by, p.paused_by) as paused_by,
       coalesce(a.pause_reason, p.reason, '') as pause_reason,
       coalesce(a.settings->'require_approval', '[]') as guards, coalesce(a.settings->'approval_not_author' = 'true', false) as not_by_author, t.hold_id, h.at as held_at, h.by as held_by, {part held_note} as held_note, h.verb = 'hold' and h.run_id is null as is_held_with_archive,
       -- The backfill that the audit log entry names (queue/backfill.py). The backfill itself may
       -- have no hold any more, although its release was refused for some tasks.
       {part held_backfill} as held_backfill,
       h.verb = 'import' as is_imported, {part held_ending} as held_ending,
       l.at as released_at, l.by as released_by, l.note as released_note, o.at as archive_held_at, o.by as archive_held_by, o.note as archive_held_note
from task t
join run on run.id = t.run_id
join archive a on a.id = t.archive_id
join branch b on b.id = t.branch_id
join revision r on r.id = run.revision_id
left join (select * from pause limit 1) p on a.paused_with_all
left join attempt at on at.id = t.attempt_id
left join task_manager tm on tm.process = at.process
{part hold}
left join lateral (select * from deed where t.release_id is not null and id = t.release_id offset 0) l on true
left join lateral (select * from deed where a.hold_id is not null and id = a.hold_id offset 0) o on true
where t.id = any(array(select unnest(%(tasks)s::bigint[])))
order by t.position, t.id;

-- name: awaited
-- For each of some waiting tasks, the first task that it waits for, and the number of such tasks.
select e.target, min(e.source) as source, count(*)::int as n
from edge e where e.target = any(%(tasks)s) and not e.met and e.kind not in ('cancels', 'stopping') group by e.target;

-- name: task_places
-- The parts of the names of tasks.
select t.id, a.name as archive, b.name as branch, b.main, t.number, t.run, t.name, t.item, t.kind, t.state, t.waived, t.run_id
from task t join archive a on a.id = t.archive_id join branch b on b.id = t.branch_id
where t.id = any(%(tasks)s) and t.run_id <> all(array(select run_id from purging));

-- name: tasks_of_attempts
-- Some attempts, with their tasks and numbers.
select id, task_id, number, kind from attempt where id = any(%(attempts)s) order by id;

-- name: show_definition
-- A frozen definition.
select body from definition where id = %(definition)s;

-- name: show_item
-- The item of a task, if the task has a list, and its text with all digits of its numbers.
select i.body, i.body::text as text from task t join item i on i.id = t.item_id where t.id = %(task)s;

-- name: inputs_of_task
-- The contents of a task's INPUTS for a limited number of its dependencies: their states, and the
-- beginning of their newest outputs. Items of a list are found through the gate of the list.
select i.id, i.state, left(a.outputs::text, %(longest)s) as outputs, length(a.outputs::text) as size
from (
  select s.id, s.state, s.attempt_id from edge e join task s on s.id = e.source and s.kind <> 'gate' and s.run_id <> all(array(select run_id from purging))
  where e.target = %(task)s and e.kind = 'depends' and e.declared
  union
  select s.id, s.state, s.attempt_id
  from edge e join task g on g.id = e.source and g.kind = 'gate' join edge i on i.target = g.id and i.kind = 'depends' join task s on s.id = i.source and s.item <> '' and s.run_id <> all(array(select run_id from purging))
  where e.target = %(task)s and e.kind = 'depends' and e.declared and g.name in (s.name || ':completed', s.name || ':settled')
  order by 1 limit %(most)s) i
left join attempt a on a.id = i.attempt_id
order by i.id;

-- name: size_of_run
-- The number of tasks of a run, and the number of their attempts.
select count(*)::int as tasks, coalesce(sum((select count(*) from attempt a where a.task_id = t.id)), 0)::int as attempts from task t where t.run_id = %(run)s and t.kind <> 'gate';

-- name: polls_there
-- Whether a deferred task of an archive or of a run is polled.
select exists (select from task t where t.state = 'deferred' and t.polls and (t.archive_id = %(archive)s or t.run_id = %(run)s)) as is_there;

-- name: scratch_of_task
-- The scratch folder of a task; no row if it has none.
select m.hostname, s.store, s.removed_at is not null as is_removed, 1 as folders, s.bytes, s.run_id, s.item
from task t join definition d on d.id = t.definition_id
join scratch s on s.run_id = t.run_id and s.item = case d.scratch when 'item' then t.item else '' end
left join lateral (select hostname from task_manager m where m.store = s.store order by m.seen_at desc limit 1) m on true
where t.id = %(task)s and d.scratch is not null
order by s.id desc limit 1;

-- name: show_attempts
-- The attempts of some tasks, the first one first, or some attempts.
select at.id, at.task_id, at.kind, at.number, at.process, at.host, tm.hostname, at.lease_until, at.claimed_at, at.started_at, at.ended_at, at.exit_code,
       at."end", at.message, at.outputs, at.base, at.log_bytes, at.image,
       at.processor_seconds, at.peak_memory_bytes, at.usage_sampled,
       removed('log was', l) as log_removed, removed('outputs were', o) as outputs_removed
from attempt at left join task_manager tm on tm.process = at.process
left join deed l on l.id = at.log_removal_id left join deed o on o.id = at.outputs_removal_id
where at.task_id = any(%(tasks)s::bigint[]) or at.id = any(%(attempts)s::bigint[])
order by at.task_id, at.number;

-- name: attempts_around
-- The newest `most` attempts of a task, or as many around the one with a number, the first one first
-- (`is_shown`). Also half as many before and behind these, and the newest one. `count`: the number of
-- all attempts.
with every as materialized (
    select id, number, row_number() over (order by number) as place, count(*) over () as count from attempt where task_id = %(task)s
), chosen as (
    select place, greatest(least(place - %(most)s / 2, count - %(most)s + 1), 1) as first from every
    order by number = %(number)s::int desc nulls last, place desc limit 1
)
select e.id, e.number, e.count, e.place = chosen.place as is_chosen, e.place >= chosen.first and e.place < chosen.first + %(most)s as is_shown
from every e, chosen
where e.place = e.count or e.place >= chosen.first - %(most)s / 2 and e.place < chosen.first + %(most)s + %(most)s / 2
order by e.place;

-- name: removable_of_task
-- Whether an ended attempt of a task has a log, and whether one has outputs, that nobody has removed.
select exists (select from attempt where task_id = %(task)s and ended_at is not null and log_bytes > 0 and log_removal_id is null) as log,
       exists (select from attempt where task_id = %(task)s and ended_at is not null and outputs <> '{}' and outputs_removal_id is null) as outputs;

-- name: used_by_run
-- The resources that the attempts of a run, or of one of its items, used: the sum of the processor
-- time and the largest peak of memory.
select count(processor_seconds)::int as attempts, sum(processor_seconds) as processor_seconds, max(peak_memory_bytes) as peak_memory_bytes,
       not bool_or(coalesce(usage_sampled, started_at is not null)) as is_all
from attempt where task_id = any(array(select id from task t where t.run_id = %(run)s and t.attempts > 0 and not t.deleted and (%(item)s::text is null or t.item = %(item)s)));

-- name: show_deeds
-- The newest audit log entries about tasks, or about runs and their tasks; also the entries about a
-- whole run, backfill or archive that hold these tasks, or that released them last.
-- `is_of_run`: about a whole run, `is_of_archive`: about a whole archive.
select d.at, d.by, d.verb, t.name, t.item, d.note, a.name as archive, b.name as branch, b.main, run.number, run.run,
       d.task_id is null and d.run_id is not null as is_of_run, d.task_id is null and d.run_id is null as is_of_archive
from deed d left join task t on t.id = d.task_id left join run on run.id = d.run_id left join branch b on b.id = run.branch_id left join archive a on a.id = d.archive_id
where d.task_id = any(%(tasks)s::bigint[]) or d.run_id = any(%(runs)s::bigint[])
   or d.id = any(array(select unnest(array[h.hold_id, h.release_id]) from task h where h.id = any(%(tasks)s::bigint[]) and (h.hold_id is not null or h.release_id is not null)
                       union select unnest(array[h.hold_id, h.release_id]) from task h where h.run_id = any(%(runs)s::bigint[]) and (h.hold_id is not null or h.release_id is not null)))
order by d.id desc limit %(most)s;

-- name: last_retry_from
-- The options of the newest `retry --from` of a run.
select note from deed where run_id = %(run)s and task_id is null and verb = 'retry' and note ~ '(^| )--from ' order by id desc limit 1;

-- name: interrupted_retries
-- The runs with tasks that wait in vain for a task that a `retry --from` names and has not brought back
-- (queue/redo.py: that task comes back last). The newest run comes first. `note`: the options of the
-- command. Only branches with such retries have their open tasks read.
with retried as materialized (
    select distinct on (run_id, substring(note from '(?:^| )--from (\S+)')) run_id, note, substring(note from '(?:^| )--from (\S+)') as task
    from deed where run_id is not null and task_id is null and verb = 'retry' and note ~ '(^| )--from '
    order by run_id, substring(note from '(?:^| )--from (\S+)'), id desc),
open as materialized (
    select distinct t.run_id from task t
    where t.settled_at is null and t.unmet > 0 and t.kind <> 'report'
      and t.branch_id = any(array(select distinct run.branch_id from retried join run on run.id = retried.run_id)))
select a.name as archive, b.name as branch, b.main, run.number, run.run, retried.note
from retried join open on open.run_id = retried.run_id join run on run.id = retried.run_id
join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id
where run.deleted_at is null and a.removed_at is null and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
  and exists (select from task s join edge e on e.source = s.id join task t on t.id = e.target
              where s.run_id = run.id and s.name = retried.task and s.state in ('completed', 'canceled', 'skipped')
                and not e.met and not e.crossing and e.kind = 'depends' and t.state in ('waiting', 'held'))
order by run.id desc limit %(most)s;

-- name: audit_log
-- A page of the audit log, the newest entry first; `archives`: of these archives only. `hidden`:
-- also entries about deleted runs, tokens and sign-ins. A purged run keeps its name.
select d.id, d.at, d.by, d.verb, d.note, a.name as archive, b.name as branch, b.main,
       coalesce(run.number, gone.number) as number, coalesce(run.run, gone.run) as run, t.name, t.item, t.kind
from deed d left join archive a on a.id = d.archive_id
left join run on run.id = d.run_id left join purged_run gone on gone.id = d.run_id
left join branch b on b.id = coalesce(run.branch_id, gone.branch_id) left join task t on t.id = d.task_id
where (%(before)s::bigint is null or d.id < %(before)s)
  and (%(archives)s::bigint[] is null or d.archive_id = any(%(archives)s))
  and (%(by)s::text = '' or strpos(lower(d.by), lower(%(by)s)) > 0)
  and (%(verb)s::text = '' or d.verb = %(verb)s)
  and (%(hidden)s or d.verb not in ('create token', 'revoke token', 'sign in', 'sign out')
                     and (run.deleted_at is null or d.verb in ('delete', 'undelete')))
order by d.id desc limit %(limit)s;

-- part: spared
-- Whether the task that an edge `e` of `cancels` names is spared, because it is of a submission:
-- only a later submission supersedes such a task, and only one with the same key (design 5.10).
exists (
    select from task v join run w on w.id = v.run_id join task c on c.id = e.target join run x on x.id = c.run_id
    where v.id = e.source and w.trigger = 'submission' and w.id <> x.id and not (x.trigger = 'submission' and v.item = c.item and v.kind <> 'gate'))

-- name: show_some_edges
-- The edges to some tasks from tasks of other runs, and from the given tasks.
select e.target, e.source, e.kind, e.settled, e.crossing, e.declared, e.failed, e.met
from edge e where e.target = any(%(tasks)s) and (e.crossing or e.source = any(%(tasks)s)) and not (e.kind = 'cancels' and {part spared})
order by e.target, e.source, e.kind;

-- name: show_edges
-- All edges to the tasks of some runs, or (`item`) to the tasks of one item of these runs.
select e.target, e.source, e.kind, e.settled, e.crossing, e.declared, e.failed, e.met
from edge e where e.target in (select id from task where run_id = any(%(runs)s) and (%(item)s::text is null or item = %(item)s)) and not (e.kind = 'cancels' and {part spared})
  and not (e.crossing and exists (select from purging) and (select s.run_id from task s where s.id = e.source) = any(array(select run_id from purging)))
order by e.target, e.source, e.kind;

-- name: unmet_lists
-- The given pairs of lists of a run between which an edge is unmet. Each list is named by the id of
-- one of its items. The statement reads the edges of a pair up to the first unmet one.
select pair.target, pair.source
from unnest(%(targets)s::bigint[], %(sources)s::bigint[]) pair(target, source)
join task of_target on of_target.id = pair.target join task of_source on of_source.id = pair.source
cross join lateral (
    select from task t
    cross join lateral (
        select from edge e join task s on s.id = e.source
        where e.target = t.id and not e.met and e.kind = 'depends' and s.run_id = t.run_id and s.position = of_source.position and s.item_id is not null limit 1) e
    where t.run_id = of_target.run_id and t.position = of_target.position and t.item_id is not null and t.unmet > 0 and not t.deleted limit 1
) one;

-- name: runs_between
-- The runs of a branch from one revision to another.
select id from run where branch_id = %(branch)s and number between %(first)s and %(last)s and deleted_at is null
order by number, run limit %(limit)s;

-- name: graph_nodes
-- The nodes of a graph: tasks by id, without those of deleted items.
select t.id, t.run_id, a.name as archive, b.name as branch, b.main, t.number, t.run, t.name, t.item, t.kind, t.state, t.waived, not t.program as gate, t.definition_id
from task t join archive a on a.id = t.archive_id join branch b on b.id = t.branch_id
where t.id = any(%(tasks)s) and not t.deleted and t.run_id <> all(array(select run_id from purging))
order by t.number, t.run, t.position, t.id;

-- name: branches_named
-- The branches of an archive, to which a name may refer, the main one first.
select b.id, b.name, b.main from branch b where b.archive_id = %(archive)s order by b.main desc, b.deleted_at is not null, b.name;

-- name: revisions_with
-- Revisions of branches by number, or by the beginning of their id; the newest first.
select r.id, r.branch_id, r.number, r.name, r.workflow_id, r.dropped_at
from revision r
where r.branch_id = any(%(branches)s)
  and (r.number = %(number)s::bigint or r.name collate "C" >= %(prefix)s::text and r.name collate "C" < %(prefix)s::text || 'g')
order by r.number desc limit 100;

-- name: nearest_revisions
-- The revisions just before and after a number that is not in the ledger.
(select number from revision where branch_id = %(branch)s and number < %(number)s order by number desc limit 1)
union all
(select number from revision where branch_id = %(branch)s and number > %(number)s order by number limit 1);

-- name: head_revision
-- The head of a branch.
select r.id, r.number, r.name from branch b join revision r on r.id = b.head_id where b.id = %(branch)s;

-- name: runs_of_revision
-- The runs of a revision, the newest first.
select id, run, deleted_at from run where branch_id = %(branch)s and number = %(number)s order by run desc;

-- name: purges_of_revision
-- The purged runs of a revision, the newest first, with the time, the person and the reason of the
-- purge.
select p.run, d.at, d.by, d.note from purged_run p join deed d on d.id = p.deed_id where p.branch_id = %(branch)s and p.number = %(number)s order by p.run desc;

-- name: purge_of_run
-- The purge of the run that had an id, and the former name of the run.
select a.id as archive_id, a.name as archive, b.name as branch, b.main, p.number, p.run, d.at, d.by, d.note
from purged_run p join branch b on b.id = p.branch_id join archive a on a.id = b.archive_id join deed d on d.id = p.deed_id where p.id = %(id)s;

-- name: tasks_named
-- The tasks of a name at a revision, the newest run first.
select t.id, t.run from task t
where t.branch_id = %(branch)s and t.name = %(name)s and t.number = %(number)s and t.item = %(item)s and t.run_id <> all(array(select run_id from purging))
order by t.run desc;

-- name: runs_with_list
-- The newest run of a revision that has the list of a task.
select r.run from run r
where r.branch_id = %(branch)s and r.number = %(number)s and r.id <> all(array(select run_id from purging))
  and exists (select from task t where t.run_id = r.id and t.item_id is not null and t.name = %(name)s and not t.deleted)
order by r.run desc limit 1;

-- name: gates_of_run
-- The gates of a run that arkqueue has made.
select id, name from task where run_id = %(run)s and kind = 'gate' order by id;

-- name: deleted_items
-- The tombstones of a run's items, the newest first, with their tasks.
select d.item, d.deleted_at, d.deleted_by, a.name as archive, b.name as branch, b.main, run.number, run.run,
       array(select t.id from task t where t.run_id = run.id and t.item = d.item and t.deleted order by t.position, t.id) as tasks
from deleted_item d join run on run.id = d.run_id join archive a on a.id = run.archive_id join branch b on b.id = run.branch_id
where d.run_id = %(run)s order by d.deleted_at desc, d.item limit %(most)s;

-- name: has_item
-- Whether a run has a task for an item.
select from task where run_id = %(run)s and item = %(item)s limit 1;

-- name: task_names_at
-- The names of the ordinary tasks at a revision, in all of its runs or in one.
select distinct t.name from task t
where t.branch_id = %(branch)s and t.number = %(number)s and (%(run)s::int is null or t.run = %(run)s) and t.kind = 'ordinary' and t.run_id <> all(array(select run_id from purging))
order by t.name;

-- name: task_names_ever
-- The names of all ordinary tasks that a branch ever had.
select name from task_name where branch_id = %(branch)s order by name;

-- name: workflow_at
-- The parsed workflow files of a revision, whether the revision is the baseline of the ledger, and
-- whether the revision, its branch or its archive is gone.
select r.baseline, w.tasks, w.faults, a.name as archive, b.name as branch, null as run_deleted_at, false as deleted, r.dropped_at, b.deleted_at, a.removed_at
from revision r join workflow w on w.id = r.workflow_id join branch b on b.id = r.branch_id join archive a on a.id = b.archive_id
where r.id = %(revision)s;

-- name: count_lists
-- The number of items of each of some lists, if the list is still stored.
select l.digest, coalesce((select sum(jsonb_array_length(p.items)) from list_part p where p.digest = l.digest), 0) as n
from list l where l.digest = any(%(digests)s::text[]);

-- name: newest_definition
-- The tasks of the newest faultless workflow files of a branch, in their order: names, files and
-- triggers. At most `looked_at` revisions are read.
select t->>'name' as name, coalesce(t->>'path', '') as path, coalesce(t->>'on', '["commit", "manual"]') as triggers
from (select w.tasks from (select number, workflow_id from revision where branch_id = %(branch)s and dropped_at is null order by number desc limit %(looked_at)s) r
      join workflow w on w.id = r.workflow_id where w.faults = '[]' order by r.number desc limit 1) w
cross join lateral jsonb_array_elements(w.tasks) with ordinality e(t, at)
order by at;

-- name: absent_tasks
-- For some commit runs and names of tasks, by workflow files: the runs, which of the tasks the files
-- define, and which of these `paths` or `branches` may leave out. Lists whose digest is `empty` have
-- no tasks anyway. One more row, without runs: of the names `candidates`, those that no run of a
-- branch has had.
select of.runs, d.defined, d.filtered
from (select r.workflow_id, array_agg(run.id) as runs from run join revision r on r.id = run.revision_id
      where run.id = any(%(runs)s::bigint[]) and not r.baseline group by r.workflow_id) of
join workflow w on w.id = of.workflow_id
cross join lateral (
    select coalesce(array_agg(t->>'name'), '{}') as defined,
           coalesce(array_agg(t->>'name') filter (
               where (t ? 'paths' or t ? 'branches') and coalesce(t->'on', '["commit"]') ? 'commit' and t->'foreach'->>'items' is distinct from %(empty)s), '{}') as filtered
    from jsonb_array_elements(w.tasks) t where t->>'name' = any(%(names)s::text[])) d
union all
select null, array(select of.name from unnest(%(candidates)s::text[]) of(name) where not exists (select from task t where t.branch_id = %(branch)s and t.name = of.name)), null;

-- name: faulty_at_head
-- The newest commit run of a branch, if its workflow files have faults.
select id
from (select run.id, run.faults from revision r join run on run.revision_id = r.id and run.trigger = 'commit' and run.deleted_at is null
      where r.branch_id = %(branch)s and r.dropped_at is null order by r.number desc limit 1) newest
where faults <> '[]';

-- name: faulty_at_heads
-- The commit runs at the heads of all present branches whose workflow files have faults, the newest
-- first.
select a.name as archive, run.id
from archive a join branch b on b.archive_id = a.id
join run on run.revision_id = b.head_id and run.trigger = 'commit'
where run.faults <> '[]' and run.deleted_at is null and b.deleted_at is null and a.removed_at is null
  and (%(archives)s::bigint[] is null or a.id = any(%(archives)s))
order by run.id desc;

-- name: for_submissions
-- The tasks for submissions at the head of a branch (by default the main branch), with the globs of
-- their branches, the path of the schema of payloads, and whether there are tasks that run by hand.
select exists (select from jsonb_array_elements(w.tasks) d where d->'on' is null or d->'on' ? 'manual') as may_be_triggered, b.name as branch, w.schema->>'path' as schema, coalesce(t.names, '{}') as names, coalesce(t.globs, '[]') as globs
from branch b join revision r on r.id = b.head_id join workflow w on w.id = r.workflow_id
cross join lateral (
    select array_agg(d->>'name' order by at) as names, jsonb_agg(coalesce(d->'branches', '[]') order by at) as globs
    from jsonb_array_elements(w.tasks) with ordinality e(d, at) where d->'on' ? 'submission') t
where b.archive_id = %(archive)s and b.deleted_at is null and case when %(branch)s::text is null then b.main else b.name = %(branch)s end;

-- part: unmet_chain
-- The unmet edges to a task (`of.target`; only those from `of.source`, unless it is null), the unmet
-- edges to their sources, and so on, at most `limit` edges. If a source waits, all of its edges are followed. If it blocks although it was canceled or skipped,
-- only the edges that block its target are followed. `needs`: 2 if the target waits for any end of
-- the source, 1 if it needs the source's completion.
with recursive chain(target, source, kind, settled, crossing, declared, product, failed, needs) as (
    select e.target, e.source, e.kind, e.settled, e.crossing, e.declared, e.product, e.failed, 1 + (e.settled and not e.failed)::int
    from edge e where e.target = of.target and (of.source is null or e.source = of.source) and not e.met and e.kind <> 'cancels'
    union
    select e.target, e.source, e.kind, e.settled, e.crossing, e.declared, e.product or over.is_over and c.product, e.failed,
           case when e.settled and not e.failed or over.is_over and (not e.crossing or e.product) and t.root_id is null then 2 when over.is_over then c.needs else 1 end
    from chain c
    join task t on t.id = c.source and (t.state = 'waiting' or t.state in ('canceled', 'skipped') and t.blocks > 0)
    cross join lateral (select t.state <> 'waiting') over(is_over)
    join edge e on e.target = c.source and not e.met and e.kind <> 'cancels'
    join task s on s.id = e.source
    where not over.is_over
       or e.kind <> 'exclusive' and not (e.failed and s.state in ('completed', 'failed', 'rejected'))
          and blocks_behind(e.settled and not e.failed, e.crossing and not e.product, t.root_id is not null, s.state, s.waived, s.blocks,
                            s.attempts > 0 or s.unmet = 0 or e.product) >= c.needs
)
select * from chain limit %(limit)s

-- name: unmet_chain
-- The unmet edges to a task, directly and through others.
select chain.* from (select %(task)s::bigint, null::bigint) of(target, source) cross join lateral ({part unmet_chain}) chain;

-- name: behind_skipped
-- For each of some unmet edges from skipped tasks, the first task at the end of the chain behind it.
select of.target, of.source, t.id, a.name as archive, b.name as branch, b.main, t.number, t.run, t.name, t.item, t.kind, t.state, t.run_id
from unnest(%(targets)s::bigint[], %(sources)s::bigint[]) of(target, source)
cross join lateral (
    select min(t.id) as id from ({part unmet_chain}) chain join task t on t.id = chain.source
    where t.state not in ('waiting', 'skipped', 'canceled') and t.kind = 'ordinary') found
join task t on t.id = found.id join archive a on a.id = t.archive_id join branch b on b.id = t.branch_id
where t.run_id <> all(array(select run_id from purging));

-- name: waiting_behind
-- The first tasks that wait for a task, at most `most`: directly, through gates, or through tasks
-- that were canceled or skipped and block others all the same. The edges behind a task of the chain
-- that does not block for this reason lead to tasks that `unmet_chain` does not lead back from.
with recursive behind(id, is_end) as (
    select %(task)s::bigint, false
    union
    select t.id, t.state in ('waiting', 'held') and t.kind <> 'gate'
    from behind b join edge e on e.source = b.id and not e.met and e.kind <> 'cancels' join task t on t.id = e.target
    where not b.is_end and not t.deleted and (t.state in ('waiting', 'held') or t.state in ('canceled', 'skipped') and t.blocks > 0)
), of(target, source) as (
    select id, null::bigint from (select id, is_end from behind limit 2000) found where is_end limit %(most)s
)
select of.target as id from of where exists (select from ({part unmet_chain}) chain where chain.source = %(task)s);

-- name: unsettled_beside
-- The unsettled tasks that a run's REPORT waits for.
select t.id from task t join run on run.id = t.run_id
where t.run_id = %(run)s and t.id is distinct from run.report_id and t.kind <> 'gate'
  and t.settled_at is null
order by t.position, t.id limit %(most)s;

-- name: telling_of_list
-- The tasks of a list that are unsettled, or that failed or were rejected and that nobody has
-- waived.
select t.id from task t
where t.run_id = %(run)s and t.item_id is not null and t.name = %(name)s and not t.deleted
  and (t.settled_at is null or t.state in ('failed', 'rejected') and not t.waived)
order by t.position, t.id limit %(most)s;

-- name: others_of_list
-- The numbers of other items of a task's list that ended without success and do not count as
-- completed, by their states.
select t.state, count(*)::int as n from task t
where t.run_id = %(run)s and t.item_id is not null and t.name = %(name)s and t.state in ('failed', 'rejected', 'canceled', 'skipped') and t.id <> %(task)s
  and not t.deleted and not t.as_completed
group by t.state order by t.state;

-- name: failures_of_list
-- The number of items of a list that ended in a state, failed or rejected, and that nobody has waived.
select count(*)::int as n from task t
where t.run_id = %(run)s and t.item_id is not null and t.name = %(name)s and t.state = %(state)s::task_state and not t.waived and not t.deleted;

-- name: come_back_with
-- Tasks of a run that were skipped because of one of its tasks, the first of each name; at most
-- `most`.
select distinct on (t.name) t.id from task t
where t.root_id = %(task)s and t.run_id = %(run)s and t.state = 'skipped' and t.kind = 'ordinary' and not t.deleted and not t.waived
order by t.name, t.position, t.id limit %(most)s;

-- name: come_back_late
-- The failures, of some, because of which tasks of their runs were skipped whose work a later revision
-- has done since: a retry of the failure would bring these tasks back. The statement reads the first
-- `most` skipped tasks of each failure.
select w.id from unnest(%(tasks)s::bigint[]) w(id)
where exists (
    select from (select s.branch_id, s.name, s.item, s.number, s.run, s.run_id from task s join task f on f.id = w.id and f.run_id = s.run_id
                 where s.root_id = w.id and s.state = 'skipped' and s.kind = 'ordinary' and not s.deleted and not s.waived limit %(most)s) t
    join completion c on (c.branch_id, c.name, c.item) = (t.branch_id, t.name, t.item) and (c.highest_number, c.highest_run) > (t.number, t.run)
    where t.item <> '' or (select trigger from run where run.id = t.run_id) <> 'submission');

-- name: held_of_list
-- The number of items of a list that a hold holds, and that wait for nothing else.
select count(*)::int as n from task t
where t.run_id = %(run)s and t.item_id is not null and t.name = %(name)s and t.state = 'held' and t.hold_id = %(hold)s and t.unmet = 0 and not t.deleted;

-- name: failed_of_run
-- The tasks of a run that need a person: failed and rejected tasks that nobody has waived, and
-- tasks that were skipped because the product of a task of another run will not exist.
select t.id from task t
where t.run_id = %(run)s
  and (t.state in ('failed', 'rejected') and not t.waived
       or t.state = 'skipped' and exists (select from task r where r.id = t.root_id and r.run_id <> t.run_id)
          and exists (select from edge e where e.target = t.id and e.product and not e.met))
order by t.position, t.id limit %(most)s;

-- name: silent_since
-- The last report of a queue manager; no row if it is recent.
select beat_at from heartbeat where beat_at < clock_timestamp() - make_interval(secs => %(silence)s);

-- name: pools
-- The pools of some tasks: the kind of task manager and the labels that each task needs. `store`:
-- the place of its scratch folder, if the folder exists, or of the attachments of its run.
select t.id as task, coalesce(d.pool, a.pool) as pool, array(select one from unnest(string_to_array(nullif(ltrim(d.labels), ''), ',')) one where one not like '@%%') as labels,
       coalesce(substring(d.labels from '@([^,]+)'), s.store) as store, d.labels like ' @%%' as is_attached
from task t join definition d on d.id = t.definition_id join archive a on a.id = t.archive_id
left join scratch s on d.scratch is not null and s.run_id = t.run_id and s.item = case d.scratch when 'item' then t.item else '' end and s.removed_at is null
where t.id = any(%(tasks)s);

-- name: scratch_of_run
-- The scratch folders of a run, or of the run and one item, by place.
select m.hostname, s.store, s.is_removed, s.folders, s.bytes
from (select store, removed_at is not null as is_removed, count(*)::int as folders, sum(bytes)::bigint as bytes
      from scratch where run_id = %(run)s and (%(item)s::text is null or item in ('', %(item)s)) group by store, removed_at is not null) s
left join lateral (select hostname from task_manager m where m.store = s.store order by m.seen_at desc limit 1) m on true
order by s.is_removed, m.hostname, s.store;

-- name: attachments_of_run
-- The attachments of a run, and their place.
select u.id as upload, u.files, u.size, m.hostname, u.store, u.removed_at is not null as is_removed
from upload u left join lateral (select hostname from task_manager m where m.store = u.store order by m.seen_at desc limit 1) m on true
where u.run_id = %(run)s;

-- name: first_with_scratch
-- The first task in the order of the workflow files that has begun and that shares a scratch folder
-- with a task. `is_of_item`: the folder belongs to an item.
select u.id, u.name, d.scratch = 'item' as is_of_item
from task t join definition d on d.id = t.definition_id
join task u on u.run_id = t.run_id and u.attempts > 0 and (d.scratch = 'run' or u.item = t.item) join definition e on e.id = u.definition_id and e.scratch = d.scratch
where t.id = %(task)s order by u.position, u.id limit 1;

-- name: ready_ahead
-- The number of ready tasks that are claimed before a ready task, up to %(most)s: the tasks before
-- it in its archive; all tasks of archives of a lower tier; and, of each other archive of its tier,
-- as many tasks as its own archive gives until then, because they take turns. Only tasks are
-- counted that task managers of some pools and with some sets of labels can claim.
with me as (
    select t.archive_id, t.priority, t.entry_id, t.run, t.position, t.id, a.tier
    from task t join archive a on a.id = t.archive_id where t.id = %(task)s and t.state = 'ready'),
offered as (
    select r.archive_id, r.tier, p.pool from ready_archive r cross join unnest(r.pools) p(pool)
    where split_part(p.pool, ' ', 1) = any(%(pools)s)
      and exists (select from jsonb_array_elements(%(labels)s::jsonb) m(labels) where to_jsonb(string_to_array(split_part(p.pool, ' ', 2), ',')) <@ m.labels)),
mine as (
    select count(*) as n from (
        select from me join offered p on p.archive_id = me.archive_id
        join task t on t.state = 'ready' and t.pool = p.pool and t.archive_id = me.archive_id
            and (t.priority, t.entry_id, t.run, t.position, t.id) < (me.priority, me.entry_id, me.run, me.position, me.id)
        limit %(most)s) t
)
select mine.n + (
    select count(*) from (
        select from (select archive_id, tier, array_agg(pool) as pools from offered group by archive_id, tier) r cross join lateral (
            select from unnest(r.pools) p(pool) join task t on t.state = 'ready' and t.pool = p.pool and t.archive_id = r.archive_id
            limit case when r.tier < (select tier from me) then %(most)s else mine.n + 1 end) t
        where r.archive_id <> (select archive_id from me) and r.tier <= (select tier from me)
        limit %(most)s) others) as n
from mine;

-- name: show_task_managers
-- Task managers that run or stopped less than a day ago, with their slots and attempts. Living ones
-- come first, and then the one that has reported last.
select tm.process, tm.host, tm.hostname, tm.slots, tm.fault, tm.engine_fault, tm.low_disk, tm.account, tm.labels, tm.store, tm.started_at, tm.seen_at, tm.stopped_at,
       d.drained_at, d.drained_by, d.reason as drain_reason,
       tm.stopped_at is null and tm.seen_at > clock_timestamp() - make_interval(secs => %(silence)s) as alive,
       coalesce(a.running, 0) as running
from task_manager tm left join drain d on d.host = tm.host
left join (select process, count(*) as running from attempt where ended_at is null group by process) a on a.process = tm.process
where tm.stopped_at is null or tm.stopped_at > clock_timestamp() - interval '1 day'
order by alive desc, tm.seen_at desc limit 1000;

-- name: queue_depth
-- The largest numbers of ready and of running tasks in each interval of the last day, by the
-- beginning of the interval.
select extract(epoch from date_bin(make_interval(secs => %(step)s), at, 'epoch'))::bigint as at, max(ready) as ready, max(running) as running
from queue_depth where at > clock_timestamp() - interval '1 day' group by 1 order by 1;

-- name: pause_of_all
-- The pause of the whole installation; no row if it is not paused.
select paused_at, paused_by, reason from pause where paused_at is not null;

-- name: running_now
-- The running tasks of each task manager, the longest-running first; `archives`: of these archives
-- only.
select at.process, at.task_id from attempt at join task t on t.id = at.task_id
where at.ended_at is null and (%(archives)s::bigint[] is null or t.archive_id = any(%(archives)s))
order by at.id limit %(limit)s;

-- name: task_before
-- A task and its earlier occurrences on the branch, the nearest first.
select t.id, t.number, t.run, t.state, t.superseded_by
from task t
where t.branch_id = %(branch)s and t.name = %(name)s and t.item = %(item)s and (t.number, t.run) <= (%(number)s, %(run)s) and t.run_id <> all(array(select run_id from purging))
order by t.number desc, t.run desc limit 200;

-- name: measure
-- The numbers of /metrics about unsettled tasks, attempts, archives, notices and task managers. The
-- statement counts nothing that grows with history. A REPORT that waits for its run is not a task
-- of a workflow file, and is left out. Ready tasks are open, too: because no single index has the
-- tasks of both conditions, the server reads each page of the table once (a bitmap). Along the index
-- of open tasks, it would read pages once for each task.
with open as materialized (
    select state, count(*) as n, min(ready_at) filter (where state = 'ready') as ready_at
    from task where (state = 'ready' or settled_at is null) and not (kind = 'report' and state = 'waiting') group by state)
select
    (select coalesce(jsonb_object_agg(state, n), '{}') from open) as tasks,
    live.n as attempts_live, live.lapsed as attempts_lapsed,
    (select last_value from attempt_id) as attempts_begun,
    (select last_value from task_id) as tasks_planned,
    (select count(*) from archive where removed_at is null) as archives,
    (select count(*) from archive where removed_at is null and trouble is not null) as archives_in_trouble,
    (select count(*) from archive where removed_at is null and stopped is not null) as archives_stopped,
    (select count(*) from archive where removed_at is null and is_paused) as archives_paused,
    (select count(*) from lock k where k.paused_at is not null and (k.scope = 0 or exists (select from archive a where a.id = k.scope and a.removed_at is null))) as locks_paused,
    (select count(*) from delivery where state = 'waiting' and tries > 2 and fault <> '') as deliveries_failing,
    -- As many as `list_deliveries` lists.
    (select count(*) from delivery d left join run r on r.id = d.run_id where d.state = 'waiting' and (r.id is null or r.deleted_at is null)) as deliveries_waiting,
    (select count(*) from delivery where state = 'failed' and ended_at > clock_timestamp() - interval '7 days') as deliveries_failed,
    (select paused_at is not null from pause) as all_paused,
    (select array[coalesce(sum(run.left_out), 0)::bigint, extract(epoch from min(run.left_out_since))::bigint]
     from schedule s join run on run.id = s.run_id and run.left_out > 0 and run.deleted_at is null
     join archive a on a.id = run.archive_id and a.removed_at is null
     where not exists (select from task t where t.run_id = run.id and t.attempts > 0 and t.kind <> 'report')) as fires_left_out,
    (select extract(epoch from clock_timestamp() - min(asked_at))::float8 from look) as oldest_notice,
    (select extract(epoch from clock_timestamp() - min(ready_at))::float8 from open) as oldest_ready,
    (select extract(epoch from clock_timestamp() - beat_at)::float8 from heartbeat) as silence_of_queue_managers,
    (select count(*) from task_manager
     where stopped_at is null and seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) as task_managers,
    (select count(*) from task_manager
     where coalesce(fault, engine_fault) is not null and stopped_at is null
       and seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) as task_managers_unfit,
    (select count(*) from task_manager
     where low_disk is not null and stopped_at is null
       and seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) as task_managers_low_on_disk,
    (select count(*) from task_manager
     where host in (select host from drain) and stopped_at is null and seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) as task_managers_drained,
    (select coalesce(sum(slots), 0) from task_manager
     where stopped_at is null and seen_at > clock_timestamp() - make_interval(secs => %(silence)s)) as slots
from (select count(*) as n, count(*) filter (where lease_until < clock_timestamp()) as lapsed from attempt where ended_at is null) live;

-- name: archive_of_task
-- The archive of a task, its run and item, since when the run is deleted, and whether the item is
-- deleted.
select a.id, a.name, t.id as task, run.id as run, t.item, run.deleted_at, t.deleted as is_item_deleted from task t join run on run.id = t.run_id join archive a on a.id = t.archive_id where t.id = %(id)s;

-- name: archive_of_run
-- The archive of a run, whether the archive is on hold or paused, its stop reason, and since when the
-- run is deleted.
select a.id, a.name, a.hold_id is not null as is_on_hold, a.is_paused, a.stopped, null as task, run.id as run, '' as item, run.deleted_at, false as is_item_deleted from run join archive a on a.id = run.archive_id where run.id = %(id)s;

-- name: archive_of_attempt
-- The archive of an attempt, its task, run and item, since when the run is deleted, and whether the
-- item is deleted.
select a.id, a.name, t.id as task, run.id as run, t.item, run.deleted_at, t.deleted as is_item_deleted
from attempt at join task t on t.id = at.task_id join run on run.id = t.run_id join archive a on a.id = t.archive_id where at.id = %(id)s;

-- name: recent_runs
-- The ids of the newest runs of each of some archives, without runs of backfills.
select page.id
from unnest(%(archives)s::bigint[]) of(archive_id)
cross join lateral (
    select run.id from run where run.archive_id = of.archive_id and run.deleted_at is null and run.backfill_id is null order by run.id desc limit %(most)s
) page;

-- name: stranded_tasks
-- Ready tasks that no task manager which has reported lately can run, because it lacks their labels or
-- is not on the host of their folder: for each archive and pool, the first task, and the number of all.
-- `store`, `hostname`: that host. The tasks became ready at least `silence` ago.
with living as materialized (
    select labels || coalesce('@' || store, '') as labels from task_manager
    where stopped_at is null and seen_at > clock_timestamp() - make_interval(secs => %(silence)s)),
lacking as materialized (
    select r.archive_id, p.pool, split_part(p.pool, ' ', 2) as labels
    from ready_archive r cross join unnest(r.pools) p(pool)
    where p.pool like '%% %%' and (%(archives)s::bigint[] is null or r.archive_id = any(%(archives)s)) and exists (select from living)
      and not exists (select from living where string_to_array(split_part(p.pool, ' ', 2), ',') <@ living.labels))
select a.name as archive, t.id, t.n, p.labels, substring(p.labels from '@([^,]+)') as store, h.hostname
from lacking p join archive a on a.id = p.archive_id and a.removed_at is null and a.stopped is null and not a.is_paused
cross join lateral (
    select min(t.id) as id, count(*)::int as n from task t
    where t.state = 'ready' and t.pool = p.pool and t.archive_id = p.archive_id and t.ready_at < clock_timestamp() - make_interval(secs => %(silence)s)) t
left join lateral (select hostname from task_manager m where m.store = substring(p.labels from '@([^,]+)') order by m.seen_at desc limit 1) h on true
where t.n > 0
order by t.id desc limit %(most)s;

-- name: hanging_tasks
-- Running tasks that a person may have to look at, the longest-running first: the task manager is
-- silent, or the task takes much longer than usual, by a factor and by a number of seconds. At most
-- `looked_at` of the tasks that run that long are read, the oldest first. Tasks that have run for a
-- shorter time, which may be ten thousand, are not read.
select r.id, r.archive, r.seen_at, r.is_silent, u.seconds
from (
    select t.id, t.archive, t.branch_id, t.name, t.item, late.started_at, late.seen_at, late.kind, late.is_silent
    from (
        select at.id, at.task_id, at.started_at, m.seen_at, at.kind,
               at.lease_until < clock_timestamp() or coalesce(m.seen_at < clock_timestamp() - make_interval(secs => %(silence)s), false) as is_silent
        from attempt at left join task_manager m on m.process = at.process
        where at.ended_at is null
          and (at.started_at < clock_timestamp() - make_interval(secs => %(longer)s)
               or at.lease_until < clock_timestamp() or m.seen_at < clock_timestamp() - make_interval(secs => %(silence)s))
        order by at.id offset 0) late
    cross join lateral (
        select t.id, a.name as archive, t.branch_id, t.name, t.item from task t join run on run.id = t.run_id join archive a on a.id = t.archive_id
        where t.id = late.task_id and run.deleted_at is null and a.removed_at is null and (%(archives)s::bigint[] is null or t.archive_id = any(%(archives)s))
        offset 0) t
    limit %(looked_at)s) r
left join lateral (
    select percentile_cont(0.5) within group (order by extract(epoch from p.ended_at - p.started_at)::float8) as seconds
    from (select t.attempt_id from task t
          where t.branch_id = r.branch_id and t.name = r.name and t.item = '' and t.state = 'completed' order by t.number desc, t.run desc limit 30) t
    join attempt p on p.id = t.attempt_id where p.ended_at > p.started_at) u on r.item = '' and r.kind = 'run' and not r.is_silent
where r.is_silent or extract(epoch from clock_timestamp() - r.started_at) > greatest(u.seconds * %(times)s, u.seconds + %(longer)s)
order by r.id;

-- name: waits_of_archives
-- For each of some archives, the reasons why its tasks wait. Each cause has one task as an example,
-- `target`, and `source`, the task that it waits for, if any. The causes are: `task`, an edge from
-- a task that does not wait itself, where sources that need a person come first; `gate`, an edge
-- from the gate of a list; `through`, an edge from `COMMIT` or a gate that waits for such a task,
-- directly or through others; `locks`, the task asks for its locks; `ready`, `deferred` and `held`,
-- the state of `target`, which is `REPORT` if no other task is held. If there are many names, or many tasks of one name, only some are read.
select of.archive_id, w.cause, w.target, w.source
from unnest(%(archives)s::bigint[]) of(archive_id)
cross join lateral (
    with recursive names(branch_id, name) as (
        select b.id, (select min(t.name) from task t where t.branch_id = b.id and t.settled_at is null)
        from branch b where b.archive_id = of.archive_id and b.deleted_at is null
        union all
        select n.branch_id, (select min(t.name) from task t where t.branch_id = n.branch_id and t.settled_at is null and t.name > n.name)
        from names n where n.name is not null),
    open as materialized (
        select t.* from (select * from names where name is not null limit %(names)s) n
        cross join lateral (
            select t.id, t.state, t.asks, t.unmet from task t
            where t.branch_id = n.branch_id and t.name = n.name and t.settled_at is null and t.state <> 'running' and t.kind = 'ordinary'
            order by t.item, t.number limit %(of_name)s) t),
    pairs as materialized (
        select t.id as target, s.id as source, s.kind, s.state, s.name from open t join edge e on e.target = t.id and not e.met and e.kind <> 'cancels'
        join task s on s.id = e.source where t.state = 'waiting'),
    first_waiting as (select id from open where state = 'waiting' order by id limit 1)
    select * from (
        select 'task' as cause, target, source from pairs where state <> 'waiting' and kind = 'ordinary'
        order by case when state in ('failed', 'rejected', 'skipped') then 0 when state in ('held', 'deferred') then 1 else 2 end, target, source limit 1) w
    union all
    select * from (
        select 'gate', target, source from pairs where state = 'waiting' and kind = 'gate' and name not like 'PREV:*%%' order by target limit 1) w
    union all
    select 'through', f.id, s.source from first_waiting f cross join lateral (
        with recursive walk(id, depth) as (
            select f.id, 0
            union
            select s.id, w.depth + 1 from walk w
            cross join lateral (select e.source from edge e where e.target = w.id and not e.met and e.kind <> 'cancels' limit %(looked_at)s) e
            join task s on s.id = e.source and s.state = 'waiting' and s.kind in ('commit', 'gate') where w.depth < 3)
        select s.id as source from (select * from walk where depth > 0 limit %(looked_at)s) w join edge e on e.target = w.id and not e.met and e.kind <> 'cancels'
        join task s on s.id = e.source and s.state <> 'waiting' and s.kind = 'ordinary' limit 1) s
    union all
    select * from (select 'locks', id, null::bigint from open where state = 'waiting' and asks order by id limit 1) w
    union all
    select * from (
        select 'held', id, null::bigint from (
            select id, false as is_report from open where state = 'held' and unmet = 0
            union all
            (select t.id, true from task t join run on run.id = t.run_id join branch b on b.id = t.branch_id
             where t.archive_id = of.archive_id and t.state = 'held' and t.kind = 'report' and t.unmet = 0 and run.deleted_at is null and b.deleted_at is null
             order by t.run_id limit 1)) held
        order by is_report, id limit 1) w
    union all
    select * from (select distinct on (state) state::text, id, null::bigint from open where state in ('ready', 'deferred') order by state, id) w) w;

-- name: gates_of_lists
-- The gates of some lists: the number of items that each still waits for, and the number of all
-- items, up to %(most)s.
select g.id, g.name, g.unmet, (select count(*)::int from (select from edge e where e.target = g.id limit %(most)s) e) as items
from task g where g.id = any(%(gates)s);

-- part: not_repaired
-- A failure `t` that no later revision has repaired. `c`: the newest completion of its name and item.
-- Another run may repair the failure of an item, but never any other failure of a submission. Most
-- runs are commit runs, which are run 1 and are not looked up.
(c.highest_number is null or (c.highest_number, c.highest_run) <= (t.number, t.run)
 or t.run > 1 and t.item = '' and (select trigger from run where run.id = t.run_id) = 'submission')

-- part: not_noted
-- A failure `t` on which nobody has written a note since it failed.
not exists (select from deed d where d.task_id = t.id and {part note_on_failure})

-- part: unhandled
-- The unhandled failures of some archives (null: all): failed and rejected tasks that nobody has
-- waived or noted since, and that no later revision has repaired; on present branches of watched
-- archives, without backfills. Most failures of a long history have been repaired: an index shows
-- this without reading their tasks, so `bad` has only columns of that index.
(with bad as materialized (
    select t.archive_id, t.branch_id, t.run_id, t.name, t.id
    from (select archive_id, branch_id, run_id, name, item, id, number, run from task
          where state in ('failed', 'rejected') and not waived and (%(archives)s::bigint[] is null or archive_id = any(%(archives)s))) t
    left join completion c on (c.branch_id, c.name, c.item) = (t.branch_id, t.name, t.item)
    where {part not_repaired})
select bad.*, t.state
from bad
join task t on t.id = bad.id
join run on run.id = bad.run_id
join branch b on b.id = bad.branch_id
join archive a on a.id = bad.archive_id
where run.deleted_at is null and b.deleted_at is null and a.removed_at is null and run.backfill_id is null and {part not_noted}
) unhandled

-- part: unhandled_here
-- The unhandled failures that the page of a run shows. Failures of backfills count, too: no later
-- revision repairs them, because a backfill is about old revisions.
from task t
join run on run.id = t.run_id
join branch b on b.id = t.branch_id
join archive a on a.id = t.archive_id
left join completion c on (c.branch_id, c.name, c.item) = (t.branch_id, t.name, t.item)
where t.state in ('failed', 'rejected') and not t.waived
  and run.deleted_at is null and b.deleted_at is null and a.removed_at is null
  and (run.backfill_id is not null or {part not_repaired}) and {part not_noted}

-- name: unhandled_among
-- The unhandled failures among some tasks.
select t.id {part unhandled_here} and t.id = any(%(tasks)s);

-- name: repaired_among
-- The failures, of some tasks, that a later revision has repaired.
select t.id
from task t
join run on run.id = t.run_id
left join completion c on (c.branch_id, c.name, c.item) = (t.branch_id, t.name, t.item)
where t.id = any(%(tasks)s::bigint[]) and t.state in ('failed', 'rejected') and not t.waived and run.backfill_id is null and not {part not_repaired};

-- name: still_blocking
-- The failures that a later revision has repaired, and behind which tasks wait all the same: of each
-- archive, the oldest ones on which nobody has written a note, and the number of all. The oldest one
-- comes first, because tasks behind a later one may also wait for an earlier one. The statement looks
-- for them among `tasks`, among the failures for which tasks of the same branches wait, and among the
-- failures because of which canceled and skipped tasks still block others (as in `judge_blocking`):
-- directly, or through earlier tasks that were canceled or skipped. It reads at most `looked_at`
-- waiting, and as many skipped, tasks, and the newest `walked` canceled ones. It ends after
-- `looked_at + walked` tasks and failures in all.
select a.name as archive, (array_agg(t.id order by t.number, t.run, t.id))[:%(each)s] as ids, count(*)::int as count
from task t
join run on run.id = t.run_id join branch b on b.id = t.branch_id join archive a on a.id = t.archive_id
left join completion c on (c.branch_id, c.name, c.item) = (t.branch_id, t.name, t.item)
where t.id = any(array(
        select unnest(%(tasks)s::bigint[])
        union
        select s.id from (select distinct branch_id from task where id = any(%(tasks)s::bigint[])) of
        cross join lateral (select id from task where branch_id = of.branch_id and settled_at is null and state = 'waiting' limit %(looked_at)s) w
        join edge e on e.target = w.id and not e.met and e.kind <> 'cancels' join task s on s.id = e.source and s.state in ('failed', 'rejected')
        union
        select id from (
            with recursive blocking(id, has_root, is_failure) as (
                select s.id, s.has_root, false from (
                    (select id, true as has_root from task where blocks > 0 and root_id is not null limit %(looked_at)s)
                    union all
                    (select id, false from task where blocks > 0 and root_id is null order by run_id desc limit %(walked)s)) s
                where exists (select from edge e join task w on w.id = e.target where e.source = s.id and not e.met and w.settled_at is null offset 0)
                union
                select s.id, s.has_root, s.state in ('failed', 'rejected') from blocking b
                cross join lateral (select source, settled and not failed as settled, crossing and not product as crossing, failed
                                    from edge where target = b.id and not met and kind in ('depends', 'stopping') offset 0) e
                cross join lateral (select id, root_id is not null as has_root, state, waived, blocks from task
                                    where id = e.source and (blocks > 0 or state in ('failed', 'rejected') and not e.failed) offset 0) s
                where not b.is_failure and blocks_behind(e.settled, e.crossing, b.has_root, s.state, s.waived, s.blocks, false) > 0)
            select id, is_failure from blocking limit %(looked_at)s + %(walked)s) s
        where is_failure))
  and (%(archives)s::bigint[] is null or t.archive_id = any(%(archives)s))
  and t.state in ('failed', 'rejected') and not t.waived and run.backfill_id is null and run.deleted_at is null and b.deleted_at is null and a.removed_at is null
  and not {part not_repaired} and {part not_noted}
group by a.id order by a.id;

-- part: waited_for
-- An unsettled task waits for the failure `w`: directly, or behind tasks that were canceled or skipped. A
-- waiver of any other failure starts nothing.
exists (
    with recursive behind(id) as (
        select w.id
        union
        select e.target from behind b cross join lateral (select target from edge where source = b.id and not met and kind <> 'cancels' offset 0) e)
    select from behind b join task t on t.id = b.id where b.id <> w.id and t.settled_at is null)

-- name: waited_for
-- The failures, of some, for which an unsettled task waits.
select w.id from unnest(%(tasks)s::bigint[]) w(id) where {part waited_for};

-- name: blocking_in_runs
-- The failures of some runs of an archive that a later revision has repaired, and for which a task waits
-- all the same. `is_noted`: true if somebody has written a note on the failure. The statement looks at
-- %(most)s failures whose run and name are not among `of` and `names`: at the first of each run and
-- name, the newest run first, then at the second of each, and so on. So the items of one list hide no
-- failure of an older run.
select w.id, w.run_id, w.name, w.is_noted
from (select t.id, t.run_id, t.name, not {part not_noted} as is_noted
      from (select t.*, row_number() over (partition by t.run_id, t.name order by t.id) as place from (
                select id, run_id, branch_id, number, run, name, item from task where archive_id = %(archive)s and run_id = any(%(runs)s::bigint[]) and state = 'failed' and not waived
                union all
                select id, run_id, branch_id, number, run, name, item from task where archive_id = %(archive)s and run_id = any(%(runs)s::bigint[]) and state = 'rejected' and not waived) t
            where (t.run_id, t.name) not in (select * from unnest(%(of)s::bigint[], %(names)s::text[]))
            order by place, t.run_id desc, t.id limit %(most)s) t
      join run on run.id = t.run_id
      left join completion c on (c.branch_id, c.name, c.item) = (t.branch_id, t.name, t.item)
      where run.backfill_id is null and not {part not_repaired}) w
where {part waited_for}
order by w.run_id desc, w.id;

-- name: unhandled_in_runs
-- The names of the tasks with unhandled failures of some runs, and the first failure of each: one that
-- can be retried before one that was rejected.
select t.run_id, t.name, (min(array[(t.state <> 'failed')::int, t.id]))[2] as id {part unhandled_here} and t.run_id = any(%(runs)s) group by t.run_id, t.name;

-- name: first_unhandled_of_run
-- The first unhandled failures of a run, and the number of all (`total`), without that of its REPORT.
-- The first one of each name comes before the second one of any name.
select u.id, (count(*) over ())::int as total
from (select t.id, t.position, row_number() over (partition by t.name, t.state order by t.id) as place {part unhandled_here} and t.run_id = %(run)s and t.kind = 'ordinary') u
order by u.place, u.position, u.id limit %(most)s;

-- name: unhandled_of_branch
-- The unhandled failures of a branch by run and name, the newest first: the newest %(most)s ones, and
-- those of some runs of a page. Each has the first task of its name, one that can be retried before
-- one that was rejected, and the number of its items. If the branch has any, there is at least one row.
--
-- `total`: the number of all unhandled failures of the branch. `is_earlier`: true if a run before
-- `first`, the first run of the page, has any. `later`: of the runs after its `last` one that have
-- any, the nearest ones, at most %(width)s and one more.
with u as materialized (
    select run_id, name, (min(array[(state <> 'failed')::int, id]))[2] as id, count(*)::int as items from {part unhandled} where branch_id = %(branch)s group by run_id, name)
select run_id, name, id, items, (select sum(items)::int from u) as total,
       exists (select from u where run_id < %(first)s::bigint) as is_earlier,
       array(select distinct run_id from u where run_id > %(last)s::bigint order by run_id limit %(width)s + 1) as later
from (select *, row_number() over (order by run_id desc, id) as place from u) placed
where place <= greatest(%(most)s, 1) or run_id = any(%(runs)s)
order by place;

-- name: unhandled_of_other_branches
-- The number of unhandled failures of each other branch of an archive, the most first.
select b.name as branch, b.main, u.count from (
    select branch_id, count(*)::int as count from {part unhandled} where branch_id <> %(branch)s group by branch_id) u
join branch b on b.id = u.branch_id order by u.count desc, b.name limit %(limit)s;

-- name: unhandled_of_archives
-- The unhandled failures of each archive: the newest ones, the number of all, and the newest runs
-- that have any, at most `runs`. Items of a list that ended in the same state are one failure: the
-- first item, and the number of these items. The archive with the newest failure is the first.
select a.name as archive, of.ids, of.items, of.count, of.runs
from (select archive_id, max(run_id) as newest, sum(n)::int as count, (array_agg(distinct run_id order by run_id desc))[:%(runs)s] as runs,
             (array_agg(id order by run_id desc, id))[:%(each)s] as ids, (array_agg(n order by run_id desc, id))[:%(each)s] as items
      from (select archive_id, run_id, min(id) as id, count(*)::int as n from {part unhandled} group by archive_id, run_id, name, state) u
      group by archive_id) of
join archive a on a.id = of.archive_id order by of.newest desc;

-- name: page_of_unhandled_runs
-- Like `page_of_matching_runs`, for runs with unhandled failures (of tasks of a name), and for the
-- run `faulty`.
select run.id
from run
where run.id in (
      select run_id from {part unhandled} where branch_id = %(branch)s and (%(task)s::text is null or name = %(task)s)
      union select %(faulty)s::bigint)
  and run.id < coalesce(%(before)s::bigint, 9223372036854775807)
  and {part run_has_words}
order by run.id desc limit %(limit)s;

-- name: notes_of_failures
-- For each of some tasks, the newest note on its failure.
select distinct on (d.task_id) d.task_id, d.by, d.at, d.note
from deed d
where d.task_id = any(%(tasks)s) and {part note_on_failure}
order by d.task_id, d.id desc;

-- name: last_said
-- The end of the output of each of some attempts: of its error output, or else of its standard
-- output. Each of the last `parts` chunks gives its last `bytes`.
select a.id as attempt, said.data
from unnest(%(attempts)s::bigint[]) a(id)
cross join lateral (
    select string_agg(substring(c.data from greatest(length(c.data) - %(bytes)s + 1, 1)), '' order by c.position) as data
    from (select c.data, c.position
          from (select c.*, bool_or(c.stream = 'stderr') over () as has_errors
                from (select * from log_chunk where attempt_id = a.id and stream <> 'note' order by position desc limit 20) c) c
          where (c.stream = 'stderr') = c.has_errors
          order by c.position desc limit %(parts)s) c) said
where said.data is not null;

-- name: branch_withheld
-- Whether no task of a branch starts, because its archive is paused or stopped.
select a.withheld from branch b join archive a on a.id = b.archive_id where b.id = %(branch)s;

-- name: behind_paused_locks
-- The tasks, among some, that name a paused lock: the tasks in the line of the lock, and tasks that
-- do not ask for their locks yet, if their definitions have the whole name of the lock.
select t.id from task t
where t.id = any(%(tasks)s) and exists (
    select from lock k
    where k.paused_at is not null and k.scope in (t.archive_id, 0)
      and (exists (select from lock_use u where u.task_id = t.id and u.scope = k.scope and u.name = k.name)
           or exists (select from definition d where d.id = t.definition_id and d.locks and d.body->'lock' ? k.name)));

-- name: without_slot
-- The ready tasks, among some, that no task manager can start at once: no fitting one has a free slot,
-- or the limit of their archive is reached. The running attempts, at most as many as there are slots,
-- are counted only if one of the tasks is ready.
with free as materialized (
    select m.labels || case when m.store is null then '{}' else array['@' || m.store] end as labels, m.engine_fault
    from task_manager m
    left join (select process, count(*) as running from attempt where ended_at is null group by process) o on o.process = m.process
    where m.stopped_at is null and m.seen_at > clock_timestamp() - make_interval(secs => %(silence)s)
      and m.fault is null and m.low_disk is null and not exists (select from drain d where d.host = m.host)
      and m.slots > coalesce(o.running, 0)
)
select t.id
from unnest(%(tasks)s::bigint[]) asked(id)
cross join lateral (select id, archive_id, state, program, pool from task where id = asked.id offset 0) t
cross join lateral (select id, max_running from archive where id = t.archive_id) a
where t.state = 'ready' and t.program
  and (a.max_running is not null and not exists (select from slot s where s.archive_id = a.id and s.attempt_id is null and not s.closed)
       or not exists (select from free m where coalesce(string_to_array(nullif(split_part(t.pool, ' ', 2), ''), ','), '{}') <@ m.labels
                                           and (split_part(t.pool, ' ', 1) <> 'container' or m.engine_fault is null)));

-- name: awaited_locks
-- The locks that some waiting tasks ask for, or will ask for: their definitions name them.
-- `is_known`: false if the name has an expression, which is evaluated later.
select t.id, t.archive_id, l.name like 'global/%%' as is_global, l.name, l.name not like '%%${{%%' as is_known
from task t cross join lateral (
    select u.name from lock_use u where t.in_line and u.task_id = t.id
    union
    select n.name from definition d cross join jsonb_array_elements_text(d.body->'lock') n(name)
    where not t.in_line and d.id = t.definition_id and d.locks) l
where t.id = any(%(tasks)s) and t.state = 'waiting';

-- name: lines_of_locks
-- The tasks that have some locks, and the first tasks in the line of one archive at each of them; of
-- both at most `most`. Left out are locks with unlimited capacity. `is_shared`: tasks of other
-- archives wait for the lock, too.
select l.archive_id, l.name, coalesce(k.capacity, 1) as capacity,
       array(select u.task_id from lock_use u join task t on t.id = u.task_id
             where u.scope = l.scope and u.name = l.name and u.granted and t.state in ('ready', 'running') limit %(most)s) as holders,
       array(select u.task_id from lock_use u where u.scope = l.scope and u.name = l.name and u.archive_id = l.archive_id and not u.granted
             order by u.priority, u.entry_id, u.run, u.position, u.task_id limit %(most)s) as line,
       l.scope = 0 and (exists (select from lock_use u where u.scope = 0 and u.name = l.name and u.archive_id < l.archive_id and not u.granted)
                        or exists (select from lock_use u where u.scope = 0 and u.name = l.name and u.archive_id > l.archive_id and not u.granted)) as is_shared
from (select a as archive_id, n as name, case when g then 0 else a end as scope
      from unnest(%(archives)s::bigint[], %(names)s::text[], %(are_global)s::boolean[]) l(a, n, g)) l
left join lock k on k.scope = l.scope and k.name = l.name
where k.name is null or k.capacity is not null;

-- name: tasks_at_locks
-- Some tasks that have locks or stand in line for them, in the order of claims. `locks`: the number
-- of locks that each asks for or has.
select t.id, t.branch_id, t.name, t.item, t.state, not t.program as gate, a.started_at,
       (select count(*) from lock_use u where u.task_id = t.id)::int as locks
from task t left join attempt a on a.id = t.attempt_id
where t.id = any(%(tasks)s) order by t.priority, t.entry_id, t.run, t.position, t.id;

-- name: usual_durations
-- The usual durations of tasks of a branch, in seconds: the median of the completed ones among the
-- last 30. The tasks of names that never completed are not read.
select n.name, percentile_cont(0.5) within group (order by extract(epoch from took.long)::float8) as seconds
from unnest(%(names)s::text[]) n(name) join completion c on c.branch_id = %(branch)s and c.name = n.name and c.item = ''
cross join lateral (
    select at.ended_at - at.started_at as long
    from (select t.attempt_id, t.state from task t where t.branch_id = %(branch)s and t.name = n.name and t.item = ''
          order by t.number desc, t.run desc limit 30) t
    join attempt at on at.id = t.attempt_id
    where t.state = 'completed' and at.ended_at > at.started_at) took
group by n.name;

-- name: held_tasks
-- The tasks of each watched archive that wait only for a person's release: the newest ones, and the
-- number of all. Of a run that `workflow_authors` holds (-2: `BY_WORKFLOW_AUTHORS`), which is released
-- as a whole, the first task stands for the others (`is_run`). Of the items of a list that one hold
-- holds, the first one stands for all (`items`). Left out are tasks of an archive on hold, which
-- refuses a release, and those of `held_together`.
select of.archive, (array_agg(of.id order by of.run_id desc, of.position, of.id))[:%(each)s] as ids,
       (array_agg(of.is_run order by of.run_id desc, of.position, of.id))[:%(each)s] as are_runs,
       (array_agg(of.items order by of.run_id desc, of.position, of.id))[:%(each)s] as items, sum(of.items)::int as count
from (select a.name as archive, t.run_id, t.hold_id = -2 as is_run, min(t.position) as position, min(t.id) as id,
             case when t.hold_id = -2 then 1 else count(*)::int end as items
      from task t join run on run.id = t.run_id join archive a on a.id = t.archive_id
      where t.state = 'held' and t.unmet = 0 and run.deleted_at is null and a.removed_at is null and a.hold_id is null
        and not exists (select from deed h where h.id = t.hold_id and {part of_many})
        and (%(archives)s::bigint[] is null or t.archive_id = any(%(archives)s))
      group by a.name, t.run_id, t.hold_id = -2, case when t.hold_id <> -2 and t.item = '' then t.id end,
               case when t.hold_id <> -2 and t.item <> '' then t.name end, case when t.hold_id <> -2 then t.hold_id end) of
group by of.archive order by max(of.run_id) desc;

-- name: held_together
-- The holds of whole archives, backfills and imports (by whom, and why) that still hold tasks which
-- wait only for a release, with the number of tasks that each holds; the newest runs first.
-- `may_be_guarded`, in an archive that guards tasks: one of the tasks for each name and each author
-- of a revision. `firsts`: the first task of each branch and name.
select of.archive, of.by, of.note, sum(of.tasks)::bigint as tasks, max(of.backfill) as backfill, max(of.ending) as ending,
       coalesce(array_agg(of.one) filter (where of.has_guards), '{}') as may_be_guarded,
       (array_agg(of.one order by of.one))[:%(firsts)s] as firsts
from (select a.id, a.name as archive, h.id as hold, h.by, h.note, g.has_guards, count(*) as tasks, min(t.id) as one,
             bool_or(t.unmet = 0) as is_next, max(t.run_id) as newest, max({part held_backfill}) as backfill,
             max({part held_ending}) as ending
      from task t join run on run.id = t.run_id join archive a on a.id = t.archive_id join deed h on h.id = t.hold_id
      cross join lateral (select coalesce(a.settings->'require_approval', '[]') <> '[]' as has_guards) g
      left join revision r on r.id = run.revision_id and g.has_guards
      where t.state = 'held' and run.deleted_at is null and a.removed_at is null and a.hold_id is null and {part of_many}
        and (%(archives)s::bigint[] is null or t.archive_id = any(%(archives)s))
      group by a.id, h.id, g.has_guards, t.branch_id, t.name, r.author) of
group by of.id, of.archive, of.hold, of.by, of.note having bool_or(of.is_next) order by max(of.newest) desc limit %(most)s;

-- name: endings_under_way
-- The commands (`cancel` or `delete`) that hold some tasks, because they have not reached them yet.
select t.id, {part held_ending} as verb from task t join deed h on h.id = t.hold_id
where t.id = any(%(tasks)s::bigint[]) and t.state = 'held' and {part held_ending} is not null;

-- name: completed_places
-- The highest revision at which each task of a branch has completed.
select name, max(highest_number) as number from completion where branch_id = %(branch)s and item = '' and highest_number is not null group by name;

-- name: highest_tasks
-- For each of some names, the ordinary task at the highest revision of a branch that stands for it:
-- `id`. For a list, one of the items in the highest run, as in `count_cells`. Backfills and deleted
-- runs do not count. A list is found by its gate, in one of the `most` highest runs with that list;
-- the others matter only if all items were deleted.
with recursive gates as (
    select of.name, gate.* from unnest(%(names)s::text[]) of(name) cross join lateral (
        select t.run_id, t.number, t.run from task t
        where t.branch_id = %(branch)s and t.name = of.name || ':completed' and t.item = ''
          and exists (select from run where run.id = t.run_id and run.deleted_at is null and run.backfill_id is null)
        order by t.number desc, t.run desc limit %(most)s) gate
), walk(run_id, position, name) as (
    select distinct run_id, -1, null::text from gates
    union all
    select walk.run_id, next.position, next.name from walk cross join lateral (
        select t.position, t.name from task t
        where t.run_id = walk.run_id and t.item_id is not null and t.position > walk.position order by t.position, t.id limit 1) next
), lists as (
    select distinct on (gates.name) gates.*, walk.position from gates join walk using (run_id, name)
    where exists (select from task t where t.run_id = gates.run_id and t.position = walk.position and t.item_id is not null and not t.deleted)
    order by gates.name, gates.number desc, gates.run desc
)
select distinct on (found.name) found.name, found.id
from (select of.name, plain.* from unnest(%(names)s::text[]) of(name) cross join lateral (
          select t.number, t.run, t.id from task t
          where t.branch_id = %(branch)s and t.name = of.name and t.item = '' and t.kind = 'ordinary'
            and exists (select from run where run.id = t.run_id and run.deleted_at is null and run.backfill_id is null)
          order by t.number desc, t.run desc limit 1) plain
      union all
      select lists.name, lists.number, lists.run, first.id from lists cross join lateral (
          select t.id from task t
          where t.run_id = lists.run_id and t.position = lists.position and t.item_id is not null and not t.deleted
          order by {part urgency}, t.id limit 1) first) found
order by found.name, found.number desc, found.run desc;
