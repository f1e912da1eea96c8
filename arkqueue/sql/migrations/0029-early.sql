-- Revisions whose dates were to come when they were read: for files, they count as of then (rule 38).
create index revision_early on revision (branch_id, number) where date > read_at;
