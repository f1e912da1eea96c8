-- Locks (design 5.25): names with capacities, which running tasks occupy.

alter table definition add column locks boolean not null generated always as (body ? 'lock') stored;
alter table archive add column uses_locks boolean not null default false;
alter table task add column asks boolean not null default false;

create table lock (
    archive_id  bigint not null,
    name        text not null,
    capacity    int,
    paused_at   timestamptz,
    paused_by   text,
    pause_reason text,
    primary key (archive_id, name)
);
create table lock_use (
    task_id     bigint not null,
    name        text not null,
    archive_id  bigint not null,
    primary key (task_id, name)
);
create index lock_use_archive on lock_use (archive_id, name);
