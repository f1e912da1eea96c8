-- The limit on the attempts of an archive that run at once (`max_running`, design 5.26). An archive
-- with a limit has that many rows of `slot`. A claim takes one row with each task, and the end of
-- the attempt gives the row back. If the limit is set below the number of running attempts, the
-- surplus slots are closed. These blocks adjust the rows to the setting, one after the other, in a
-- transaction that has locked the archive.

-- name: lock_slots
-- Lock the slots of an archive: no claim takes one from now on, and the following statements see
-- the slots that claims have taken.
select number from slot where archive_id = %(archive)s order by number for update;

-- name: drop_slots
-- Delete the free slots of an archive; all slots if it no longer has a limit.
delete from slot s using archive a where a.id = %(archive)s and s.archive_id = a.id and (s.attempt_id is null or a.max_running is null);

-- name: give_slots
-- Give a slot to each running attempt of a limited archive that began before the limit and has
-- none.
with taken as materialized (select coalesce(max(number), 0) as last from slot where archive_id = %(archive)s)
insert into slot (archive_id, number, attempt_id)
select a.id, (select last from taken) + row_number() over (order by at.id), at.id
from archive a join task t on t.archive_id = a.id join attempt at on at.task_id = t.id and at.ended_at is null
where a.id = %(archive)s and a.max_running is not null and t.settled_at is null and t.state = 'running'
  and not exists (select from slot s where s.attempt_id = at.id);

-- name: close_slots
-- Close the slots of an archive above its limit. All of them are taken.
update slot s set closed = o.place > a.max_running
from (select number, row_number() over (order by closed, number) as place from slot where archive_id = %(archive)s) o, archive a
where s.archive_id = %(archive)s and s.number = o.number and a.id = s.archive_id;

-- name: open_slots
-- Add the free slots of a limited archive.
with taken as materialized (select count(*)::int as n, coalesce(max(number), 0) as last from slot where archive_id = %(archive)s)
insert into slot (archive_id, number)
select a.id, taken.last + free.number from archive a cross join taken cross join lateral generate_series(1, a.max_running - taken.n) free(number)
where a.id = %(archive)s and a.max_running is not null;

-- name: return_slots
-- Give back the slots of ended attempts. Returns the archives with closed slots, which must be
-- adjusted.
with returned as (
    update slot set attempt_id = null where attempt_id = any(%(attempts)s::bigint[]) returning archive_id
)
select distinct archive_id from returned r where exists (select from slot s where s.archive_id = r.archive_id and s.closed);

-- name: free_slots
-- The number of attempts that an archive may start in addition to the running ones.
select count(*) as n from slot where archive_id = %(archive)s and attempt_id is null and not closed;
