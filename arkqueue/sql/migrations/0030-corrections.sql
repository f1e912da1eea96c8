-- How often a revision of an archive was corrected: files that show its author were exported before, and are not used any more.
alter table archive add column corrections int not null default 0;
