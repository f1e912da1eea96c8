-- arkqueue's tables, in the order in which a commit passes through them.
--
--   archive ─< branch ─< revision ─< run ─< task ─< attempt ─< log_chunk
--                                      task >─edge─< task
--
-- A notice puts an archive into `look`. A scan of the repository appends to the ledger (`revision`)
-- and stores the graph of the commit run (`run`, `task`, `edge`) in the same transaction, so that
-- no revision is ever known and not planned. Only the row of a task changes its state; an attempt
-- only ever gets an end.
--
-- Lock order of every change of the graph: archive, branch, task, attempt; each ascending by id;
-- lock in one statement, act in the next. All edges lie inside one branch, so the archive's row
-- (FOR NO KEY UPDATE) makes changes of its graph take turns. Two changes need no archive's row: a
-- claim (ready → running, SKIP LOCKED) and a renewal (attempt rows only).

create type task_state as enum
    ('waiting', 'held', 'ready', 'running', 'deferred', 'completed', 'failed', 'rejected', 'canceled', 'skipped');
create type task_kind as enum ('commit', 'report', 'gate', 'ordinary');
create type attempt_kind as enum ('run', 'poll');
create type edge_kind as enum ('depends', 'cancels', 'exclusive', 'stopping');

create table archive (
    id          bigint generated always as identity primary key,
    -- `papers~1`: a removed archive whose name another archive has now.
    name        text not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]*(~[0-9]+)?$'),
    kind        text not null check (kind in ('subversion', 'git')),
    url         text not null,                      -- the URL as a person gave it
    repository  text not null,                      -- the normalized root of the repository, which notices name
    uuid        text not null default '',           -- the UUID of a Subversion repository
    folder      text not null default '',           -- Subversion: the watched folder inside the repository
    settings    jsonb not null default '{}',        -- the fields of `archive_settings.ArchiveSettings`
    created_at  timestamptz not null default now(),
    removed_at  timestamptz,
    -- Why arkqueue neither reads the repository nor starts its tasks; a person resumes the archive;
    -- null: not stopped.
    stopped     text,
    -- The audit log entry (`deed`) of the archive's hold, during which new runs are held; null: no
    -- hold.
    hold_id     bigint,
    trouble     text,                               -- why the last scan failed
    trouble_since timestamptz,
    read_at     timestamptz,                        -- when the last complete scan ended
    next_read_at timestamptz not null default now(),
    -- The pool of tasks without an image.
    pool        text not null generated always as (
        case when settings->>'image' is not null or (settings->>'process')::boolean is not true then 'container' else 'process' end) stored,
    -- When a person paused this archive; null: it has no pause of its own.
    paused_at   timestamptz,
    paused_by   text,
    pause_reason text,
    paused_with_all boolean not null default false, -- the installation is paused; the table `pause` says by whom
    is_paused   boolean not null generated always as (paused_at is not null or paused_with_all) stored,
    -- The archive is stopped or paused: claims take none of its tasks, and it takes no turns.
    withheld    boolean not null generated always as (stopped is not null or paused_at is not null or paused_with_all) stored,
    -- Archives of a lower tier go first.
    tier        int not null generated always as (coalesce((settings->>'tier')::int, 5)) stored,
    -- The largest number of attempts at once; null: no limit.
    max_running int generated always as ((settings->>'max_running')::int) stored,
    uses_locks  boolean not null default false,     -- a task of the archive has asked for a lock
    uses_lists  boolean not null default false,     -- a task of the archive has had a list (`foreach`)
    -- The archive has receivers of notifications.
    notifies    boolean not null generated always as (coalesce(settings->'notify' <> '{}', false)) stored,
    -- The number of corrected revisions (`archive accept`): files that were exported earlier may
    -- show the old author.
    corrections int not null default 0,
    purges      boolean not null default false      -- a run of the archive is in `purging`
);
create unique index archive_name on archive (name) where removed_at is null;

-- One row: whether the whole installation is paused. Each archive repeats this in
-- `paused_with_all`, so that one row has all facts about an archive.
create table pause (
    id          int primary key default 1 check (id = 1),
    paused_at   timestamptz,
    paused_by   text,
    reason      text
);
insert into pause default values;

-- The notices that wait for a scan, one row for each archive. `asked` is the number of the newest
-- notice. Each notice gets a new number, so that the scan sees whether another notice came
-- meanwhile.
create sequence notice;
create table look (
    archive_id  bigint primary key references archive,
    asked       bigint not null default nextval('notice'),
    -- The value of `asked` at the last scan that did not find the revision.
    looked      bigint not null default 0,
    asked_at    timestamptz not null default now(),
    revision    text                                -- the revision that the notice named; null: none
);

create table branch (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    name        text not null,
    main        boolean not null default false,
    head_id     bigint,                             -- the last revision of the ledger; compared and set by `append`
    deleted_at  timestamptz,
    -- An import is in progress (design 5.22): runs up to the revision `import_until` are held by
    -- the audit log entry `import_id` (`deed`). Without an entry the runs are not held, however
    -- many they are: the archive was added with `--from`.
    import_id   bigint,
    import_until text,
    -- The last accepted `workflow.files`, if `workflow_authors` guards them.
    accepted_files bytea,
    unique (archive_id, name)
);

