-- How much room scratch folders take, and how much they may take (design 5.37).
alter table scratch add column bytes bigint;
alter table task_manager add column scratch_limit bigint;
