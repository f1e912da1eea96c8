-- Items are found by the beginning of their keys, in whatever order the collation of the database puts texts.
create index task_item_key on task (branch_id, name, item collate "C", number, run) where item_id is not null;
