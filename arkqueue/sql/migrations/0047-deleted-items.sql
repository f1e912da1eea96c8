-- Items that a person deleted (design 5.27): their tasks stay, and count nowhere.

alter table task add column deleted boolean not null default false;

create table deleted_item (
    run_id      bigint not null,
    item        text not null,
    deleted_at  timestamptz not null default clock_timestamp(),
    deleted_by  text not null,
    tasks       bigint[] not null,
    primary key (run_id, item)
);

create or replace function report_digest(of_run bigint) returns text language sql stable as $$
    select md5(coalesce(string_agg(concat_ws(':', id, (extract(epoch from settled_at) * 1000000)::bigint, waived, as_completed), ',' order by id), ''))
    from task where run_id = of_run and kind = 'ordinary' and settled_at is not null and not deleted
$$;