-- Parsed workflow files, by content: archives have the same files in many revisions.
create table workflow (
    id          bigint generated always as identity primary key,
    digest      bytea not null unique,
    files       bytea not null,                     -- the digest of the files alone, without the lists that they name
    tasks       jsonb not null,
    faults      jsonb not null,
    -- {path, content}: the JSON Schema for payloads of submissions, as it was written, because its
    -- patterns may contain text that jsonb cannot store.
    schema      json
);
-- The lists of `foreach`, by content. Definitions refer to them by digest.
create table list (
    digest      text primary key
);
-- The items of lists, in parts of limited size.
create table list_part (
    digest      text not null references list on delete cascade,
    first       int not null,                       -- the place in the list of the part's first item
    items       jsonb not null,                     -- [[key, body], …]
    primary key (digest, first)
);
create table definition (
    id          bigint generated always as identity primary key,
    digest      bytea not null unique,
    body        jsonb not null,
    -- [{name, here, unstarted}], read by the statements that fire `cancels` (graph.sql).
    cancels     jsonb not null default '[]',
    -- The pool of tasks with this definition; null: the pool of their archive.
    pool        text generated always as (case when body->>'image' is not null then 'container' end) stored,
    -- The second half of the pool: the labels that the tasks need (`runs_on`), in order:
    -- ` gpu,tex`. Empty: none.
    labels      text not null generated always as (
        case when body ? 'runs_on' then ' ' || translate((body->'runs_on')::text, '[]" ', '') else '' end) stored,
    locks       boolean not null generated always as (body ? 'lock') stored,  -- the tasks ask for locks
    -- The tasks share a scratch folder within their `run` or `item`; null: they have none.
    scratch     text generated always as (body->>'scratch') stored
);

create sequence revision_id;
create table revision (
    id          bigint primary key default nextval('revision_id'),
    branch_id   bigint not null references branch,
    number      bigint not null,
    name        text not null,                      -- "12" or the full SHA
    author      text not null,
    date        timestamptz not null,
    message     text not null,
    origin      text,                               -- the full name of the task that made the commit; null: none
    -- The number of commits by tasks, each made because of the one before, that led to this
    -- revision.
    generation  int not null default 0,
    workflow_id bigint not null references workflow,
    baseline    boolean not null default false,
    previous    text,                               -- the name of the previous ledger entry
    dropped_at  timestamptz,                        -- when a force-push took the revision off its branch
    read_at     timestamptz not null default now(),
    -- The revision's workflow files were not accepted when it was appended, and somebody else than
    -- the archive's `workflow_authors` had changed them.
    is_foreign  boolean not null default false,
    -- The digest of the paths that a Subversion revision changes; null if they were not known.
    -- `archive accept` compares it.
    paths_digest text,
    unique (branch_id, number)
);
-- Finds revisions by the beginning of their ids, whatever the collation of the database.
create index revision_name on revision (branch_id, name collate "C");
-- Finds revisions whose date was in the future when arkqueue read them.
create index revision_early on revision (branch_id, number) where date > read_at;
alter table branch add foreign key (head_id) references revision;

-- The words that find a revision: the words of its author and message, without punctuation. Only
-- the beginning of a long message counts.
create function words_of(author text, message text) returns tsvector language sql immutable parallel safe as $$
    select to_tsvector('simple', translate(left(author || ' ' || message, 10000), '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', repeat(' ', 32)))
$$;
create index revision_words on revision using gin (words_of(author, message));

create sequence run_id;
create table run (
    id          bigint primary key default nextval('run_id'),
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    revision_id bigint not null references revision,
    number      bigint not null,
    run         int not null,
    trigger     text not null check (trigger in ('commit', 'manual', 'schedule', 'submission')),
    by          text not null default '',
    faults      jsonb not null default '[]',
    report_id   bigint,                             -- the run's REPORT; null: a baseline, which has none
    -- The number of the report for which a person's update runs the command of REPORT; ignored once
    -- REPORT has settled.
    updating    int,
    created_at  timestamptz not null default now(),
    canceled_at timestamptz,
    canceled_by text,
    deleted_at  timestamptz,
    deleted_by  text,
    -- The tasks that the deletion of the run canceled or waived, or may have; without `deleted_at`,
    -- the run is being deleted or undeleted in steps.
    deleted_tasks bigint[],
    -- For a run of a schedule: the number of later fires that made no run of their own, because
    -- this run stands for them, and the time of the first such fire.
    left_out    int not null default 0,
    left_out_since timestamptz,
    -- The backfill that the run is part of, with the backfill's definitions.
    backfill_id bigint,
    unique (branch_id, number, run)
);
create unique index run_commit on run (revision_id) where trigger = 'commit';
create index run_archive on run (archive_id, id);
create index run_backfill on run (backfill_id, id) where backfill_id is not null;
-- A list of the runs with a rare trigger does not read the others.
create index run_trigger on run (archive_id, trigger, id);
-- The overview finds faults without reading the head of each branch.
create index run_faulty on run (revision_id) where faults <> '[]';

-- The lists in the workflow files of runs. A list that no run uses is purged.
create table list_use (
    run_id      bigint not null,
    digest      text not null references list,
    primary key (run_id, digest)
);
create index list_use_list on list_use (digest);

-- Large runs of which a part is still to be planned (design 5.30). Any queue manager stores the run
-- in portions. Before all of the run is stored, none of its tasks starts, and no later run of its
-- branch is planned. When its COMMIT has settled, the tasks that may start are let in, again in
-- portions.
create table planning (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    names       text[] not null,                    -- the names of the run's tasks
    -- The names of tasks that none of the run's tasks waits for if they are not part of the run.
    without     text[] not null,
    hold_id     bigint,                             -- the hold of the run's tasks, as in `task.hold_id`
    behind      int not null,                       -- the number that is added to the priorities of the tasks
    next        int not null default 0,             -- the items before this place are stored
    items       int not null,                       -- the number of the run's items
    -- The tasks that wait for their run to be let in, besides their edges; null: not all of the run
    -- is stored yet, or what follows from storing it has not begun.
    to_let_in   bigint[],
    lists       jsonb not null default '{}',        -- for a submission: the digests of its lists, by `Foreach.items`
    begun_at    timestamptz not null default clock_timestamp(),
    stored_at   timestamptz not null default clock_timestamp()
);
create index planning_branch on planning (branch_id);
create index planning_open on planning (branch_id) where next < items;

