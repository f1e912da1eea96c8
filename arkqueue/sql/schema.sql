-- arkqueue's tables, in the order in which a commit passes through them.
--
--   archive ─< branch ─< revision ─< run ─< task ─< attempt ─< log_chunk
--                                      task >─edge─< task
--
-- A notice puts an archive into `look`. Whoever reads the repository appends to the ledger (`revision`) and stores the graph of the
-- commit run (`run`, `task`, `edge`) in the same transaction, so that no revision is ever known and not planned. A task row is the one row that
-- moves state; an attempt only ever gets an end.
--
-- Lock order of every change of the graph: archive, branch, task, attempt; each ascending by id; lock in one statement, act in the next.
-- All edges lie inside one branch, so that the archive's row (FOR NO KEY UPDATE) makes changes of its graph take turns. Two things happen beside
-- it and take no other lock: a claim (ready → running, SKIP LOCKED) and a renewal (attempt rows alone).

create type task_state as enum
    ('waiting', 'held', 'ready', 'running', 'deferred', 'completed', 'failed', 'rejected', 'canceled', 'skipped');
create type task_kind as enum ('commit', 'report', 'gate', 'ordinary');
create type attempt_kind as enum ('run', 'poll');
create type edge_kind as enum ('depends', 'cancels', 'exclusive', 'stopping');

create table archive (
    id          bigint generated always as identity primary key,
    name        text not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]*(~[0-9]+)?$'),  -- papers~1: it was removed, and papers is another one now
    kind        text not null check (kind in ('subversion', 'git')),
    url         text not null,                      -- as a person gave it
    repository  text not null,                      -- the repository's root, normalised: what a notice names
    uuid        text not null default '',
    folder      text not null default '',           -- Subversion: the watched folder inside the repository
    settings    jsonb not null default '{}',        -- model of config.ArchiveSettings
    created_at  timestamptz not null default now(),
    removed_at  timestamptz,
    stopped     text,                               -- why it is not read, and nothing of it starts, until a person takes it up again
    hold_id     bigint,                             -- of `deed`: it is on hold, and what is planned is held
    trouble     text,                               -- why it could not be read the last time
    trouble_since timestamptz,
    read_at     timestamptz,                        -- when it was last read to its end
    next_read_at timestamptz not null default now(),
    -- The pool of its tasks that name no image.
    pool        text not null generated always as (
        case when settings->>'image' is not null or (settings->>'process')::boolean is not true then 'container' else 'process' end) stored,
    paused_at   timestamptz,                        -- since when a person's pause of this archive lasts
    paused_by   text,
    pause_reason text,
    paused_with_all boolean not null default false, -- the installation is paused; `pause` says by whom
    is_paused   boolean not null generated always as (paused_at is not null or paused_with_all) stored,
    -- Nothing of it is claimed: it takes no turns.
    withheld    boolean not null generated always as (stopped is not null or paused_at is not null or paused_with_all) stored,
    tier        int not null generated always as (coalesce((settings->>'tier')::int, 5)) stored,  -- archives of a lower one go first
    max_running int generated always as ((settings->>'max_running')::int) stored,  -- of its attempts, at once; null: as many as there is room for
    uses_locks  boolean not null default false,     -- a task of it has asked for a lock
    uses_lists  boolean not null default false,     -- a task of it has had a list (`foreach`)
    -- Somebody is told of what becomes of its runs.
    notifies    boolean not null generated always as (coalesce(settings->'notify' <> '{}', false)) stored,
    corrections int not null default 0              -- how often a revision was corrected (`archive accept`): files from before may show what it was
);
create unique index archive_name on archive (name) where removed_at is null;

-- One row. Whether the whole installation is paused; each archive repeats that (`paused_with_all`), so that what holds for an archive stands in its row.
create table pause (
    id          int primary key default 1 check (id = 1),
    paused_at   timestamptz,
    paused_by   text,
    reason      text
);
insert into pause default values;

-- One row while a notice waits to be looked at; `asked` is the newest notice's number, never given twice, and tells whether another came in between.
create sequence notice;
create table look (
    archive_id  bigint primary key references archive,
    asked       bigint not null default nextval('notice'),
    looked      bigint not null default 0,          -- of `asked`, when the repository was last read in vain
    asked_at    timestamptz not null default now(),
    revision    text                                -- the revision the notice named, where it named one
);

