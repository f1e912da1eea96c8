-- `status` finds the runs that a `retry --from` ran again without reading the whole audit log.
create index deed_retry_from on deed (run_id) where run_id is not null and task_id is null and verb = 'retry' and note ~ '(^| )--from ';
