-- Holds (design 5.21, 5.22): what a person, or arkqueue itself, wants released before it starts.

alter table archive add column hold_id bigint;
alter table task add column hold_id bigint, add column release_id bigint;
create index task_held on task (archive_id, run_id) where state = 'held';
