-- How many attempts of an archive run at once (`max_running`, design 5.26). A limited archive has that many rows of `slot`: a claim takes one with each task, and
-- the end of the attempt gives it back. While more run than may, as the limit was lowered, some of the taken ones are closed. These blocks fit the rows to the setting, each after the one before, in a transaction that has locked the archive.

-- name: lock_slots
-- Lock the slots of an archive: no claim takes one from now on, and what a claim has taken is seen by the statements that follow.
select number from slot where archive_id = %(archive)s order by number for update;

-- name: drop_slots
-- Drop the slots of an archive that nobody has; all of them where it is not limited any more.
delete from slot s using archive a where a.id = %(archive)s and s.archive_id = a.id and (s.attempt_id is null or a.max_running is null);

-- name: give_slots
-- Give a slot to each running attempt of a limited archive that has none, as it began before the limit.
insert into slot (archive_id, number, attempt_id)
select a.id, coalesce((select max(number) from slot where archive_id = a.id), 0) + row_number() over (order by at.id), at.id
from archive a join task t on t.archive_id = a.id join attempt at on at.task_id = t.id and at.ended_at is null
where a.id = %(archive)s and a.max_running is not null and t.settled_at is null and t.state = 'running'
  and not exists (select from slot s where s.attempt_id = at.id);

-- name: close_slots
-- Close as many of a locked archive's slots, which are all taken, as are more than its limit.
update slot s set closed = o.place > a.max_running
from (select number, row_number() over (order by closed, number) as place from slot where archive_id = %(archive)s) o, archive a
where s.archive_id = %(archive)s and s.number = o.number and a.id = s.archive_id;

-- name: open_slots
-- Add the free slots of a limited archive.
insert into slot (archive_id, number)
select a.id, coalesce((select max(number) from slot where archive_id = a.id), 0) + n
from archive a cross join lateral generate_series(1, a.max_running - (select count(*)::int from slot where archive_id = a.id)) n
where a.id = %(archive)s and a.max_running is not null;

-- name: return_slots
-- Give back the slots of attempts that ended; the archives among theirs of which more run than may, so that slots are to be fitted to what still runs.
with returned as (
    update slot set attempt_id = null where attempt_id = any(%(attempts)s::bigint[]) returning archive_id
)
select distinct archive_id from returned r where exists (select from slot s where s.archive_id = r.archive_id and s.closed);

-- name: free_slots
-- How many more attempts of an archive may run.
select count(*) as n from slot where archive_id = %(archive)s and attempt_id is null and not closed;
