-- The live attempts of a process were one key of this index, many times over, and each claim put its entries among those of attempts that had ended. That took a tenth of what a
-- claim and its end take. All live attempts are few enough to be read along `attempt_live`.
drop index attempt_live_by_process;