-- Runs whose unstarted tasks are being canceled in steps, because their branch, revision or archive
-- is gone (design 5.16). The row is deleted when all these tasks are canceled.
create table ending (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    -- The audit log entry (`deed`) that holds the tasks that could start; its `by` is the cause of
    -- the end.
    deed_id     bigint not null,
    -- All tasks that could start are held; until then, claims leave out the tasks of `entry_id`.
    is_aside    boolean not null default false,
    entry_id    bigint not null,                    -- the run's revision
    until       bigint not null                     -- the last task of the run when the end began
);

-- Tasks that a person released or retried while the end of their run was in progress. This decision
-- is newer than the end, so the end spares the tasks.
create table spared (
    run_id      bigint,
    task_id     bigint,
    primary key (run_id, task_id)
);

-- Tasks with `cancels` that supersede more tasks than one transaction cancels
-- (queue/superseding.py): one row for each entry of `cancels`. Such a task has fired, and its
-- `unmet` counts one for all of its rows together. The rows are deleted when all victims are
-- canceled.
create table superseding (
    task_id     bigint,
    name        text,                               -- the name of the tasks to cancel
    -- The entry names tasks of the same run; false: tasks of earlier runs.
    here        boolean,
    unstarted   boolean not null,                   -- the entry spares tasks that have started
    archive_id  bigint not null references archive,
    branch_id   bigint not null,
    run_id      bigint not null,
    number      bigint not null,
    run         int not null,
    item        text not null,
    primary key (task_id, name, here)
);
create index superseding_name on superseding (branch_id, name, item);
create index superseding_run on superseding (run_id);

-- Runs of old revisions with the definitions of a newer one (design 5.2), planned in order, several
-- in each transaction.
create table backfill (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    number      int not null,                       -- the number in ARCHIVE@fill:NUMBER, counted for each archive
    revision_id bigint not null references revision,  -- the revision whose definitions the runs have
    tasks       text[] not null,
    without     text[] not null,
    first       bigint not null,
    last        bigint not null,
    -- The number of the next revision that needs a run; null: all runs are planned.
    next        bigint,
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    -- The audit log entry (`deed`) that holds the runs planned from now on; null: no hold.
    hold_id     bigint,
    priority    int,                                -- the priority that a person set for the whole backfill
    fault       text,                               -- why planning ended before the last revision
    -- Why the next runs cannot be planned now (their lists cannot be read), with the remedy; null:
    -- nothing prevents it.
    waits       text,
    waits_since timestamptz,
    unique (archive_id, number)
);
create index backfill_open on backfill (id) where next is not null;

-- The documents of submissions (design 5.31), unchanged, in parts. They are stored before their
-- runs are planned.
create sequence payload_id;
create table payload_part (
    payload_id  bigint not null,
    position    int not null,                       -- from 0
    data        bytea not null,
    primary key (payload_id, position)
);
-- PostgreSQL takes no samples of documents: pg_statistic would keep them after a purge.
alter table payload_part alter column data set statistics 0;
-- Payloads that belong to no run: they are still being stored, were not used, or their run was
-- purged. A periodic clean-up deletes them after some time.
create table payload_left (
    id          bigint primary key,
    since       timestamptz not null default clock_timestamp()
);
-- Submissions. The row outlives its run: after a purge, sending the submission again makes no
-- second run.
create table submission (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text,                               -- the sender's id for the submission; null: none
    run_id      bigint not null unique,             -- the id in `run` or, after a purge, in `purged_run`
    -- The COMMIT (in `task`) that later tasks wait for, because the COMMIT of this run waits at no
    -- gate.
    commit_id   bigint,
    kind        text not null check (kind in ('json', 'yaml', 'csv', 'lines')),
    size        bigint not null,                    -- bytes
    digest      text not null,                      -- the SHA-256 of the payload
    payload_id  bigint not null,
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    attachments text                                -- the `upload.digest` of the attachments; null: none
);
create unique index submission_sender on submission (archive_id, sender_id) where sender_id is not null;
-- Files that a sender hands in beside a payload (design 5.31). The files arrive before their run is
-- made, in any number of calls. Like a scratch folder, their folder has a random number as its
-- name. The row is deleted when its run is purged, or when nobody has continued the upload for a
-- day; the folder is removed afterwards.
create table upload (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text not null,
    folder      bigint not null unique default (random() * 9007199254740991)::bigint,
    -- The place of the folder, as in `scratch.store`; all tasks of the run are in the pool of its
    -- label, `@STORE`.
    store       text not null,
    files       int not null,
    size        bigint not null,                    -- bytes of all files
    digest      text not null,                      -- the SHA-256 of the files' names, sizes and digests
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    continued_at timestamptz not null default clock_timestamp(),
    run_id      bigint unique,                      -- the run of the upload; null: not made yet
    removed_at  timestamptz                         -- when the run was deleted: the folder is being removed, or is gone
);
create unique index upload_open on upload (archive_id, sender_id) where run_id is null;
create index upload_store on upload (store) where removed_at is null;
-- A transaction that begins an upload locks the row of the store, so that two archives cannot both
-- take the last free space there.
create table upload_turn (
    store       text primary key
);
create table attachment (
    upload_id   bigint not null references upload on delete cascade,
    position    int not null,                       -- from 0
    name        text not null,
    size        bigint not null,                    -- bytes
    digest      text not null,                      -- the SHA-256 that the sender gave
    verified_at timestamptz,                        -- when the whole file had arrived and had this digest
    primary key (upload_id, position)
);

