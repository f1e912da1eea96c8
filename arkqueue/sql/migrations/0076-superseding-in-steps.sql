-- Tasks with `cancels` that supersede more tasks than one transaction cancels: the tasks that they name are canceled in steps.
create table superseding (
    task_id     bigint,
    name        text,
    here        boolean,
    unstarted   boolean not null,
    archive_id  bigint not null references archive,
    branch_id   bigint not null,
    run_id      bigint not null,
    number      bigint not null,
    run         int not null,
    item        text not null,
    primary key (task_id, name, here)
);
create index superseding_name on superseding (branch_id, name, item);
create index superseding_run on superseding (run_id);
create view being_superseded as
select u.id, f.task_id as canceler, f.number, f.run
from task u
cross join lateral (
    select * from superseding f where f.branch_id = u.branch_id and f.name = u.name and f.item = any(array[u.item, '']) and u.item <> ''
    union all
    select * from superseding f where f.branch_id = u.branch_id and f.name = u.name and u.item = ''
    offset 0) f
where u.settled_at is null and u.stop is distinct from 'cancel' and not (f.unstarted and u.attempts > 0)
  and case when f.here then u.run_id = f.run_id and u.id <> f.task_id
           else (u.number, u.run) < (f.number, f.run)
                and (select v.trigger <> 'submission' or u.item = f.item and (select g.trigger = 'submission' from run g where g.id = f.run_id) from run v where v.id = u.run_id) end;
create function is_superseded(task bigint) returns boolean language plpgsql stable as $$
begin
    return exists (select from being_superseded b where b.id = task);
end $$;
