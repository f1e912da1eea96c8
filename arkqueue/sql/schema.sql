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
    name        text not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]*(~[0-9]+)?$'),  -- papers~1: a removed archive whose name another one has now
    kind        text not null check (kind in ('subversion', 'git')),
    url         text not null,                      -- as a person gave the URL
    repository  text not null,                      -- the repository's root, normalised: notices name it
    uuid        text not null default '',
    folder      text not null default '',           -- Subversion: the watched folder inside the repository
    settings    jsonb not null default '{}',        -- model of config.ArchiveSettings
    created_at  timestamptz not null default now(),
    removed_at  timestamptz,
    stopped     text,                               -- the reason why arkqueue neither reads nor starts anything, until a person lets the archive go on
    hold_id     bigint,                             -- of `deed`: the archive is on hold, and new runs are held
    trouble     text,                               -- why the last scan failed
    trouble_since timestamptz,
    read_at     timestamptz,                        -- when the last whole scan ended
    next_read_at timestamptz not null default now(),
    -- The pool of its tasks without an image.
    pool        text not null generated always as (
        case when settings->>'image' is not null or (settings->>'process')::boolean is not true then 'container' else 'process' end) stored,
    paused_at   timestamptz,                        -- since when a person's pause of this archive lasts
    paused_by   text,
    pause_reason text,
    paused_with_all boolean not null default false, -- the installation is paused; `pause` says by whom
    is_paused   boolean not null generated always as (paused_at is not null or paused_with_all) stored,
    -- Stopped or paused: claims take nothing of it, and it takes no turns.
    withheld    boolean not null generated always as (stopped is not null or paused_at is not null or paused_with_all) stored,
    tier        int not null generated always as (coalesce((settings->>'tier')::int, 5)) stored,  -- archives of a lower one go first
    max_running int generated always as ((settings->>'max_running')::int) stored,  -- the largest number of attempts at once; null: no limit
    uses_locks  boolean not null default false,     -- a task of it has asked for a lock
    uses_lists  boolean not null default false,     -- a task of it has had a list (`foreach`)
    -- It has receivers of notifications.
    notifies    boolean not null generated always as (coalesce(settings->'notify' <> '{}', false)) stored,
    corrections int not null default 0              -- the number of corrected revisions (`archive accept`): files that were exported before may show the old author
);
create unique index archive_name on archive (name) where removed_at is null;

-- One row: whether the whole installation is paused. Each archive repeats that (`paused_with_all`),
-- so that one row has all facts about an archive.
create table pause (
    id          int primary key default 1 check (id = 1),
    paused_at   timestamptz,
    paused_by   text,
    reason      text
);
insert into pause default values;

-- One row while a notice waits for a scan. `asked`: the number of the newest notice, never given
-- twice, which shows whether another one came meanwhile.
create sequence notice;
create table look (
    archive_id  bigint primary key references archive,
    asked       bigint not null default nextval('notice'),
    looked      bigint not null default 0,          -- of `asked`, when the repository was last read without finding the revision
    asked_at    timestamptz not null default now(),
    revision    text                                -- the revision that the notice named, if any
);

create table branch (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    name        text not null,
    main        boolean not null default false,
    head_id     bigint,                             -- the last revision of the ledger; compared and set by `append`
    deleted_at  timestamptz,
    -- An import is under way (design 5.22): runs up to the revision of this id are held by this
    -- entry of `deed`. Without an entry they are not held, however many they are: the archive was
    -- added with `--from`.
    import_id   bigint,
    import_until text,
    accepted_files bytea,                           -- `workflow.files` that were accepted last, if `workflow_authors` guards them
    unique (archive_id, name)
);

