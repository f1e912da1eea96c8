-- The page of a run with a long list finds who held or released its tasks without reading all of them.
create index task_deeds on task (run_id) where hold_id is not null or release_id is not null;
