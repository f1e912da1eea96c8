-- A long log is opened at any of its lines: each chunk knows how many line ends it has. Chunks of older versions do not, and are counted when they are asked for.
alter table log_chunk add column lines integer;
