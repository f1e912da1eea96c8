-- What the deletion of a run canceled or waived (design 5.27).

alter table run add column deleted_tasks bigint[];
