alter table backfill add column waits text, add column waits_since timestamptz;
