-- A run of many tasks is purged in several transactions. From the first one on, its row is gone and nobody sees its tasks: these runs are named here.
create table purging (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    begun_at    timestamptz not null default clock_timestamp(),
    has_starts  boolean not null default false
);
alter table archive add column purges boolean not null default false;