-- Parsed workflow files, by content: archives have the same files in many revisions.
create table workflow (
    id          bigint generated always as identity primary key,
    digest      bytea not null unique,
    files       bytea not null,                     -- the digest of the files alone, whatever is in the lists that they name
    tasks       jsonb not null,
    faults      jsonb not null,
    schema      json                                -- {path, content}: the JSON Schema of payloads of submissions; as it was written, because its patterns may hold what jsonb cannot
);
-- Lists of `foreach`, by content: definitions name them by their digests.
create table list (
    digest      text primary key
);
-- Their items, in pieces that are not too long.
create table list_part (
    digest      text not null references list on delete cascade,
    first       int not null,                       -- the place of its first item in the list
    items       jsonb not null,                     -- [[key, body], …]
    primary key (digest, first)
);
create table definition (
    id          bigint generated always as identity primary key,
    digest      bytea not null unique,
    body        jsonb not null,
    cancels     jsonb not null default '[]',        -- [{name, here, unstarted}], read by fire_*
    -- The pool of its tasks; null: that of their archive.
    pool        text generated always as (case when body->>'image' is not null then 'container' end) stored,
    -- The rest of its tasks' pool: the labels that they need (`runs_on`), in order: ` gpu,tex`.
    -- Empty: none.
    labels      text not null generated always as (
        case when body ? 'runs_on' then ' ' || translate((body->'runs_on')::text, '[]" ', '') else '' end) stored,
    locks       boolean not null generated always as (body ? 'lock') stored, -- its tasks ask for locks
    scratch     text generated always as (body->>'scratch') stored  -- its tasks share the folder of their run, or of their item
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
    origin      text,                               -- the task that made the commit, in full
    generation  int not null default 0,
    workflow_id bigint not null references workflow,
    baseline    boolean not null default false,
    previous    text,                               -- name of the previous ledger entry
    dropped_at  timestamptz,                        -- a force-push took it off its branch
    read_at     timestamptz not null default now(),
    -- Its workflow files were not accepted when it was appended, and somebody else than the
    -- archive's `workflow_authors` had changed them.
    is_foreign  boolean not null default false,
    -- A digest of the paths that a Subversion revision changes; null if they were not known.
    -- `archive accept` compares it.
    paths_digest text,
    unique (branch_id, number)
);
-- Finds revisions by the beginning of their ids, whatever the collation of the database.
create index revision_name on revision (branch_id, name collate "C");
-- Finds revisions that were dated in the future when they were read.
create index revision_early on revision (branch_id, number) where date > read_at;
alter table branch add foreign key (head_id) references revision;

-- The words by which a revision is found: those of its author and message, without punctuation.
-- Only the beginning of a long message counts.
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
    report_id   bigint,                             -- its REPORT; a baseline has none
    updating    int,                                -- the number of the report of a person's update that the command of REPORT is run for; counts while REPORT is not settled
    created_at  timestamptz not null default now(),
    canceled_at timestamptz,
    canceled_by text,
    deleted_at  timestamptz,
    deleted_by  text,
    deleted_tasks bigint[],                         -- the tasks that its deletion canceled or waived, or may have; without `deleted_at`: it is being deleted or undeleted in steps
    -- Of a schedule's run: the number of later fires that made no run of their own, because this
    -- run stands for them, and the time of the first.
    left_out    int not null default 0,
    left_out_since timestamptz,
    backfill_id bigint,                             -- it is one of a backfill, and has its definitions
    unique (branch_id, number, run)
);
create unique index run_commit on run (revision_id) where trigger = 'commit';
create index run_archive on run (archive_id, id);
create index run_backfill on run (backfill_id, id) where backfill_id is not null;

-- The lists in the workflow files of runs: a list that no run has is purged.
create table list_use (
    run_id      bigint not null,
    digest      text not null references list,
    primary key (run_id, digest)
);
create index list_use_list on list_use (digest);

-- The part of a large run that is left to plan (design 5.30). The run is stored in portions, by any
-- queue manager. Before all of it is stored, none of its tasks starts, and no later run of its
-- branch is planned. When its COMMIT has settled, the tasks that may start are let in, again in
-- portions.
create table planning (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    names       text[] not null,                    -- of its tasks
    without     text[] not null,                    -- names of tasks that none of its tasks waits for if they are not part of it
    hold_id     bigint,                             -- of `deed`, or as in `task`: the hold of its tasks
    behind      int not null,                       -- the number that is added to their priorities
    next        int not null default 0,             -- the items before this place are stored
    items       int not null,                       -- the number of its items
    to_let_in   bigint[],                           -- tasks that wait beside their edges; null: the run is not stored yet, or its storing has had no consequences yet
    lists       jsonb not null default '{}',        -- of a submission: the digests of its lists, by `Foreach.items`
    begun_at    timestamptz not null default clock_timestamp(),
    stored_at   timestamptz not null default clock_timestamp()
);
create index planning_branch on planning (branch_id);
create index planning_open on planning (branch_id) where next < items;

-- Runs whose unstarted tasks are being canceled in steps, because their branch, revision or archive
-- is gone (design 5.16). A row is deleted when all of them are canceled.
create table ending (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    deed_id     bigint not null,                    -- of `deed`: the hold of the tasks that could start; its `by` is the cause of the end
    is_aside    boolean not null default false,     -- all tasks that could start are held; until then, claims leave out the tasks of the entry
    entry_id    bigint not null,                    -- of the ledger: the run's revision
    until       bigint not null                     -- the last task of the run when the end began
);

