-- Tiers of archives, and how many attempts of an archive run at once (design 5.24, 5.26).

alter table archive
    add column tier int not null generated always as (coalesce((settings->>'tier')::int, 5)) stored,
    add column max_running int generated always as ((settings->>'max_running')::int) stored;

alter table ready_archive add column tier int not null default 5, add column limited boolean not null default false;
create index ready_archive_turn on ready_archive (tier, archive_id);

create table slot (
    archive_id  bigint not null,
    number      int not null,
    attempt_id  bigint unique,
    closed      boolean not null default false,
    primary key (archive_id, number)
);
create index slot_free on slot (archive_id) where attempt_id is null and not closed;
