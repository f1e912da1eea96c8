-- Revisions are found by the beginning of their ids, in whatever order the collation of the database puts texts: in Danish, aa comes behind z.
drop index revision_name;
create index revision_name on revision (branch_id, name collate "C");