-- The reports of runs (design 5.32; decision 18). The report that a run makes by itself gets a row
-- only when a task of the run is about to change: until then, the tasks hold its contents.
create table report (
    run_id      bigint not null,
    number      int not null,                       -- 1, 2, … in each run
    made_at     timestamptz not null default clock_timestamp(),
    made_by     text,                               -- null: the run made it by itself when it had settled
    state       text not null,                      -- the state of the run
    -- The number of the report with which this one is compared; null: none.
    since       int,
    changes     int not null,                       -- the number of tasks that have changed since that report
    digest      text not null,                      -- the value of `report_digest` when the report was made
    is_given    boolean not null default false,     -- the command of REPORT has received the report
    sent_at     timestamptz,                        -- when the command ended with exit code 0
    -- The outcome of each task; messages and outputs stay with the attempts that are named here.
    tasks       jsonb not null,
    primary key (run_id, number)
);
create unique index report_by_itself on report (run_id) where made_by is null;

-- Purged runs (design 5.27): no other run gets their places, and answers about them say who purged
-- them.
create table purged_run (
    branch_id   bigint not null,
    number      bigint not null,
    run         int not null,
    id          bigint not null unique,             -- the id that the run had in `run`
    deed_id     bigint not null,
    primary key (branch_id, number, run)
);

-- Purged runs whose tasks are being deleted in steps (queue/purge_batch.py). The run has no row in
-- `run` any more, but a row in `purged_run`. Its tasks are settled, and no plan, verb or view reads
-- them. The row is deleted when all tasks are deleted.
create table purging (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    begun_at    timestamptz not null default clock_timestamp(),
    -- `purged_start` has all starts of the run's tasks; until then no task is deleted.
    has_starts  boolean not null default false
);

create sequence task_id;
create table task (
    id          bigint primary key default nextval('task_id'),
    -- Unchecked, like all ids here: each second change of a row would check the foreign keys again.
    run_id      bigint not null,
    archive_id  bigint not null,
    branch_id   bigint not null,
    number      bigint not null,
    run         int not null,
    definition_id bigint,
    unmet       int not null,
    position    int not null,                       -- the place in the workflow files; COMMIT first, REPORT last
    attempts    int not null default 0,             -- greater than 0: the task has started
    failures    int not null default 0,             -- since a person last retried the task, like the next two columns
    deferrals   int not null default 0,
    losses      int not null default 0,
    state       task_state not null,
    -- `commit`: COMMIT. `report`: REPORT. `gate`: made by arkqueue, for PREV:* or a list.
    -- `ordinary`: from a workflow file.
    kind        task_kind not null,
    program     boolean not null,                   -- the task has a command or script; a task without one passes
    cancels     boolean not null default false,
    exclusive   boolean not null default false,
    fired       boolean not null default false,
    waived      boolean not null default false,
    as_completed boolean not null default false,
    -- The columns that claims use to find a task are written when the task becomes ready: `pool`,
    -- the kind of task manager and the labels that it needs (`container gpu,tex`), and its place
    -- among the ready tasks of its archive.
    pool        text,
    priority    int not null default 50,            -- lower numbers first
    prioritized boolean not null default false,     -- a person set the priority, so no other task of the run changes it
    -- The revision: grows on each branch, and is comparable across branches.
    entry_id    bigint,
    attempt_id  bigint,                             -- the newest attempt
    root_id     bigint,                             -- the task because of which this one was skipped
    -- The tasks of later runs that this task, canceled or skipped with unmet edges, keeps waiting.
    -- 0: none. 1: tasks that need its completion. 2: also tasks that wait for any end.
    blocks      smallint not null default 0,
    superseded_by bigint,                           -- the task whose `cancels` canceled this one
    -- The task's hold: an entry of the audit log (`deed`); 0, its workflow file; or -1 and -2,
    -- guards of its archive. A task that is canceled or skipped before a release keeps its hold, so
    -- that a retry does not bypass the release.
    hold_id     bigint,
    release_id  bigint,                             -- the audit log entry (`deed`) of the newest release
    due_at      timestamptz,
    ready_at    timestamptz,
    settled_at  timestamptz,
    name        text not null,
    item        text not null default '',           -- the key of the task's item, if its definition has a list
    item_id     bigint,
    stop        text check (stop in ('cancel', 'restart')),
    by          text,                               -- who canceled, skipped, waived or stopped the task
    -- The task waits only for its locks: its edges are met, and its `cancels` have fired.
    asks        boolean not null default false,
    in_line     boolean not null default false,     -- the task has rows in `lock_use`
    -- Why the task failed without an attempt: a field made no valid name of a lock.
    fault       text,
    polls       boolean not null default false,     -- the command has ended with 75: from now on the poll runs instead
    -- When the `deadline` began: when the first attempt since a person's last retry ended with 75.
    deferred_at timestamptz,
    deleted     boolean not null default false,     -- the task belongs to a `deleted_item`
    retries     int not null default 0,             -- the number of retries by persons (`retry_count`)
    check ((settled_at is null) = (state in ('waiting', 'held', 'ready', 'running', 'deferred')))
) with (fillfactor = 85);
create unique index task_key on task (branch_id, name, item, number, run);
create index task_run on task (run_id);
-- For pages with the items of long lists. Other queries for items say `item <> ''`, so that plans
-- made before an archive had items do not scan this index.
create index task_items on task (run_id, position, id) where item_id is not null;
-- Finds items by the beginning of their keys, whatever the collation of the database.
create index task_item_key on task (branch_id, name, item collate "C", number, run) where item_id is not null;
create index task_ready on task (pool, archive_id, priority, entry_id, run, position, id) where state = 'ready';
create index task_due on task (due_at) where state = 'deferred';
create index task_held on task (archive_id, run_id) where state = 'held';
create index task_failed on task (archive_id, run_id) where state = 'failed';
create index task_rejected on task (archive_id, run_id) where state = 'rejected';
-- Separates unhandled failures from those that later revisions have repaired, without reading each
-- task.
create index task_bad on task (archive_id, branch_id, name, item, number, run) include (run_id, id) where state in ('failed', 'rejected') and not waived;
-- Queries for open tasks say `settled_at is null`. The guards of state changes say `state`, so that
-- statistics from a time without open tasks can never make a statement that has ids scan all open
-- tasks.
create index task_open on task (branch_id, name, item, number) where settled_at is null;
create index task_canceling on task (branch_id, number) where fired;
create index task_commit on task (branch_id, number) where kind = 'commit' and settled_at is null;
create index task_exclusive on task (branch_id) where exclusive and settled_at is null;
create index task_blocking on task (run_id) where blocks > 0;
create index task_root on task (root_id) where root_id is not null;

