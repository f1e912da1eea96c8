-- A task manager says which user of its host it runs as, so that an archive's process user that none of them can become is refused when it is set.
alter table task_manager add column account text;