create table branch (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    name        text not null,
    main        boolean not null default false,
    head_id     bigint,                             -- the last revision of the ledger; compared and set by `append`
    deleted_at  timestamptz,
    -- An import is under way (design 5.22): up to the revision of this id, what is appended is held because of this entry of `deed`. Without an entry it is not
    -- held, however much it is: the archive was added with `--from`.
    import_id   bigint,
    import_until text,
    accepted_files bytea,                           -- `workflow.files` as they were last accepted, where `workflow_authors` guards them
    unique (archive_id, name)
);

-- Parsed workflow files, by content: archives repeat theirs from revision to revision.
create table workflow (
    id          bigint generated always as identity primary key,
    digest      bytea not null unique,
    files       bytea not null,                     -- the same, whatever is in the lists that they name
    tasks       jsonb not null,
    faults      jsonb not null,
    schema      json                                -- {path, content}: the JSON Schema that payloads of submissions are to fit; as it was written, since its patterns may hold what jsonb cannot
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
    -- What its tasks' pool goes on with: the labels that they want of a task manager (`runs_on`), in their order: ` gpu,tex`. Empty: none.
    labels      text not null generated always as (
        case when body ? 'runs_on' then ' ' || translate((body->'runs_on')::text, '[]" ', '') else '' end) stored,
    locks       boolean not null generated always as (body ? 'lock') stored, -- its tasks ask for locks
    scratch     text generated always as (body->>'scratch') stored  -- its tasks have the folder of their run, or of their item
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
    -- Its workflow files were not accepted when it was appended, and had been changed by none of the archive's `workflow_authors`.
    is_foreign  boolean not null default false,
    -- Of the paths that a Subversion revision changes; null where it was not known. `archive accept` compares it.
    paths_digest text,
    unique (branch_id, number)
);
-- Revisions are found by the beginning of their ids, in whatever order the collation of the database puts texts.
create index revision_name on revision (branch_id, name collate "C");
-- Of those whose dates were to come when they were read.
create index revision_early on revision (branch_id, number) where date > read_at;
alter table branch add foreign key (head_id) references revision;

-- What a revision is found by: the words of its author and message, without punctuation. Of a long message the beginning counts.
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
    deleted_tasks bigint[],                         -- what its deletion canceled or waived; without `deleted_at`: it is being deleted or undeleted in steps
    -- Of a schedule's run: later fires that made no run of their own, as this one stands for them, and the time of the first.
    left_out    int not null default 0,
    left_out_since timestamptz,
    backfill_id bigint,                             -- it is one of a backfill, and has its definitions
    unique (branch_id, number, run)
);
create unique index run_commit on run (revision_id) where trigger = 'commit';
create index run_archive on run (archive_id, id);
create index run_backfill on run (backfill_id, id) where backfill_id is not null;

-- Which runs have which lists in their workflow files: a list that no run has is purged.
create table list_use (
    run_id      bigint not null,
    digest      text not null references list,
    primary key (run_id, digest)
);
create index list_use_list on list_use (digest);

-- What is left to plan of a large run (design 5.30). It is stored in portions, by whoever gets to it; before all of it is stored nothing of it starts, and no later run
-- of its branch is planned. When its COMMIT has settled, what may start is let in, in portions again.
create table planning (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    names       text[] not null,                    -- of its tasks
    without     text[] not null,                    -- names that nothing of it waits for where they are not part of it
    hold_id     bigint,                             -- of `deed`, or as in `task`: what its tasks are held because of
    behind      int not null,                       -- by so much their priority number is higher
    next        int not null default 0,             -- the items before this place are stored
    items       int not null,                       -- how many there are
    to_let_in   bigint[],                           -- tasks that wait beside their edges; null: not all of it is stored, or that was not followed up yet
    lists       jsonb not null default '{}',        -- of a submission: the digests of its lists, by what `Foreach.items` calls them
    begun_at    timestamptz not null default clock_timestamp(),
    stored_at   timestamptz not null default clock_timestamp()
);
create index planning_branch on planning (branch_id);
create index planning_open on planning (branch_id) where next < items;

