-- Submissions: what is handed in, and the ids by which its senders know it.

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
    made_at     timestamptz not null default clock_timestamp()
);
create unique index submission_sender on submission (archive_id, sender_id) where sender_id is not null;
