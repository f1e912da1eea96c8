-- Reports of runs (design 5.4, 5.32). A run that settled before this has its first one when somebody asks for it, or changes something of the run.

create table report (
    run_id      bigint not null,
    number      int not null,                       -- 1, 2, … among those of its run
    made_at     timestamptz not null default clock_timestamp(),
    made_by     text,                               -- null: the run had settled, and made it by itself
    state       text not null,                      -- of the run
    since       int,                                -- the report that its changes are told against; null: there was none
    changes     int not null,                       -- how many tasks have changed since that one
    digest      text not null,                      -- of `report_digest`, as it was then
    tasks       jsonb not null,                     -- what had become of each task; messages and outputs stay with the attempts that are named here
    primary key (run_id, number)
);
create unique index report_by_itself on report (run_id) where made_by is null;

-- A digest of what a run's tasks have come to: which have settled, when, and whether they were waived. A run has changed since a report when it is another one now.
create function report_digest(of_run bigint) returns text language sql stable as $$
    select md5(coalesce(string_agg(concat_ws(':', id, (extract(epoch from settled_at) * 1000000)::bigint, waived, as_completed), ',' order by id), ''))
    from task where run_id = of_run and kind = 'ordinary' and settled_at is not null
$$;