-- Runs of which what has not started is being canceled in steps, as their branch, revision or archive is gone (design 5.16). A row goes when all of its run is canceled.
create table ending (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    deed_id     bigint not null,                    -- of `deed`: what could start is held because of it; its `by` says what became of the run
    is_aside    boolean not null default false,     -- all that could start is held; until then claims leave out what is of the entry
    entry_id    bigint not null,                    -- of the ledger: the run's revision
    until       bigint not null                     -- the last task that the run had when this began
);

-- Tasks that came back to work while the end of their run was under way: a person's retry is newer, so the end leaves them alone.
create table spared (
    run_id      bigint,
    task_id     bigint,
    primary key (run_id, task_id)
);

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
    next        bigint,                             -- from here on its runs are still to be planned; null: no more are
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    hold_id     bigint,                             -- of `deed`: what is planned of it is held
    priority    int,                                -- that a person gave all of it
    fault       text,                               -- why it was not planned to its end
    waits       text,                               -- why its next runs cannot be planned now: its lists cannot be read, and what helps; null: nothing is in the way
    waits_since timestamptz,
    unique (archive_id, number)
);
create index backfill_open on backfill (id) where next is not null;

-- What submissions hand in (design 5.31), kept unchanged, in parts. It is stored before the run is planned.
create sequence payload_id;
create table payload_part (
    payload_id  bigint not null,
    position    int not null,                       -- from 0
    data        bytea not null,
    primary key (payload_id, position)
);
-- PostgreSQL takes no samples of what people hand in: pg_statistic would keep them after a purge.
alter table payload_part alter column data set statistics 0;
-- Payloads that belong to no run: they are being stored, nothing came of them, or their run was purged. They are deleted some time after that.
create table payload_left (
    id          bigint primary key,
    since       timestamptz not null default clock_timestamp()
);
-- A submission outlives its run: sent again after a purge, it repeats nothing.
create table submission (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text,                               -- by which its sender knows it; null: by none
    run_id      bigint not null unique,             -- of `run` or, once that was purged, of `purged_run`
    commit_id   bigint,                             -- of `task`: the COMMIT that what comes after its run waits for, as its own waits at no gate
    kind        text not null check (kind in ('json', 'yaml', 'csv', 'lines')),
    size        bigint not null,                    -- bytes
    digest      text not null,                      -- SHA-256 of its payload
    payload_id  bigint not null,
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    attachments text                                -- what `upload.digest` was; null: it has no attachments
);
create unique index submission_sender on submission (archive_id, sender_id) where sender_id is not null;
-- Files that are handed in beside a payload (design 5.31). They come before their run is made, in as many calls as it takes, into a folder that is called by a random number, as
-- scratch folders are. A row goes with its run's purge, or when nobody has continued it for a day; its folder goes after that.
create table upload (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text not null,
    folder      bigint not null unique default (random() * 9007199254740991)::bigint,
    store       text not null,                      -- where the folder is, as `scratch.store` says it. All tasks of the run are in the pool of its label, `@STORE`
    files       int not null,
    size        bigint not null,                    -- bytes of all files
    digest      text not null,                      -- SHA-256 of their names, sizes and digests
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    continued_at timestamptz not null default clock_timestamp(),
    run_id      bigint unique,                      -- null: its run is not made yet
    removed_at  timestamptz                         -- its run was deleted, and the folder goes, or is gone
);
create unique index upload_open on upload (archive_id, sender_id) where run_id is null;
create index upload_store on upload (store) where removed_at is null;
-- Whoever begins an upload locks the row of its store until the upload is stored, so that two archives do not both take the room that is left there.
create table upload_turn (
    store       text primary key
);
create table attachment (
    upload_id   bigint not null references upload on delete cascade,
    position    int not null,                       -- from 0
    name        text not null,
    size        bigint not null,                    -- bytes
    digest      text not null,                      -- SHA-256, which its sender gives
    verified_at timestamptz,                        -- when all of it was there, and had this digest
    primary key (upload_id, position)
);

