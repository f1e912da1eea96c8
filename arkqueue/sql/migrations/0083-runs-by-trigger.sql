-- A list of the runs with a rare trigger does not read the others.
create index run_trigger on run (archive_id, trigger, id);
