-- What `retry ARCHIVE --failed` looks for.
create index task_failed on task (archive_id, run_id) where state = 'failed';