-- What a run has come to, at some moment (design 5.32; decision 18). The report that a run makes by itself has no row until a task of it is about to change: until
-- then it is what the tasks say.
create table report (
    run_id      bigint not null,
    number      int not null,                       -- 1, 2, … among those of its run
    made_at     timestamptz not null default clock_timestamp(),
    made_by     text,                               -- null: the run had settled, and made it by itself
    state       text not null,                      -- of the run
    since       int,                                -- the report that its changes are told against; null: there was none
    changes     int not null,                       -- how many tasks have changed since that one
    digest      text not null,                      -- of `report_digest`, as it was then
    is_given    boolean not null default false,     -- to the command of REPORT
    sent_at     timestamptz,                        -- when that ended with exit code 0
    tasks       jsonb not null,                     -- what had become of each task; messages and outputs stay with the attempts that are named here
    primary key (run_id, number)
);
create unique index report_by_itself on report (run_id) where made_by is null;

-- Runs that were removed for good (design 5.27): their places are given to no other run, and whoever asks for them is told who did it.
create table purged_run (
    branch_id   bigint not null,
    number      bigint not null,
    run         int not null,
    id          bigint not null unique,             -- that it had in `run`
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
    attempts    int not null default 0,             -- with one, the task has started
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
    -- What a claim goes by, written when the task becomes ready: which kind of task manager it needs, and with which labels (`container gpu,tex`), and its
    -- place among the ready tasks of its archive.
    pool        text,
    priority    int not null default 50,            -- lower numbers first
    prioritized boolean not null default false,     -- a person set its priority, which no task of its run changes
    entry_id    bigint,                             -- of `revision`: grows on each branch, and compares across branches
    attempt_id  bigint,                             -- the newest
    root_id     bigint,                             -- skipped because of it
    -- What a canceled or skipped task with unmet edges blocks in later runs. 0: nothing. 1: tasks that need its completion. 2: also tasks that wait for any end.
    blocks      smallint not null default 0,
    superseded_by bigint,                           -- canceled by it
    -- What wants it released before it starts: an entry of the audit log (`deed`), or 0, its workflow file,
    -- or -1 and -2, guards of its archive. It stays when the task is canceled or skipped
    -- before a release, so that a retry does not get around one.
    hold_id     bigint,
    release_id  bigint,                             -- of `deed`: its newest release
    due_at      timestamptz,
    ready_at    timestamptz,
    settled_at  timestamptz,
    name        text not null,
    item        text not null default '',           -- of a task that a list has for each of its items: the item's key
    item_id     bigint,
    stop        text check (stop in ('cancel', 'restart')),
    by          text,                               -- who canceled, skipped, waived or asked to stop
    asks        boolean not null default false,     -- it waits for nothing but its locks: its edges are met, and its `cancels` have fired
    in_line     boolean not null default false,     -- it has rows of `lock_use`
    fault       text,                               -- why it failed without an attempt: a field in the name of a lock made no name
    polls       boolean not null default false,     -- its command has ended with 75 and is not run again: its poll is, in its place
    deferred_at timestamptz,                        -- when its `deadline` began: an attempt ended with 75 for the first time since a person last retried it
    deleted     boolean not null default false,     -- it is of a `deleted_item`
    retries     int not null default 0,             -- by persons (`retry_count`)
    check ((settled_at is null) = (state in ('waiting', 'held', 'ready', 'running', 'deferred')))
) with (fillfactor = 85);
create unique index task_key on task (branch_id, name, item, number, run);
create index task_run on task (run_id);
-- Pages of the items of long lists are read from it. Who looks for other items says `item <> ''`, so that no plan from before there were items walks through it.
create index task_items on task (run_id, position, id) where item_id is not null;
-- Who searches finds items by the beginning of their keys, in whatever order the collation of the database puts texts.
create index task_item_key on task (branch_id, name, item collate "C", number, run) where item_id is not null;
create index task_ready on task (pool, archive_id, priority, entry_id, run, position, id) where state = 'ready';
create index task_due on task (due_at) where state = 'deferred';
create index task_held on task (archive_id, run_id) where state = 'held';
create index task_failed on task (archive_id, run_id) where state = 'failed';
create index task_rejected on task (archive_id, run_id) where state = 'rejected';
-- What needs a person is told from what later revisions have made good without a look at each failed task.
create index task_bad on task (archive_id, branch_id, name, item, number, run) include (run_id, id) where state in ('failed', 'rejected') and not waived;
-- Whoever looks for what is open says `settled_at is null`. The guards of moves say `state`, so that no statistics, taken while nothing was open,
-- can lead a statement that knows its tasks' ids through all open tasks.
create index task_open on task (branch_id, name, item, number) where settled_at is null;
create index task_canceling on task (branch_id, number) where fired;
create index task_commit on task (branch_id, number) where kind = 'commit' and settled_at is null;
create index task_exclusive on task (branch_id) where exclusive and settled_at is null;
create index task_blocking on task (run_id) where blocks > 0;
create index task_root on task (root_id) where root_id is not null;

