-- The end of a task writes to `completion` at which revision it completed, which it takes from the task's place. A task that ran when places came has none yet.
update task t set entry_id = run.revision_id from run where run.id = t.run_id and t.settled_at is null and t.state = 'running' and t.entry_id is null;