-- The tombstones of items that a person deleted (design 5.27). Their tasks are marked `deleted`,
-- and no list or counter includes them.
create table deleted_item (
    run_id      bigint not null,
    item        text not null,
    deleted_at  timestamptz not null default clock_timestamp(),
    deleted_by  text not null,
    tasks       bigint[] not null,                  -- the tasks that the deletion canceled or waived
    primary key (run_id, item)
);

-- Remaining tasks because of which a task of a later, now purged run had started, or had let tasks
-- of further runs start (design 5.19). The other columns are the place and the name of that purged
-- task.
create table purged_start (
    task_id     bigint primary key,
    number      bigint not null,
    run         int not null,
    name        text not null,
    item        text not null
);

-- Tasks of purged runs whose attempts and logs are still to be deleted.
create table purged_task (
    id          bigint primary key                  -- the id that the task had in `task`
);

-- The archives that claims consider: every archive with a ready task, with the pools of its ready
-- tasks, unless it is withheld. Some of these archives have no ready task any more: claims take
-- tasks and do not change these rows. The queue manager removes such rows (`withdraw`).
create table ready_archive (
    archive_id  bigint primary key,
    pools       text[] not null,
    tier        int not null default 5,             -- the tier of the archive
    -- The archive has a limit: a claim takes a row of `slot` with each of its tasks.
    limited     boolean not null default false
);
create index ready_archive_turn on ready_archive (tier, archive_id);
create index ready_archive_special on ready_archive (archive_id) where limited or tier <> 5;  -- what `claim` leaves to `claim_in_tiers`

-- The slots of archives with a limit, as many as their `max_running`. A slot names the attempt that
-- occupies it, so no separate counter of occupancy exists.
create table slot (
    archive_id  bigint not null,
    number      int not null,
    attempt_id  bigint unique,                      -- null: the slot is free
    closed      boolean not null default false,     -- the slot is surplus, because the limit was lowered
    primary key (archive_id, number)
);
create index slot_free on slot (archive_id) where attempt_id is null and not closed;

-- The settings of locks. A lock without a row has room for one task.
create table lock (
    -- The archive that the lock belongs to; 0: the whole installation, `global/…`.
    scope       bigint not null,
    name        text not null,
    capacity    int check (capacity > 0),           -- null: unlimited
    paused_at   timestamptz,                        -- when a person paused the lock: no task that names it starts
    paused_by   text,
    pause_reason text,
    primary key (scope, name)
);

-- The locks of tasks that wait for them, have been granted them, or run. Each row has its task's
-- place in the order of claims, so that an index is the line.
create table lock_use (
    task_id     bigint not null,
    name        text not null,
    archive_id  bigint not null,                    -- the archive of the task
    scope       bigint not null,                    -- the scope of the lock: the archive, or 0
    granted     boolean not null,                   -- the task is ready or runs; false: it waits
    priority    int not null,
    entry_id    bigint not null,
    run         int not null,
    position    int not null,
    primary key (task_id, scope, name)
);
create index lock_line on lock_use (scope, name, archive_id, priority, entry_id, run, position, task_id) where not granted;
create index lock_holder on lock_use (scope, name, archive_id) where granted;
-- Tasks that left the lines of their locks since the lines were last judged; none after each change
-- of a graph.
create index task_left_lines on task (archive_id)
    where in_line and not (state = 'ready' or state = 'running' or state = 'waiting' and asks);

-- The archive that was last granted each lock of the whole installation: the archives after it come
-- next. The transaction that grants such a lock locks the row without a name.
create table lock_turn (
    name        text primary key,
    archive_id  bigint not null
);
insert into lock_turn values ('', 0);

-- The completions of each task of a branch: the last in time (BASE, design 3), the one at the
-- highest place, and the one in the highest commit run. The highest place is null if only backfills
-- have completed the task, because these are not newer work.
create table completion (
    branch_id   bigint not null,
    name        text not null,
    item        text not null default '',
    revision_id bigint not null,                    -- the revision that was completed last in time
    run         int not null,
    highest_number bigint,
    highest_run int,
    -- The number of the commit run, which is always run 1; null: no commit run completed the task.
    commit_number bigint,
    primary key (branch_id, name, item)
) with (fillfactor = 50);                           -- each completion changes its row: there is room for the new one beside it

-- The names that ordinary tasks of a branch ever had, for PREV:*.
create table task_name (
    branch_id   bigint not null references branch,
    name        text not null,
    commits     boolean not null,                   -- a commit run has had a task of this name
    primary key (branch_id, name)
);

