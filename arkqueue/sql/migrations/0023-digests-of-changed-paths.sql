-- Of the paths that a Subversion revision changes; null where it was not known. `archive accept` compares it.
alter table revision add column paths_digest text;
