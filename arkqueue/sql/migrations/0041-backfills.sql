-- Backfills: runs of old revisions with the definitions of a newer one. What they complete raises no highest place (design 5.19), so that a task may have completed and have none.

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
    unique (archive_id, number)
);
create index backfill_open on backfill (id) where next is not null;

alter table run add column backfill_id bigint;
create index run_backfill on run (backfill_id, id) where backfill_id is not null;

alter table completion alter column highest_number drop not null, alter column highest_run drop not null;