-- The items of lists, in a table of their own: the row of a task, which changes often, stays small.
-- Not jsonb, which sorts the fields of an item.
create sequence item_id;
create table item (
    id          bigint primary key default nextval('item_id'),
    run_id      bigint not null,
    body        json not null
);
create index item_run on item (run_id);

-- Folders that stay from task to task of a run, or of an item (`scratch`, design 5.37). A row is
-- stored before its folder is made. The folder's name is the row's id, which is random: after a
-- restore from a backup, no new folder gets the id of an existing one.
create table scratch (
    run_id      bigint not null,
    item        text not null default '',           -- the key of the folder's item; empty: the folder is the run's
    id          bigint not null unique default (random() * 9007199254740991)::bigint,
    -- The place of the folder: a host, or a folder that task managers share; tasks with this folder
    -- are in the pool of its label, `@STORE`.
    store       text not null,
    made_at     timestamptz,                        -- when the folder was made: a folder that is missing later is lost
    removed_at  timestamptz,
    bytes       bigint,                             -- the size of the folder at the last measurement
    primary key (run_id, item)
);
create index scratch_store on scratch (store) where removed_at is null;

-- The labels that a task with a scratch folder needs: first the label of the folder's store, if the
-- folder exists, and then the labels of the task's definition. Definitions of runs with attachments
-- already have the label of their store.
create function labels_in_scratch(own text, scratch text, of_run bigint, key text) returns text language sql stable as $$
    select case when own like ' @%' then own else
        coalesce((select ' @' || s.store || case when own = '' then '' else ',' || ltrim(own) end from scratch s
                  where s.run_id = of_run and s.item = case when scratch = 'item' then key else '' end and s.removed_at is null), own) end
$$;

create table edge (
    target      bigint not null,
    source      bigint not null,
    kind        edge_kind not null,
    -- Any settled source meets the edge; with `failed`, a source that failed or rejected its input.
    settled     boolean not null,
    crossing    boolean not null,                   -- the edge leads from one run to another
    declared    boolean not null,                   -- the edge stands in a workflow file
    met         boolean not null,
    -- The edge needs the product of a task that is not part of the run: only a source that
    -- completed, or was waived as completed, meets it (design 5.18).
    product     boolean not null default false,
    -- Only a source that failed or rejected its input meets the edge (design 5.6); any other end of
    -- the source skips the target. `settled` is true for such an edge.
    failed      boolean not null default false,
    primary key (target, source, kind, settled)
) with (fillfactor = 85);
-- The index has all edges, not only the unmet ones, so that meeting an edge changes no index.
create index edge_source on edge (source);
-- Completions read this index, too: it is empty for archives without such edges.
create index edge_failed on edge (source) where failed;

create table task_manager (
    process     text primary key,
    host        text not null,
    hostname    text not null,
    slots       int not null,
    fault       text,                               -- why it can start no task at present; null: it can
    engine_fault text,                              -- why it can start no task in a container at present; null: it can
    -- The disk with less free space than `min_free`, because of which it claims nothing.
    low_disk    text,
    -- The user of its host that it runs as; null: its version does not report this.
    account     text,
    labels      text[] not null default '{}',       -- the labels for `runs_on`
    started_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    stopped_at  timestamptz,
    store       text,                               -- the `scratch.store` of its folders; null: its version has none
    scratch_limit bigint                            -- the most bytes of these folders; 0: no limit
);
create index task_manager_store on task_manager (store);

-- Hosts whose task managers claim nothing until a person resumes them. A host is named by the
-- id of its home folder, and exists longer than its task managers.
create table drain (
    host        text primary key,
    drained_at  timestamptz not null default clock_timestamp(),
    drained_by  text not null,
    reason      text not null
);

-- The numbers of ready and running tasks, stored once a minute and kept for a day.
create table queue_depth (
    at          timestamptz primary key,            -- the minute
    ready       int not null,
    running     int not null
);

-- The id of this installation; no row until the first request for it. Containers carry the id, so
-- that several installations can share an engine.
create table installation (
    single      boolean primary key default true check (single),
    id          uuid not null default gen_random_uuid()
);

create sequence attempt_id;
create table attempt (
    id          bigint primary key default nextval('attempt_id'),
    task_id     bigint not null,
    kind        attempt_kind not null default 'run',
    number      int not null,                       -- 1, 2, … for each task and kind
    process     text not null,
    host        text not null,
    lease_until timestamptz not null,
    claimed_at  timestamptz not null default clock_timestamp(),
    started_at  timestamptz,
    ended_at    timestamptz,
    exit_code   int,
    "end"       text,
    message     text not null default '',
    outputs     jsonb,
    base        text,                               -- the BASE of the attempt at the claim
    -- How long after its lease the attempt, which runs in a container, stays reserved for its host;
    -- null: no container.
    outlives    interval,
    image       text,                               -- the image of the container, by digest
    -- The bytes of the task's output, of which `log_chunk` keeps head and tail.
    log_bytes   bigint not null default 0,
    -- The bytes of standard output among them: a task manager that adopts the attempt skips as
    -- many.
    log_stdout  bigint not null default 0,
    log_stderr  bigint not null default 0,
    log_removal_id bigint,                          -- the audit log entry (`deed`) of the removal of the log
    outputs_removal_id bigint,                      -- the audit log entry (`deed`) of the removal of the outputs
    -- Until when the attempt's writer wakes followers of the log, unless they ask again.
    followed_until timestamptz,
    processor_seconds float8,                       -- user and system time; null: not known, as for lost attempts
    -- The peak of the largest process of the attempt's tree, or of its whole container.
    peak_memory_bytes bigint,
    -- True if the two figures above were measured while the attempt ran, and are lower bounds.
    usage_sampled boolean,
    unique (task_id, kind, number),
    check ((ended_at is null) = ("end" is null))
) with (fillfactor = 85);
-- As for `task_open`, a statement that knows the attempt's id tests "end", not `ended_at`.
create unique index attempt_live on attempt (task_id) where ended_at is null;

