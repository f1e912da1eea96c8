-- Files that are handed in beside a payload (design 5.31).

create table upload (
    id          bigint generated always as identity primary key,
    archive_id  bigint not null references archive,
    sender_id   text not null,
    folder      bigint not null unique default (random() * 9007199254740991)::bigint,
    store       text not null,
    files       int not null,
    size        bigint not null,
    digest      text not null,
    by          text not null,
    made_at     timestamptz not null default clock_timestamp(),
    continued_at timestamptz not null default clock_timestamp(),
    run_id      bigint unique,
    removed_at  timestamptz
);
create unique index upload_open on upload (archive_id, sender_id) where run_id is null;
create index upload_store on upload (store) where removed_at is null;
create table attachment (
    upload_id   bigint not null references upload on delete cascade,
    position    int not null,
    name        text not null,
    size        bigint not null,
    digest      text not null,
    verified_at timestamptz,
    primary key (upload_id, position)
);
alter table submission add column attachments text;

-- Definitions of runs with attachments name their store among their labels already.
create or replace function labels_in_scratch(own text, scratch text, of_run bigint, key text) returns text language sql stable as $$
    select case when own like ' @%' then own else
        coalesce((select ' @' || s.store || case when own = '' then '' else ',' || ltrim(own) end from scratch s
                  where s.run_id = of_run and s.item = case when scratch = 'item' then key else '' end and s.removed_at is null), own) end
$$;