-- Tasks that came back to work while the end of their run was under way: a person's retry is newer,
-- so the end spares them.
create table spared (
    run_id      bigint,
    task_id     bigint,
    primary key (run_id, task_id)
);

-- Tasks with `cancels` that supersede more tasks than one transaction cancels
-- (queue/superseding.py): one row for each entry of `cancels`. Such a task has fired, and its
-- `unmet` counts one for its rows. The rows go when all victims are canceled.
create table superseding (
    task_id     bigint,
    name        text,                               -- of the tasks that the entry names
    here        boolean,                            -- it names those of the run of the task, else those of earlier runs
    unstarted   boolean not null,                   -- it spares what has started
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

-- Runs of old revisions with the definitions of a newer one (design 5.2), planned in order, some with each transaction.
create table backfill (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    number      int not null,                       -- of its archive: ARCHIVE@fill:NUMBER
    revision_id bigint not null references revision,  -- whose definitions its runs have
    tasks       text[] not null,
    without     text[] not null,
    first       bigint not null,
    last        bigint not null,
    next        bigint,                             -- the number from which runs are still to be planned; null: none are
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    hold_id     bigint,                             -- of `deed`: the hold of runs that are planned from now on
    priority    int,                                -- set by a person for the whole backfill
    fault       text,                               -- why it was not planned to its end
    waits       text,                               -- why its next runs cannot be planned now: its lists cannot be read, with the remedy; null: nothing is in the way
    waits_since timestamptz,
    unique (archive_id, number)
);
create index backfill_open on backfill (id) where next is not null;

-- The documents of submissions (design 5.31), unchanged, in parts, stored before their runs are
-- planned.
create sequence payload_id;
create table payload_part (
    payload_id  bigint not null,
    position    int not null,                       -- from 0
    data        bytea not null,
    primary key (payload_id, position)
);
-- PostgreSQL takes no samples of documents: pg_statistic would keep them after a purge.
alter table payload_part alter column data set statistics 0;
-- Payloads that belong to no run: they are being stored, nothing came of them, or their run was
-- purged. A sweep deletes them some time later.
create table payload_left (
    id          bigint primary key,
    since       timestamptz not null default clock_timestamp()
);
-- A submission outlives its run: sent again after a purge, it repeats nothing.
create table submission (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text,                               -- the sender's id for it; null: none
    run_id      bigint not null unique,             -- of `run` or, after a purge, of `purged_run`
    commit_id   bigint,                             -- of `task`: the COMMIT that later tasks wait for, because its own waits at no gate
    kind        text not null check (kind in ('json', 'yaml', 'csv', 'lines')),
    size        bigint not null,                    -- bytes
    digest      text not null,                      -- SHA-256 of its payload
    payload_id  bigint not null,
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    attachments text                                -- the `upload.digest` of its attachments; null: none
);
create unique index submission_sender on submission (archive_id, sender_id) where sender_id is not null;
-- Files that are handed in beside a payload (design 5.31). They arrive before their run is made, in
-- any number of calls, in a folder with a random number as its name, like a scratch folder. A row
-- is deleted by the purge of its run, or when nobody has continued it for a day; its folder is
-- removed afterwards.
create table upload (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text not null,
    folder      bigint not null unique default (random() * 9007199254740991)::bigint,
    store       text not null,                      -- the place of the folder, as in `scratch.store`. All tasks of the run are in the pool of its label, `@STORE`
    files       int not null,
    size        bigint not null,                    -- bytes of all files
    digest      text not null,                      -- SHA-256 of their names, sizes and digests
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    continued_at timestamptz not null default clock_timestamp(),
    run_id      bigint unique,                      -- null: its run is not made yet
    removed_at  timestamptz                         -- its run was deleted, and the folder is being removed, or is gone
);
create unique index upload_open on upload (archive_id, sender_id) where run_id is null;
create index upload_store on upload (store) where removed_at is null;
-- A transaction that begins an upload locks the row of its store, so that two archives do not both
-- take the last room there.
create table upload_turn (
    store       text primary key
);
create table attachment (
    upload_id   bigint not null references upload on delete cascade,
    position    int not null,                       -- from 0
    name        text not null,
    size        bigint not null,                    -- bytes
    digest      text not null,                      -- SHA-256, given by its sender
    verified_at timestamptz,                        -- when the whole file was there, and had this digest
    primary key (upload_id, position)
);

-- The reports of runs (design 5.32; decision 18). The report that a run makes by itself has no row
-- until a task of the run is about to change: until then, the tasks hold its contents.
create table report (
    run_id      bigint not null,
    number      int not null,                       -- 1, 2, … among those of its run
    made_at     timestamptz not null default clock_timestamp(),
    made_by     text,                               -- null: the run made it by itself when it had settled
    state       text not null,                      -- of the run
    since       int,                                -- the report with which this one is compared; null: none
    changes     int not null,                       -- the number of tasks that have changed since that report
    digest      text not null,                      -- of `report_digest`, at the time of the report
    is_given    boolean not null default false,     -- to the command of REPORT
    sent_at     timestamptz,                        -- when the command ended with exit code 0
    tasks       jsonb not null,                     -- the outcome of each task; messages and outputs stay with the attempts that are named here
    primary key (run_id, number)
);
create unique index report_by_itself on report (run_id) where made_by is null;

-- Purged runs (design 5.27): no other run gets their places, and an answer about them says who
-- purged them.
create table purged_run (
    branch_id   bigint not null,
    number      bigint not null,
    run         int not null,
    id          bigint not null unique,             -- its id in `run`
    deed_id     bigint not null,
    primary key (branch_id, number, run)
);

create sequence task_id;
create table task (
    id          bigint primary key default nextval('task_id'),
    run_id      bigint not null,                    -- of `run`; unchecked, as are all ids here: each second change of a row would check it again
    archive_id  bigint not null,
    branch_id   bigint not null,
    number      bigint not null,
    run         int not null,
    definition_id bigint,
    unmet       int not null,
    position    int not null,                       -- in the files; COMMIT first, REPORT last
    attempts    int not null default 0,             -- greater than 0: the task has started
    failures    int not null default 0,             -- since a person last retried it, like the next two
    deferrals   int not null default 0,
    losses      int not null default 0,
    state       task_state not null,
    kind        task_kind not null,                 -- commit: COMMIT; report: REPORT; gate: of PREV:*, made by arkqueue; ordinary: from a workflow file
    program     boolean not null,                   -- it has a command or script; a task without one passes
    cancels     boolean not null default false,
    exclusive   boolean not null default false,
    fired       boolean not null default false,
    waived      boolean not null default false,
    as_completed boolean not null default false,
    -- The columns by which claims find a task, written when the task becomes ready: the kind of
    -- task manager and the labels that it needs (`container gpu,tex`), and its place among the
    -- ready tasks of its archive.
    pool        text,
    priority    int not null default 50,            -- lower numbers first
    prioritized boolean not null default false,     -- a person set its priority, which no task of its run changes
    entry_id    bigint,                             -- of `revision`: grows on each branch, and compares across branches
    attempt_id  bigint,                             -- the newest
    root_id     bigint,                             -- skipped because of it
    -- What a canceled or skipped task with unmet edges blocks in later runs. 0: nothing. 1: tasks that need its completion. 2: also tasks that wait for any end.
    blocks      smallint not null default 0,
    superseded_by bigint,                           -- canceled by it
    -- Its hold: an entry of the audit log (`deed`); 0, its workflow file; or -1 and -2, guards of its
    -- archive. A task that is canceled or skipped before a release keeps its hold, so that a retry
    -- does not get around the release.
    hold_id     bigint,
    release_id  bigint,                             -- of `deed`: its newest release
    due_at      timestamptz,
    ready_at    timestamptz,
    settled_at  timestamptz,
    name        text not null,
    item        text not null default '',           -- the key of its item, if its definition has a list
    item_id     bigint,
    stop        text check (stop in ('cancel', 'restart')),
    by          text,                               -- who canceled, skipped, waived or asked to stop
    asks        boolean not null default false,     -- it waits only for its locks: its edges are met, and its `cancels` have fired
    in_line     boolean not null default false,     -- it has rows of `lock_use`
    fault       text,                               -- why it failed without an attempt: a field made no valid name of a lock
    polls       boolean not null default false,     -- its command has ended with 75: from now on its poll runs instead
    deferred_at timestamptz,                        -- when its `deadline` began: the first attempt since a person's last retry ended with 75
    deleted     boolean not null default false,     -- it is of a `deleted_item`
    retries     int not null default 0,             -- by persons (`retry_count`)
    check ((settled_at is null) = (state in ('waiting', 'held', 'ready', 'running', 'deferred')))
) with (fillfactor = 85);
create unique index task_key on task (branch_id, name, item, number, run);
create index task_run on task (run_id);
-- For pages of the items of long lists. Other queries for items say `item <> ''`, so that no plan
-- from before there were items walks through this index.
create index task_items on task (run_id, position, id) where item_id is not null;
-- Finds items by the beginning of their keys, whatever the collation of the database.
create index task_item_key on task (branch_id, name, item collate "C", number, run) where item_id is not null;
create index task_ready on task (pool, archive_id, priority, entry_id, run, position, id) where state = 'ready';
create index task_due on task (due_at) where state = 'deferred';
create index task_held on task (archive_id, run_id) where state = 'held';
create index task_failed on task (archive_id, run_id) where state = 'failed';
create index task_rejected on task (archive_id, run_id) where state = 'rejected';
-- Tells unhandled failures from those that later revisions have repaired, without reading each task.
create index task_bad on task (archive_id, branch_id, name, item, number, run) include (run_id, id) where state in ('failed', 'rejected') and not waived;
-- A query for open tasks says `settled_at is null`. The guards of moves say `state`, so that no
-- statistics, taken while no task was open, can lead a statement with ids through all open tasks.
create index task_open on task (branch_id, name, item, number) where settled_at is null;
create index task_canceling on task (branch_id, number) where fired;
create index task_commit on task (branch_id, number) where kind = 'commit' and settled_at is null;
create index task_exclusive on task (branch_id) where exclusive and settled_at is null;
create index task_blocking on task (run_id) where blocks > 0;
create index task_root on task (root_id) where root_id is not null;

-- The tombstones of items that a person deleted (design 5.27). Their tasks are marked `deleted`,
-- and count nowhere.
create table deleted_item (
    run_id      bigint not null,
    item        text not null,
    deleted_at  timestamptz not null default clock_timestamp(),
    deleted_by  text not null,
    tasks       bigint[] not null,                  -- the tasks that the deletion canceled or waived
    primary key (run_id, item)
);

-- Remaining tasks because of which a task of a later, purged run had started, or had let others of
-- further runs start (design 5.19): the place and name of that purged task.
create table purged_start (
    task_id     bigint primary key,
    number      bigint not null,
    run         int not null,
    name        text not null,
    item        text not null
);

-- Tasks of purged runs whose attempts and logs are still to be deleted.
create table purged_task (
    id          bigint primary key                  -- its id in `task`
);

-- The archives that claims consider: every archive with a ready task, with the pools of its ready
-- tasks, unless it is withheld. Some have no ready task: claims take tasks and leave these rows
-- alone, and the queue manager removes the left-over rows (`withdraw`).
create table ready_archive (
    archive_id  bigint primary key,
    pools       text[] not null,
    tier        int not null default 5,             -- of the archive, like the next one
    limited     boolean not null default false      -- a claim takes a row of `slot` with each of its tasks
);
create index ready_archive_turn on ready_archive (tier, archive_id);
create index ready_archive_special on ready_archive (archive_id) where limited or tier <> 5;  -- what `claim` leaves to `claim_in_tiers`

-- As many rows as the `max_running` of an archive: each names the attempt that occupies it. So
-- nothing else counts occupancy.
create table slot (
    archive_id  bigint not null,
    number      int not null,
    attempt_id  bigint unique,                      -- null: it is free
    closed      boolean not null default false,     -- surplus, since the limit was lowered
    primary key (archive_id, number)
);
create index slot_free on slot (archive_id) where attempt_id is null and not closed;

-- The settings of locks: a lock without a row has room for one task.
create table lock (
    scope       bigint not null,                    -- the archive whose lock it is; 0: of the whole installation, `global/…`
    name        text not null,
    capacity    int,                                -- null: unlimited
    paused_at   timestamptz,                        -- the beginning of a person's pause: no task that names the lock starts
    paused_by   text,
    pause_reason text,
    primary key (scope, name)
);

-- The locks of tasks that wait for them, have been granted them, or run. Each row has its task's
-- place in the claim's order, so that an index is the line.
create table lock_use (
    task_id     bigint not null,
    name        text not null,
    archive_id  bigint not null,                    -- of the task
    scope       bigint not null,                    -- of the lock: the archive, or 0
    granted     boolean not null,                   -- the task is ready or runs; else it waits
    priority    int not null,
    entry_id    bigint not null,
    run         int not null,
    position    int not null,
    primary key (task_id, scope, name)
);
create index lock_line on lock_use (scope, name, archive_id, priority, entry_id, run, position, task_id) where not granted;
create index lock_holder on lock_use (scope, name, archive_id) where granted;
-- Locks that left their lines since these were judged; empty after each change of a graph.
create index task_left_lines on task (archive_id)
    where in_line and not (state = 'ready' or state = 'running' or state = 'waiting' and asks);

-- The archive that was granted each lock of the whole installation last: archives after it have
-- their turn. The transaction that grants such a lock locks the row without a name.
create table lock_turn (
    name        text primary key,
    archive_id  bigint not null
);
insert into lock_turn values ('', 0);

-- The completions of each task of a branch: the last in time (BASE, design 3), the one at the
-- highest place, and the one in the highest commit run. The highest place is null if only backfills
-- have completed the task, because these are no newer work.
create table completion (
    branch_id   bigint not null,
    name        text not null,
    item        text not null default '',
    revision_id bigint not null,                    -- the last in time
    run         int not null,
    highest_number bigint,
    highest_run int,
    commit_number bigint,                           -- null: in no commit run. These are run 1 of their revision
    primary key (branch_id, name, item)
) with (fillfactor = 50);                           -- each completion changes its row: there is room for the new one beside it

-- The names that a branch's ordinary tasks ever had, for PREV:*.
create table task_name (
    branch_id   bigint not null references branch,
    name        text not null,
    commits     boolean not null,                   -- a commit run has had it
    primary key (branch_id, name)
);

-- The items of lists, apart from their tasks: the row of a task, which changes often, stays small.
create sequence item_id;
create table item (
    id          bigint primary key default nextval('item_id'),
    run_id      bigint not null,
    body        jsonb not null
);
create index item_run on item (run_id);

-- Folders that stay from task to task of a run, or of an item (`scratch`, design 5.37). A row is
-- stored before its folder is made. The folder's name is the row's id, which is random: after a
-- restore from a backup, no new folder gets the id of an existing one.
create table scratch (
    run_id      bigint not null,
    item        text not null default '',           -- the key of the folder's item; empty: the folder is the run's
    id          bigint not null unique default (random() * 9007199254740991)::bigint,
    store       text not null,                      -- the place of the folder: a host, or a folder that task managers share. Its tasks are in the pool of its label, `@STORE`
    made_at     timestamptz,                        -- when it was made: a folder that is missing after that is lost
    removed_at  timestamptz,
    bytes       bigint,                             -- its size at the last measurement
    primary key (run_id, item)
);
create index scratch_store on scratch (store) where removed_at is null;

-- The labels that a task with a scratch folder needs: those of its definition, and before them that
-- of the store of its folder, if the folder exists. Definitions of runs with attachments name their
-- store among their labels already.
create function labels_in_scratch(own text, scratch text, of_run bigint, key text) returns text language sql stable as $$
    select case when own like ' @%' then own else
        coalesce((select ' @' || s.store || case when own = '' then '' else ',' || ltrim(own) end from scratch s
                  where s.run_id = of_run and s.item = case when scratch = 'item' then key else '' end and s.removed_at is null), own) end
$$;

create table edge (
    target      bigint not null,
    source      bigint not null,
    kind        edge_kind not null,
    settled     boolean not null,                   -- met by any settled source; with `failed`, by one that failed or rejected its input
    crossing    boolean not null,                   -- leads from one run to another
    declared    boolean not null,                   -- stands in a workflow file
    met         boolean not null,
    -- An edge from the product of a task that is not part of the run: only a source that completed,
    -- or was waived as completed, meets it (design 5.18).
    product     boolean not null default false,
    -- Met only by a source that failed or rejected its input (design 5.6); one that ends otherwise skips the target. `settled` is true beside it.
    failed      boolean not null default false,
    primary key (target, source, kind, settled)
) with (fillfactor = 85);
-- Not of unmet edges only: so meeting an edge changes no index.
create index edge_source on edge (source);
-- A completion reads this index, too: it is empty for archives without such edges.
create index edge_failed on edge (source) where failed;

create table task_manager (
    process     text primary key,
    host        text not null,
    hostname    text not null,
    slots       int not null,
    fault       text,   -- why it can start no task for now
    engine_fault text,  -- why it can start none in a container
    low_disk    text,   -- the disk with less room than `min_free`, because of which it claims nothing
    account     text,   -- the user of its host that it runs as; null: it is of a version that does not say
    labels      text[] not null default '{}',  -- the labels for `runs_on`
    started_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    stopped_at  timestamptz,
    store       text,   -- the `scratch.store` of its folders; null: its version has none
    scratch_limit bigint -- the bytes that these may take; 0: any number
);
create index task_manager_store on task_manager (store);

-- The hosts whose task managers claim nothing until a person undrains them. A host, named by the id
-- of its home folder, outlives its task managers.
create table drain (
    host        text primary key,
    drained_at  timestamptz not null default clock_timestamp(),
    drained_by  text not null,
    reason      text not null
);

-- How many tasks were ready and how many ran, once a minute for a day.
create table queue_depth (
    at          timestamptz primary key,            -- the minute
    ready       int not null,
    running     int not null
);

-- The id of this installation; no row until the first request. Containers carry it, so that several
-- installations can share an engine.
create table installation (
    single      boolean primary key default true check (single),
    id          uuid not null default gen_random_uuid()
);

create sequence attempt_id;
create table attempt (
    id          bigint primary key default nextval('attempt_id'),
    task_id     bigint not null,
    kind        attempt_kind not null default 'run',
    number      int not null,                       -- among those of its task
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
    outlives    interval,                           -- the attempt is in a container: how long after its lease it stays reserved for its host
    image       text,                               -- of its container, by digest
    log_bytes   bigint not null default 0,          -- bytes of the task's output, of which `log_chunk` keeps head and tail
    log_stdout  bigint not null default 0,          -- how many of these bytes are on standard output: an adopting task manager skips as many
    log_stderr  bigint not null default 0,
    log_removal_id bigint,                          -- of `deed`: the removal of its log
    outputs_removal_id bigint,                      -- of `deed`: the removal of its outputs
    followed_until timestamptz,                     -- until when its writer wakes followers of the log, unless they ask again
    processor_seconds float8,                       -- of user and system; null: not known, as for lost attempts
    peak_memory_bytes bigint,                       -- of the largest process of its tree, or of its whole container
    usage_sampled boolean,                          -- the two figures were read while it ran, and are lower bounds
    unique (task_id, kind, number),
    check ((ended_at is null) = ("end" is null))
) with (fillfactor = 85);
-- Like `task_open`: a statement that knows the attempt's id tests its "end", not `ended_at`.
create unique index attempt_live on attempt (task_id) where ended_at is null;

create table log_chunk (
    attempt_id  bigint not null,
    position    bigint not null,                    -- of the first byte, in the order in which the bytes were read
    stream      text not null check (stream in ('stdout', 'stderr', 'note')),
    at          timestamptz not null,
    data        bytea not null,
    lines       integer,                            -- line ends in `data`; null: the version that wrote it did not count them
    primary key (attempt_id, position)
);
-- PostgreSQL takes no samples of logs: pg_statistic would keep them after a removal.
alter table attempt alter column message set statistics 0, alter column outputs set statistics 0;
alter table log_chunk alter column data set statistics 0;

-- A set of tasks can be longer than an index entry.
create function key_of(names text[]) returns text language sql immutable as $$ select md5(array_to_string(names, ' ')) $$;

create table schedule (
    id          bigint generated always as identity primary key,
    branch_id   bigint not null references branch,
    cron        text not null,
    zone        text not null,
    tasks       text[] not null,                    -- sorted names
    next_at     timestamptz not null,
    run_id      bigint                              -- its last run
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
    archives    text[],                             -- null: every one
    created_at  timestamptz not null default now(),
    revoked_at  timestamptz,
    authors     text[] not null default '{}'        -- the persons for whom it stands, written as authors of revisions
);

-- Signed-in browsers, and the codes of links that sign a browser in once. Only hashes of both are
-- stored, as of tokens.
create table sign_in (
    hash        bytea primary key,
    token_id    bigint references token,            -- the token whose rights the browser has, and with which the sign-in ends; null: a person signed in with a provider
    once        boolean not null,                   -- the code of a link: the first use deletes it
    expires_at  timestamptz not null,
    issuer      text,                               -- the provider; at each request, the configuration gives the groups their rights
    subject     text,                               -- the provider's id for the person
    person      text,                               -- the name of the person
    groups      text[],                             -- the person's groups that the configuration named at the sign-in
    authors     text[],                             -- the authors of revisions that the provider says the person is
    begun_at    timestamptz default clock_timestamp(), -- null: made before this was recorded
    browser     text not null default '',           -- the name that the browser gives itself (User-Agent); empty: none, or made before this was recorded
    sid         text,                               -- the person's session at the provider, which a logout there names; null: unknown, or made before this was recorded
    constraint sign_in_whose check (num_nulls(issuer, subject, person, groups, authors) = case when token_id is null then 0 else 5 end)
);
-- Answers of a provider that were used to sign in: none works twice. Only hashes are stored.
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

-- Runs, of archives with receivers, that have moved since they were judged; run 0 is the archive
-- itself. Rows are only added and deleted, so no change of a graph waits for a judgement.
create table to_judge (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null,
    run_id      bigint not null
);
-- The last notification about each run, or about an archive (run 0), for any receiver.
create table told (
    archive_id  bigint not null,
    run_id      bigint not null,
    occasion    text,                               -- the last one; null: it is over
    digest      text not null,                      -- a digest that differs for the next one of its kind
    is_failed   boolean not null,                   -- a failure was told, and the run has not completed since
    primary key (archive_id, run_id)
);
-- The outbox: one row for each notification and receiver.
create table delivery (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    run_id      bigint not null,                    -- of `run`; 0: it is about the archive
    occasion    text not null check (occasion in ('failed', 'fixed', 'held', 'completed', 'stopped')),
    receiver    text not null,                      -- an address of mail, or the URL of a webhook
    tasks       bigint[] not null default '{}',     -- of `task`: the first of those that it tells of
    attempts    bigint[] not null default '{}',     -- of `attempt`: theirs; null: there is none
    count       int not null default 0,             -- the number of tasks that it tells of
    what        text not null default '',           -- why the archive was stopped
    made_at     timestamptz not null default clock_timestamp(),
    state       text not null default 'waiting' check (state in ('waiting', 'sent', 'failed', 'dropped')),
    tries       int not null default 0,
    due_at      timestamptz not null default clock_timestamp(),
    until       timestamptz not null,               -- after a try that failed later than this, nothing more is tried
    sending_until timestamptz,                      -- a sender has it until then; after that, another sends it again
    is_silent   boolean not null default false,     -- the receiver did not answer the last try: its other deliveries wait for the next one
    fault       text not null default '',           -- the error of the last try, or why the delivery was dropped
    ended_at    timestamptz,
    carried_by  bigint references delivery on delete set null   -- the delivery that tells of it, too: one mail for many
);
create index delivery_waiting on delivery (receiver, archive_id, run_id, id) where state = 'waiting';
create index delivery_failed on delivery (ended_at) where state = 'failed';
create index delivery_archive on delivery (archive_id, id);
create index delivery_run on delivery (run_id);
create index delivery_ended on delivery (ended_at) where ended_at is not null;
create index delivery_carried on delivery (carried_by) where carried_by is not null;
-- Two rows: a judgement locks the first until its transaction ends, and a choice of deliveries the
-- second.
create table outbox_turn (
    work        int primary key
);
insert into outbox_turn values (1), (2);

-- The text in place of a removed log or output.
create function removed(what text, entry deed) returns text language sql stable as $$
    select 'The ' || what || ' removed on ' || to_char(entry.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC by ' || entry.by || ', because ' || entry.note
    where entry.id is not null
$$;

-- One row. Leases lapse only after the database has been heard for one full lease without a gap.
create table heartbeat (
    id          int primary key default 1 check (id = 1),
    beat_at     timestamptz not null default clock_timestamp(),
    steady_since timestamptz not null default clock_timestamp()
);
insert into heartbeat default values;

-- A digest of the states of a run's tasks: which have settled, when, and whether they were waived.
-- If it differs from the digest of a report, the run has changed since.
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

-- What a canceled or skipped task blocks in later runs because of one of its unmet edges (decision
-- 0001, point 18). `has_root`: another task caused its being skipped. The other arguments are facts
-- of the source; a completed source is about to meet the edge.
create function blocks_behind(
    settled boolean, crossing boolean, has_root boolean, state task_state, waived boolean, blocks smallint, has_begun boolean) returns smallint
    language sql immutable as
$$ select case when found = 1 and (settled or not crossing and not has_root) then 0 else found end::smallint
   from (select case when state in ('canceled', 'skipped') then blocks
                     when state in ('failed', 'rejected') then (not waived)::int
                     when state <> 'completed' and not crossing and has_begun then 1
                     else 2 end) s(found) $$;

-- The victims of rows of `superseding` that no step has reached yet: they do not start any more. The
-- parts `supersedes` and `named` of graph.sql state the same rule. The view leads from a task to the
-- rows, so ask it for tasks by their ids.
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

-- True if a task is one of these victims. A function, because statements that nearly never ask this
-- would otherwise prepare the view at each call.
create function is_superseded(task bigint) returns boolean language plpgsql stable as $$
begin
    return exists (select from being_superseded b where b.id = task);
end $$;
