-- Folders that stay from task to task of a run, or of an item (`scratch`, design 5.37).
alter table definition add column scratch text generated always as (body->>'scratch') stored;
alter table task_manager add column store text;
create table scratch (
    run_id      bigint not null,
    item        text not null default '',
    id          bigint not null unique default (random() * 9007199254740991)::bigint,
    store       text not null,
    made_at     timestamptz,
    removed_at  timestamptz,
    primary key (run_id, item)
);
create index scratch_store on scratch (store) where removed_at is null;
create function labels_in_scratch(own text, scratch text, of_run bigint, key text) returns text language sql stable as $$
    select coalesce((select ' @' || s.store || case when own = '' then '' else ',' || ltrim(own) end from scratch s
                     where s.run_id = of_run and s.item = case when scratch = 'item' then key else '' end and s.removed_at is null), own)
$$;
