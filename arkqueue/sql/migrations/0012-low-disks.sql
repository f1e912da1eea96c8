-- A task manager says which of its disks has less room than `min_free`, so that it claims nothing.
alter table task_manager add column low_disk text;