create table log_chunk (
    attempt_id  bigint not null,
    -- The position of the first byte, in the order in which the bytes were read.
    position    bigint not null,
    stream      text not null check (stream in ('stdout', 'stderr', 'note')),
    at          timestamptz not null,
    data        bytea not null,
    -- The line ends in `data`; null: written by a version that did not count them.
    lines       integer,
    -- The line ends of the task's output before `data`, with those that were left out; null: written
    -- by a version that did not count them.
    before      bigint,
    primary key (attempt_id, position)
);
-- PostgreSQL takes no samples of logs: pg_statistic would keep them after a removal.
alter table attempt alter column message set statistics 0, alter column outputs set statistics 0;
alter table log_chunk alter column data set statistics 0;

-- A digest of a set of tasks, which can be longer than an index entry.
create function key_of(names text[]) returns text language sql immutable as $$ select md5(array_to_string(names, ' ')) $$;

create table schedule (
    id          bigint generated always as identity primary key,
    branch_id   bigint not null references branch,
    cron        text not null,
    zone        text not null,
    tasks       text[] not null,                    -- the names, sorted
    next_at     timestamptz not null,
    run_id      bigint                              -- the last run of the schedule
);
create unique index schedule_key on schedule (branch_id, cron, zone, key_of(tasks));
create table schedule_fire (
    branch_id   bigint not null references branch,
    cron        text not null,
    zone        text not null,
    tasks       text[] not null,
    fire_at     timestamptz not null,
    run_id      bigint references run
);
create unique index schedule_fire_once on schedule_fire (branch_id, cron, zone, key_of(tasks), fire_at);
create index schedule_fire_run on schedule_fire (run_id) where run_id is not null;

create table token (
    id          bigint generated always as identity primary key,
    name        text not null,
    hash        bytea not null unique,
    scope       text not null check (scope in ('hook', 'read', 'operate', 'approve', 'admin')),
    archives    text[],                             -- null: all archives
    created_at  timestamptz not null default now(),
    revoked_at  timestamptz,
    -- The persons that the token stands for, written as authors of revisions.
    authors     text[] not null default '{}'
);

-- Signed-in browsers, and the codes of links that sign a browser in once. Both are stored as hashes
-- only, like tokens.
create table sign_in (
    hash        bytea primary key,
    -- The token that gives the browser its rights and whose end ends the sign-in; null: a person
    -- signed in with a provider.
    token_id    bigint references token,
    once        boolean not null,                   -- true: the code of a link, which the first use deletes
    expires_at  timestamptz not null,
    -- The provider; at each request, the configuration gives rights to the groups.
    issuer      text,
    subject     text,                               -- the provider's id for the person
    person      text,                               -- the name of the person
    groups      text[],                             -- the person's groups that the configuration named at the sign-in
    -- The authors of revisions that the person is, according to the provider.
    authors     text[],
    begun_at    timestamptz default clock_timestamp(),  -- null: the sign-in is older than this column
    -- The name that the browser gives itself (User-Agent); empty: none, or the sign-in is older
    -- than this column.
    browser     text not null default '',
    -- The person's session at the provider, which a logout there names; null: unknown, or the
    -- sign-in is older than this column.
    sid         text,
    constraint sign_in_whose check (num_nulls(issuer, subject, person, groups, authors) = case when token_id is null then 0 else 5 end)
);
-- Answers of a provider with which a person has signed in: each works only once. Only hashes are
-- stored.
create table used_answer (
    hash        bytea primary key,
    expires_at  timestamptz not null
);

-- The audit log: what people did, and when.
create table deed (
    id          bigint generated always as identity primary key,
    at          timestamptz not null default clock_timestamp(),
    by          text not null,
    verb        text not null,
    archive_id  bigint,
    run_id      bigint,
    task_id     bigint,
    note        text not null default ''
);
create index deed_task on deed (task_id) where task_id is not null;
create index deed_run on deed (run_id) where run_id is not null;
create index deed_archive on deed (archive_id, id) where archive_id is not null;
-- Finds the runs that a `retry --from` ran again.
create index deed_retry_from on deed (run_id) where run_id is not null and task_id is null and verb = 'retry' and note ~ '(^| )--from ';