-- The tombstones of items that a person deleted (design 5.27). Their tasks say `deleted`, and count nowhere.
create table deleted_item (
    run_id      bigint not null,
    item        text not null,
    deleted_at  timestamptz not null default clock_timestamp(),
    deleted_by  text not null,
    tasks       bigint[] not null,                  -- what the deletion canceled or waived
    primary key (run_id, item)
);

-- Tasks that are left after one of a later run, which was purged, had started because of them, or let others of further runs start (design 5.19): the place and name of that one.
create table purged_start (
    task_id     bigint primary key,
    number      bigint not null,
    run         int not null,
    name        text not null,
    item        text not null
);

-- Tasks of purged runs whose attempts and logs are still to be deleted.
create table purged_task (
    id          bigint primary key                  -- that it had in `task`
);

-- The archives whose turn a claim considers. Every archive with a ready task is here, with the pools of its ready tasks, unless it is withheld. Some are
-- here without a ready task: claims take tasks and leave these rows alone, and the queue manager removes what is left over (`withdraw`).
create table ready_archive (
    archive_id  bigint primary key,
    pools       text[] not null,
    tier        int not null default 5,             -- of the archive, like the next one
    limited     boolean not null default false      -- a claim takes a row of `slot` with each of its tasks
);
create index ready_archive_turn on ready_archive (tier, archive_id);
create index ready_archive_special on ready_archive (archive_id) where limited or tier <> 5;  -- what `claim` leaves to `claim_in_tiers`

-- Of an archive with `max_running` as many rows as that: each names the attempt that has it. So occupancy is never counted aside.
create table slot (
    archive_id  bigint not null,
    number      int not null,
    attempt_id  bigint unique,                      -- null: it is free
    closed      boolean not null default false,     -- one too many, since the limit was lowered
    primary key (archive_id, number)
);
create index slot_free on slot (archive_id) where attempt_id is null and not closed;

-- What people set of locks: a lock without a row has room for one task.
create table lock (
    scope       bigint not null,                    -- the archive whose lock it is; 0: of the whole installation, `global/…`
    name        text not null,
    capacity    int,                                -- null: unlimited
    paused_at   timestamptz,                        -- since when a person's pause lasts: no task that names it starts
    paused_by   text,
    pause_reason text,
    primary key (scope, name)
);

-- The locks of tasks that wait for them, have been granted them, or run. Each row has its task's place in the claim's order, so that an index is the line.
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
-- What has left its lines since they were judged; empty after each change of a graph.
create index task_left_lines on task (archive_id)
    where in_line and not (state = 'ready' or state = 'running' or state = 'waiting' and asks);

-- Which archive was granted a lock of the whole installation the last time: those after it have their turn. The row without a name is locked by whoever
-- grants one.
create table lock_turn (
    name        text primary key,
    archive_id  bigint not null
);
insert into lock_turn values ('', 0);

-- Where each task of a branch completed: last in time (BASE, design 3), at the highest place, and in the highest commit run. The highest place
-- is null where only backfills have completed it: these are no newer work.
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

-- The items of lists, apart from their tasks: a row that moves state stays small.
create sequence item_id;
create table item (
    id          bigint primary key default nextval('item_id'),
    run_id      bigint not null,
    body        jsonb not null
);
create index item_run on item (run_id);

