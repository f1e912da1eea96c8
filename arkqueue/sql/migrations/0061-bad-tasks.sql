-- What needs a person is told from what later revisions have made good without a look at each failed task.
create index task_bad on task (archive_id, branch_id, name, item, number, run) include (run_id, id) where state in ('failed', 'rejected') and not waived;
