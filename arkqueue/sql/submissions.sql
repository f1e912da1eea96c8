-- Submissions: documents that are handed in, and the runs that are made from them (design 5.31).
-- Called by queue/submissions.py.
--
-- A payload is stored in parts, each in a transaction of its own, before its run is planned. Until
-- a run has the payload, `payload_left` names it, so that an unused payload is deleted. The
-- transaction that stores the run also stores the submission. A purge of the run adds the payload
-- to `payload_left` again.

-- name: new_payload
-- An id for a payload that is about to be stored.
insert into payload_left (id) values (nextval('payload_id')) returning id;

-- name: add_payload_part
-- Store the next part of a payload.
insert into payload_part (payload_id, position, data) values (%(payload)s, %(position)s, %(data)s);

-- name: take_payload
-- Give a payload to a run; no row if the payload was deleted, because its planning took too long.
delete from payload_left where id = %(payload)s returning id;

-- name: leave_payload
-- Let a payload that nobody needs be deleted at once.
update payload_left set since = '-infinity' where id = %(payload)s;

-- name: add_submission
-- Store a submission with its run.
insert into submission (archive_id, sender_id, run_id, commit_id, kind, size, digest, payload_id, by, attachments)
values (%(archive)s, %(sender)s, %(run)s, %(commit)s, %(kind)s, %(size)s, %(digest)s, %(payload)s, %(by)s, %(attachments)s);

-- name: submission_named
-- The submission of an archive with a sender's id. If its run was purged: when, by whom and why.
select s.id, s.sender_id, s.run_id, s.kind, s.size, s.digest, s.by as submitter, s.made_at, s.attachments, u.id as upload, u.files, u.size as bytes, d.at, d.by, d.note, r.deleted_at
from submission s left join upload u on u.run_id = s.run_id left join purged_run p on p.id = s.run_id left join deed d on d.id = p.deed_id left join run r on r.id = s.run_id
where s.archive_id = %(archive)s and s.sender_id = %(sender)s;

-- name: submission_of_run
-- The submission of a run, with the columns of `submission_named`.
select s.id, s.sender_id, s.run_id, s.kind, s.size, s.digest, s.by as submitter, s.made_at, s.attachments, u.id as upload, u.files, u.size as bytes, d.at, d.by, d.note, r.deleted_at
from submission s left join upload u on u.run_id = s.run_id left join purged_run p on p.id = s.run_id left join deed d on d.id = p.deed_id left join run r on r.id = s.run_id
where s.run_id = %(run)s;

-- name: submission_of_task
-- The submission of a task's run.
select s.run_id, s.kind, s.sender_id, u.folder, u.removed_at is not null as is_removed
from task t join submission s on s.run_id = t.run_id left join upload u on u.run_id = s.run_id where t.id = %(task)s;

-- name: payload_part
-- One part of the payload of a run's submission.
select p.data from submission s join payload_part p on p.payload_id = s.payload_id where s.run_id = %(run)s and p.position = %(position)s;

-- name: behind_submission
-- The COMMIT that later tasks wait for, for a run that was made for a submission; with the columns
-- of `nearest`.
select t.name, t.item, t.id, t.kind, t.number, t.run, meets(true, true, t.state, t.as_completed, t.waived, t.blocks) as settled,
       meets(false, true, t.state, t.as_completed, t.waived, t.blocks) as passes, null::boolean as produced, null::boolean as failed, t.deleted or t.as_completed as is_ignored
from run r join submission s on s.run_id = r.id join task t on t.id = s.commit_id and t.run_id <> all(array(select run_id from purging))
where r.branch_id = %(branch)s and r.number = %(number)s and r.run = %(run)s;

-- name: leave_payloads_of_runs
-- Let the payloads of purged runs be deleted.
insert into payload_left (id, since) select payload_id, '-infinity' from submission where run_id = any(%(runs)s) on conflict do nothing;

-- name: left_payloads
-- Lock some payloads that belong to no run and are old enough, unless another clean-up deletes
-- them.
select id from payload_left where since < clock_timestamp() - make_interval(secs => %(age)s) order by id limit %(most)s for update skip locked;

-- name: delete_payload_parts
-- Delete the next parts of payloads, at most `most`.
delete from payload_part p
using (select payload_id, position from payload_part where payload_id = any(%(payloads)s) limit %(most)s) l
where p.payload_id = l.payload_id and p.position = l.position;

-- name: forget_payloads
-- Remove payloads without parts from `payload_left`.
delete from payload_left where id = any(%(payloads)s);