-- Runs that have changed since notifications about them were last decided, in archives with
-- receivers; run 0 stands for the archive itself. Rows are only added and deleted, so no change of
-- a graph waits for this decision.
create table to_judge (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null,
    run_id      bigint not null
);
-- The last notification about each run, or about an archive (run 0), to any receiver.
create table told (
    archive_id  bigint not null,
    run_id      bigint not null,
    occasion    text,                               -- the last occasion; null: it is over
    -- A digest that is different for the next notification of the same occasion.
    digest      text not null,
    -- Receivers were told of a failure, and the run has not completed since.
    is_failed   boolean not null,
    primary key (archive_id, run_id)
);
-- The outbox: one row for each notification and receiver.
create table delivery (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    run_id      bigint not null,                    -- the id in `run`; 0: the notification is about the archive
    occasion    text not null check (occasion in ('failed', 'fixed', 'held', 'completed', 'stopped')),
    receiver    text not null,                      -- an e-mail address, the URL of a webhook, or `author`
    tasks       bigint[] not null default '{}',     -- the first tasks that the notification reports
    attempts    bigint[] not null default '{}',     -- the attempts of these tasks; null: a task has none
    count       int not null default 0,             -- the number of tasks that the notification reports
    what        text not null default '',           -- why the archive was stopped
    made_at     timestamptz not null default clock_timestamp(),
    state       text not null default 'waiting' check (state in ('waiting', 'sent', 'failed', 'dropped')),
    tries       int not null default 0,
    due_at      timestamptz not null default clock_timestamp(),
    -- When to give up: after a try that fails later, there is no further try.
    until       timestamptz not null,
    -- How long a sender has the delivery; after that, another sender sends it again.
    sending_until timestamptz,
    -- The receiver did not answer the last try: its other deliveries wait for the next try.
    is_silent   boolean not null default false,
    fault       text not null default '',           -- the error of the last try, or why the delivery was dropped
    ended_at    timestamptz,
    -- The delivery that reports this one, too: one mail for many notifications.
    carried_by  bigint references delivery on delete set null
);
create index delivery_waiting on delivery (receiver, archive_id, run_id, id) where state = 'waiting';
create index delivery_failed on delivery (ended_at) where state = 'failed';
create index delivery_archive on delivery (archive_id, id);
create index delivery_run on delivery (run_id);
create index delivery_ended on delivery (ended_at) where ended_at is not null;
create index delivery_carried on delivery (carried_by) where carried_by is not null;
-- Two rows, as locks: the transaction that decides on notifications locks the first row, and the
-- one that chooses deliveries the second.
create table outbox_turn (
    work        int primary key
);
insert into outbox_turn values (1), (2);

-- The text that replaces a removed log or output.
create function removed(what text, entry deed) returns text language sql stable as $$
    select 'The ' || what || ' removed on ' || to_char(entry.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC by ' || entry.by || ', because ' || entry.note
    where entry.id is not null
$$;

-- One row. Leases lapse only after the database has answered for one full lease without a gap.
create table heartbeat (
    id          int primary key default 1 check (id = 1),
    beat_at     timestamptz not null default clock_timestamp(),
    steady_since timestamptz not null default clock_timestamp()
);
insert into heartbeat default values;

-- A digest of the states of a run's tasks: which have settled, when, and whether they were waived.
-- If the digest is different from that of a report, the run has changed since the report.
create function report_digest(of_run bigint) returns text language sql stable as $$
    select md5(coalesce(string_agg(concat_ws(':', id, (extract(epoch from settled_at) * 1000000)::bigint, waived, as_completed), ',' order by id), ''))
    from task where run_id = of_run and kind = 'ordinary' and settled_at is not null and not deleted
$$;

-- Whether a source meets an edge (decision 0001, point 1).
create function meets(settled boolean, crossing boolean, state task_state, as_completed boolean, waived boolean, blocks smallint) returns boolean
    language sql immutable as
$$ select case when state in ('canceled', 'skipped') and crossing then blocks <= settled::int
               when state in ('failed', 'rejected', 'canceled', 'skipped') then settled or as_completed or crossing and waived
               else state = 'completed' end $$;

-- The kind of later tasks (`task.blocks`) that a canceled or skipped task keeps waiting because of
-- one of its unmet edges (decision 0001, point 18). `has_root`: the task was skipped because of
-- another task. The other arguments are facts of the edge and its source. A completed source is
-- about to meet the edge. The server inlines a body without FROM, which saves it 8 µs a call.
create function blocks_behind(
    settled boolean, crossing boolean, has_root boolean, state task_state, waived boolean, blocks smallint, has_begun boolean) returns smallint
    language sql immutable as
$$ select (case when (settled or not crossing and not has_root)
                     and case when state in ('canceled', 'skipped') then blocks = 1
                              when state in ('failed', 'rejected') then true
                              else state <> 'completed' and not crossing and has_begun end then 0
                when state in ('canceled', 'skipped') then blocks
                when state in ('failed', 'rejected') then (not waived)::int
                when state <> 'completed' and not crossing and has_begun then 1
                else 2 end)::smallint $$;

-- The victims of rows of `superseding` that no step has reached yet: they do not start any more.
-- The parts `supersedes` and `named` of graph.sql state the same rule. The view finds the rows of a
-- given task, so query it by the ids of tasks.
create view being_superseded as
select u.id, f.task_id as canceler, f.number, f.run
from task u
cross join lateral (
    select * from superseding f where f.branch_id = u.branch_id and f.name = u.name and f.item = any(array[u.item, '']) and u.item <> ''
    union all
    select * from superseding f where f.branch_id = u.branch_id and f.name = u.name and u.item = ''
    offset 0) f
where u.settled_at is null and u.stop is distinct from 'cancel' and not (f.unstarted and u.attempts > 0)
  and case when f.here then u.run_id = f.run_id and u.id <> f.task_id
           else (u.number, u.run) < (f.number, f.run)
                and (select v.trigger <> 'submission' or u.item = f.item and (select g.trigger = 'submission' from run g where g.id = f.run_id) from run v where v.id = u.run_id) end;

-- Whether a task is one of these victims. This is a function, because the statements that call it
-- almost never need the answer, and would otherwise prepare the view at each call.
create function is_superseded(task bigint) returns boolean language plpgsql stable as $$
begin
    return exists (select from being_superseded b where b.id = task);
end $$;

-- The root of the tasks that are skipped because of a bad task: the task's own root, or the task
-- itself. A task of a deleted run or item is a root itself unless its root was deleted, too, because
-- it does not come back together with its root.
create function root_behind(bad bigint, root bigint) returns bigint language plpgsql stable as $$
begin
    if root is not null and exists (
        select from task s join run g on g.id = s.run_id, task o join run h on h.id = o.run_id
        where s.id = bad and o.id = root and (s.deleted or g.deleted_at is not null) and not (o.deleted or h.deleted_at is not null)) then
        return bad;
    end if;
    return coalesce(root, bad);
end $$;
