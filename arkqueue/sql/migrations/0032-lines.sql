-- Lines of locks (design 5.25): a change of a graph judges the lines that it touches, along an index in their order, and archives take turns at locks of the
-- whole installation.

alter table task add column in_line boolean not null default false;
alter table lock_use add column scope bigint, add column granted boolean, add column priority int, add column entry_id bigint, add column run int,
    add column position int;
update lock_use u set scope = u.archive_id, granted = t.state in ('ready', 'running'), priority = t.priority, entry_id = t.entry_id, run = t.run,
    position = t.position
from task t where t.id = u.task_id;
delete from lock_use where scope is null;
update task set in_line = true where id in (select task_id from lock_use);
alter table lock_use alter column scope set not null, alter column granted set not null, alter column priority set not null,
    alter column entry_id set not null, alter column run set not null, alter column position set not null,
    drop constraint lock_use_pkey, add primary key (task_id, scope, name);
drop index lock_use_archive;
create index lock_line on lock_use (scope, name, archive_id, priority, entry_id, run, position, task_id) where not granted;
create index lock_holder on lock_use (scope, name, archive_id) where granted;
create index task_left_lines on task (archive_id)
    where in_line and not (state = 'ready' or state = 'running' or state = 'waiting' and asks);

-- Made anew, as the name of a constraint would keep the column's old name.
create temporary table lock_before on commit drop as select * from lock;
drop table lock;
create table lock (
    scope       bigint not null,
    name        text not null,
    capacity    int,
    paused_at   timestamptz,
    paused_by   text,
    pause_reason text,
    primary key (scope, name)
);
insert into lock select * from lock_before;

create table lock_turn (
    name        text primary key,
    archive_id  bigint not null
);
insert into lock_turn values ('', 0);