-- Folders that stay from task to task of a run, or of an item (`scratch`, design 5.37). A row is there before its folder. The folder is called by the row's id, which is
-- random: a database that was restored from a backup gives none again that a folder has.
create table scratch (
    run_id      bigint not null,
    item        text not null default '',           -- the key of the item whose folder it is; empty: it is the run's
    id          bigint not null unique default (random() * 9007199254740991)::bigint,
    store       text not null,                      -- where it is: a host, or a folder that task managers share. Their tasks are in the pool of its label, `@STORE`
    made_at     timestamptz,                        -- when it was there for the first time: from then on, a folder that is missing is lost
    removed_at  timestamptz,
    bytes       bigint,                             -- how much room it took when it was measured last
    primary key (run_id, item)
);
create index scratch_store on scratch (store) where removed_at is null;

-- The labels that a task with a scratch folder wants of a task manager: those of its definition, and before them that of the store where its folder is, once there is one.
-- Definitions of runs with attachments name their store among their labels already.
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
    -- Stands for the product of a task that is not part of the run: only a source that completed, or was waived as completed, meets it (design 5.18).
    product     boolean not null default false,
    -- Met only by a source that failed or rejected its input (design 5.6); one that ends otherwise skips the target. `settled` is true beside it.
    failed      boolean not null default false,
    primary key (target, source, kind, settled)
) with (fillfactor = 85);
-- Not of the unmet ones alone: to meet an edge then changes no index.
create index edge_source on edge (source);
-- A completion looks here, too: for those who use no such edge, there is nothing in it.
create index edge_failed on edge (source) where failed;

create table task_manager (
    process     text primary key,
    host        text not null,
    hostname    text not null,
    slots       int not null,
    fault       text,   -- why it can start no task for now
    engine_fault text,  -- why it can start none in a container
    low_disk    text,   -- which of its disks has less room than its `min_free`, so that it claims nothing
    account     text,   -- the user of its host that it runs as; null: it is of a version that does not say
    labels      text[] not null default '{}',  -- what tasks can ask for (`runs_on`)
    started_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    stopped_at  timestamptz,
    store       text,   -- what `scratch.store` says of the folders that it has; null: it is of a version that has none
    scratch_limit bigint -- bytes that these may take; 0: any number
);
create index task_manager_store on task_manager (store);

-- The hosts whose task managers claim nothing until a person takes that back. A host outlives its task managers: it is what a home folder calls itself.
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

-- Which installation this is; no row until somebody asks. Containers carry it, so that several can share an engine.
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
    base        text,                               -- BASE, as it was at the claim
    outlives    interval,                           -- it is in a container: so long after its lease it stays reserved for its host
    image       text,                               -- of its container, by digest
    log_bytes   bigint not null default 0,          -- what the task wrote, of which `log_chunk` keeps head and tail
    log_stdout  bigint not null default 0,          -- how many of these bytes are the task's own: who adopts it skips so many
    log_stderr  bigint not null default 0,
    log_removal_id bigint,                          -- of `deed`: its log was removed for good, and cannot be read
    outputs_removal_id bigint,                      -- of `deed`: its outputs were
    followed_until timestamptz,                     -- until when its writer tells followers of the log that it has grown, unless they ask again
    processor_seconds float8,                       -- of user and system; null: not known, as of attempts that were lost
    peak_memory_bytes bigint,                       -- of the process of its tree that had the most, or of its whole container
    usage_sampled boolean,                          -- these two were read while it ran: it used at least as much
    unique (task_id, kind, number),
    check ((ended_at is null) = ("end" is null))
) with (fillfactor = 85);
-- Like `task_open`: who knows the attempt's id asks for its "end", not for `ended_at`.
create unique index attempt_live on attempt (task_id) where ended_at is null;

create table log_chunk (
    attempt_id  bigint not null,
    position    bigint not null,                    -- of the first byte, in the order in which the bytes were read
    stream      text not null check (stream in ('stdout', 'stderr', 'note')),
    at          timestamptz not null,
    data        bytea not null,
    lines       integer,                            -- line ends in `data`; null: written by a version that did not count them
    primary key (attempt_id, position)
);
-- PostgreSQL takes no samples of what tasks wrote: pg_statistic would keep them after a removal.
alter table attempt alter column message set statistics 0, alter column outputs set statistics 0;
alter table log_chunk alter column data set statistics 0;

