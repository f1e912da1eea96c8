-- Lines of a log keep their numbers where the log's middle was left out.
alter table log_chunk add column before bigint;
