-- Lists in pieces, which runs have which, and large runs that are planned in portions (design 5.30).
create table list_part (
    digest      text not null references list on delete cascade,
    first       int not null,
    items       jsonb not null,
    primary key (digest, first)
);
insert into list_part (digest, first, items) select digest, 0, items from list;
alter table list drop column items;

create table list_use (
    run_id      bigint not null,
    digest      text not null references list,
    primary key (run_id, digest)
);
create index list_use_list on list_use (digest);
insert into list_use (run_id, digest)
select distinct run.id, l.digest
from run join revision r on r.id = run.revision_id left join backfill f on f.id = run.backfill_id
join revision d on d.id = coalesce(f.revision_id, r.id) join workflow w on w.id = d.workflow_id
cross join lateral jsonb_array_elements(w.tasks) t(task) join list l on l.digest = t.task->'foreach'->>'items';
delete from list l where not exists (select from list_use u where u.digest = l.digest);

create table planning (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    branch_id   bigint not null references branch,
    names       text[] not null,
    without     text[] not null,
    hold_id     bigint,
    behind      int not null,
    next        int not null default 0,
    items       int not null,
    lists       jsonb not null default '{}',
    begun_at    timestamptz not null default clock_timestamp(),
    stored_at   timestamptz not null default clock_timestamp()
);
create index planning_branch on planning (branch_id);
