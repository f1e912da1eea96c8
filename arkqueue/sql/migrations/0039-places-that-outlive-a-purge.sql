-- A purge keeps two facts (design 5.7, 5.19, 5.27): the highest commit run in which each task completed, and which tasks that are left had let a purged
-- task of a later run start.

alter table completion add column commit_number bigint;
update completion c set commit_number = greatest(
    case when c.highest_run = 1 then c.highest_number end,
    (select r.number from revision r where r.id = c.revision_id and c.run = 1),
    (select max(t.number) from task t
     where t.branch_id = c.branch_id and t.name = c.name and t.item = c.item and t.run = 1 and t.state = 'completed'));

create table purged_start (
    task_id     bigint primary key,
    number      bigint not null,
    run         int not null,
    name        text not null,
    item        text not null
);
