-- Nothing of a stopped archive is claimed: it is not among those that take turns.
delete from ready_archive r using archive a where a.id = r.archive_id and a.stopped is not null;
