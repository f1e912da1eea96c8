-- Pauses: of an archive, of the installation, of a task manager's host (design 5.23).

alter table archive add column paused_at timestamptz, add column paused_by text, add column pause_reason text,
    add column paused_with_all boolean not null default false;
alter table archive add column is_paused boolean not null generated always as (paused_at is not null or paused_with_all) stored,
    add column withheld boolean not null generated always as (stopped is not null or paused_at is not null or paused_with_all) stored;

create table pause (
    id          int primary key default 1 check (id = 1),
    paused_at   timestamptz,
    paused_by   text,
    reason      text
);
insert into pause default values;

create table drain (
    host        text primary key,
    drained_at  timestamptz not null default clock_timestamp(),
    drained_by  text not null,
    reason      text not null
);
