-- What cancels looks for open tasks by their keys, too.
drop index task_open;
create index task_open on task (branch_id, name, item, number) where settled_at is null;
