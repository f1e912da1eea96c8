-- The audit log is read for the archives that a token is for.

create index deed_archive on deed (archive_id, id) where archive_id is not null;
