-- Imports are held (design 5.22): up to which revision of the repository what is appended to a branch belongs to one.

alter table branch add column import_id bigint, add column import_until text;
