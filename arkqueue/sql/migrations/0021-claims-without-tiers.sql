-- Whether a claim has to know of tiers and limits.
create index ready_archive_special on ready_archive (archive_id) where limited or tier <> 5;
