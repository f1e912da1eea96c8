-- Ready items of one list are claimed in its order: their ids follow it.
drop index task_ready;
create index task_ready on task (pool, archive_id, priority, entry_id, run, position, id) where state = 'ready';
