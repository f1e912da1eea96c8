-- No command ever stored another capacity. A lock without any room would keep its tasks waiting for ever.
update lock set capacity = 1 where capacity < 1;
alter table lock add check (capacity > 0);
