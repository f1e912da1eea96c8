-- A task's key inside its run is its name and item; the JSON of items has a table of its own.
create sequence item_id;
create table item (
    id          bigint primary key default nextval('item_id'),
    run_id      bigint not null,
    body        jsonb not null
);
create index item_run on item (run_id);

alter table task add column item_id bigint;
drop index task_key;
create unique index task_key on task (branch_id, name, item, number, run);
