-- Lists of `foreach`, by content: definitions name them by their digests.
create table list (
    digest      text primary key,
    items       jsonb not null
);
alter table archive add column uses_lists boolean not null default false;
