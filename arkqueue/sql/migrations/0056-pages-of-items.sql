-- Pages of the items of long lists are read from it.
create index task_items on task (run_id, position, id) where item_id is not null;
