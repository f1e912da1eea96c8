-- Notifications: who is told of what becomes of an archive's runs, and what was sent to whom.

alter table archive add column notifies boolean not null generated always as (coalesce(settings->'notify' <> '{}', false)) stored;
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
    ended_at    timestamptz
);
create index delivery_waiting on delivery (receiver, archive_id, run_id, id) where state = 'waiting';
create index delivery_failed on delivery (ended_at) where state = 'failed';
create index delivery_archive on delivery (archive_id, id);
create index delivery_run on delivery (run_id);
create index delivery_ended on delivery (ended_at) where ended_at is not null;
