-- A schedule whose last run has not begun, or could not start, makes no further run for the same reason: the fires that are left out are counted on that run
-- (design 5.17). A fire that makes no run is a failed run with the reason now, so that a schedule has no trouble of its own.

alter table run add column left_out int not null default 0;
alter table run add column left_out_since timestamptz;
alter table schedule drop column trouble;
alter table schedule add column run_id bigint;
update schedule s set run_id = (
    select f.run_id from schedule_fire f
    where (f.branch_id, f.cron, f.zone, key_of(f.tasks)) = (s.branch_id, s.cron, s.zone, key_of(s.tasks)) and f.run_id is not null
    order by f.fire_at desc limit 1);
