-- Attachments of submissions (design 5.31): files that arrive before their run is made. Called by
-- queue/attachments.py, and by queue/submissions.py when the run is made.
--
-- `upload` holds the sender of an upload and the place of its files. The size of a file on the disk
-- shows how much of the file has arrived. The database is written once for each file, when the
-- whole file is there. A person, the age of the upload, or the run can end an upload without a run.
-- Each of these statements requires that `run_id` is null, so only one of them succeeds.

-- name: upload_named
-- The upload of an archive with a sender's id, if the upload has no run yet.
select u.id, u.folder, u.store, u.digest, u.made_at, u.files, u.size from upload u where u.archive_id = %(archive)s and u.sender_id = %(sender)s and u.run_id is null;

-- name: upload
-- An upload, with its archive and sender.
select u.id, u.folder, u.store, u.files, u.size, u.digest, u.sender_id, u.by, u.made_at, u.continued_at, u.run_id, u.removed_at, u.archive_id, a.name as archive
from upload u join archive a on a.id = u.archive_id where u.id = %(id)s;

-- name: attachments
-- The files of an upload.
select position, name, size, digest, verified_at is not null as is_there from attachment where upload_id = %(upload)s order by position;

-- name: attachment
-- One file of an upload.
select t.name, t.size, t.digest, t.verified_at is not null as is_there from attachment t where t.upload_id = %(upload)s and t.position = %(position)s;

-- name: room_of_store
-- The bytes of all attachments and scratch folders of a store, including bytes that are still to
-- arrive.
select coalesce((select sum(size) from upload where store = %(store)s and removed_at is null), 0)::bigint
       + coalesce((select sum(bytes) from scratch where store = %(store)s and removed_at is null), 0)::bigint as bytes;

-- name: take_turn_of_store
-- Lock the row of a store, after the row of the archive, so that uploads that begin in this store
-- are judged one after the other.
insert into upload_turn (store) values (%(store)s) on conflict (store) do update set store = excluded.store;

-- name: managers_of_store
-- Whether the table has a task manager with a store.
select exists (select from task_manager where store = %(store)s) as are_there;

-- name: begin_upload
-- Begin an upload.
insert into upload (archive_id, sender_id, store, files, size, digest, by)
values (%(archive)s, %(sender)s, %(store)s, %(files)s, %(size)s, %(digest)s, %(by)s) returning id, folder;

-- name: add_attachments
-- Store the files of a new upload.
insert into attachment (upload_id, position, name, size, digest)
select %(upload)s, row_number() over () - 1, f.* from unnest(%(names)s::text[], %(sizes)s::bigint[], %(digests)s::text[]) f;

-- name: continue_upload
-- Record that an upload continues; no row if it has a run, or is gone.
update upload set continued_at = clock_timestamp() where id = %(id)s and run_id is null returning id;

-- name: attachment_there
-- Record that a whole file has arrived and has the digest that its sender announced.
update attachment set verified_at = clock_timestamp() where upload_id = %(upload)s and position = %(position)s and verified_at is null;

-- name: take_upload
-- Give an upload to a run, if all of its files are there; no row if a file is missing, or if the
-- upload has a run or is gone.
update upload u set run_id = %(run)s
where u.id = %(upload)s and u.run_id is null and not exists (select from attachment t where t.upload_id = u.id and t.verified_at is null) returning u.id;

-- name: give_up_upload
-- Delete an upload that has no run.
delete from upload where id = %(id)s and run_id is null returning id;

-- name: forget_uploads
-- Delete the uploads without a run that nobody has continued for `age` seconds.
delete from upload where run_id is null and continued_at < clock_timestamp() - make_interval(secs => %(age)s);

-- name: known_attachments
-- The given folders that are not removed, and must stay.
select folder from upload where folder = any(array(select unnest(%(folders)s::bigint[]))) and removed_at is null;

-- name: attachments_over
-- The given folders whose run was deleted and has no running task, with their archives.
select u.folder, u.archive_id from upload u join run r on r.id = u.run_id
where u.folder = any(array(select unnest(%(folders)s::bigint[]))) and u.removed_at is null and r.deleted_at is not null
  and not exists (select from task t where t.run_id = r.id and t.state = 'running');

-- name: end_attachments
-- Mark folders of locked archives as removed, if their run is still deleted.
update upload u set removed_at = clock_timestamp()
from run r
where r.id = u.run_id and u.folder = any(%(folders)s::bigint[]) and u.archive_id = any(%(archives)s::bigint[]) and u.removed_at is null and r.deleted_at is not null
  and not exists (select from task t where t.run_id = r.id and t.state = 'running')
returning u.folder;

-- name: purge_uploads
-- Delete the attachments of purged runs from the table. A task manager that still has the files
-- removes them, because no row names them.
delete from upload where run_id = any(%(runs)s);

-- name: with_removed_attachments
-- The tasks, among some, whose runs have lost their attachments by a deletion: no retry can succeed.
select t.id from task t join upload u on u.run_id = t.run_id and u.removed_at is not null where t.id = any(%(tasks)s::bigint[]);
