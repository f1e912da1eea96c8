-- Whole runs are purged (design 5.27): what stays of them, and what of them is still to be deleted.

create table purged_run (
    branch_id   bigint not null,
    number      bigint not null,
    run         int not null,
    id          bigint not null unique,
    deed_id     bigint not null,
    primary key (branch_id, number, run)
);
create table purged_task (
    id          bigint primary key
);
create index schedule_fire_run on schedule_fire (run_id) where run_id is not null;