-- A set of tasks can be longer than what an index takes.
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
    authors     text[] not null default '{}'        -- the persons that it stands for, as they are written as authors of revisions
);

-- Browsers that are signed in, and the codes of links that sign a browser in once. Of both only hashes are stored, as of tokens.
create table sign_in (
    hash        bytea primary key,
    token_id    bigint references token,            -- whose rights it has; it ends with that token; null: a person's, who signed in with a provider
    once        boolean not null,                   -- the code of a link: its first use takes it away
    expires_at  timestamptz not null,
    issuer      text,                               -- the provider; the rights follow from the groups by the configuration, at each request
    subject     text,                               -- the person, as the provider alone knows them
    person      text,                               -- the person, as people know them
    groups      text[],                             -- of theirs, those that the configuration named when they signed in
    authors     text[],                             -- the authors of revisions that the provider says the person is
    begun_at    timestamptz default clock_timestamp(), -- null: it is from before this was kept
    browser     text not null default '',           -- what it calls itself (User-Agent); empty: nothing, or it is from before this was kept
    sid         text,                               -- the person's session at the provider, which a logout there names; null: the provider does not say, or it is from before this was kept
    constraint sign_in_whose check (num_nulls(issuer, subject, person, groups, authors) = case when token_id is null then 0 else 5 end)
);
-- Answers of a provider that have signed somebody in: none does so twice. Only hashes are stored.
create table used_answer (
    hash        bytea primary key,
    expires_at  timestamptz not null
);

-- What people did, and when.
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

-- Runs of archives that have receivers, where something moved since they were judged; run 0 is the archive itself. Rows are only added and deleted, so that no change of a
-- graph waits for who judges.
create table to_judge (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null,
    run_id      bigint not null
);
-- What was told of a run, or of an archive (run 0), whoever wanted to know it.
create table told (
    archive_id  bigint not null,
    run_id      bigint not null,
    occasion    text,                               -- the last one; null: that is over
    digest      text not null,                      -- what tells it from the next one of its kind
    is_failed   boolean not null,                   -- it was told as failed, and has not completed since
    primary key (archive_id, run_id)
);
-- The outbox: one row for each notification and receiver.
create table delivery (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    run_id      bigint not null,                    -- of `run`; 0: it is about the archive
    occasion    text not null check (occasion in ('failed', 'fixed', 'held', 'completed', 'stopped')),
    receiver    text not null,                      -- an address of mail, or the URL of a webhook
    tasks       bigint[] not null default '{}',     -- of `task`: the first of those that it is about
    attempts    bigint[] not null default '{}',     -- of `attempt`: theirs; null: there is none
    count       int not null default 0,             -- how many tasks it is about
    what        text not null default '',           -- why the archive was stopped
    made_at     timestamptz not null default clock_timestamp(),
    state       text not null default 'waiting' check (state in ('waiting', 'sent', 'failed', 'dropped')),
    tries       int not null default 0,
    due_at      timestamptz not null default clock_timestamp(),
    until       timestamptz not null,               -- after a try that failed later than this, nothing more is tried
    sending_until timestamptz,                      -- somebody sends it, or has died: then others send it again
    is_silent   boolean not null default false,     -- the receiver did not answer the last try: its other deliveries wait for the next one
    fault       text not null default '',           -- what was wrong with the last try, or why it was dropped
    ended_at    timestamptz,
    carried_by  bigint references delivery on delete set null   -- the delivery that tells of it as well: one mail for many
);
create index delivery_waiting on delivery (receiver, archive_id, run_id, id) where state = 'waiting';
create index delivery_failed on delivery (ended_at) where state = 'failed';
create index delivery_archive on delivery (archive_id, id);
create index delivery_run on delivery (run_id);
create index delivery_ended on delivery (ended_at) where ended_at is not null;
create index delivery_carried on delivery (carried_by) where carried_by is not null;
-- Two rows: who judges locks the first until its transaction ends, and who chooses what is sent the second.
create table outbox_turn (
    work        int primary key
);
insert into outbox_turn values (1), (2);

-- What stands in place of what was removed for good.
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

-- A digest of what a run's tasks have come to: which have settled, when, and whether they were waived. A run has changed since a report when it is another one now.
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
