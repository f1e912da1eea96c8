-- What was removed of attempts for good: the entry of the audit log (design 5.27).

alter table attempt add column log_removal_id bigint;
alter table attempt add column outputs_removal_id bigint;

-- To say the type again forgets the samples that there are.
alter table attempt alter column message type text, alter column outputs type jsonb;
alter table log_chunk alter column data type bytea;
-- PostgreSQL takes no samples of what tasks wrote: pg_statistic would keep them after a removal.
alter table attempt alter column message set statistics 0, alter column outputs set statistics 0;
alter table log_chunk alter column data set statistics 0;

-- What stands in place of what was removed for good.
create function removed(what text, entry deed) returns text language sql stable as $$
    select 'The ' || what || ' removed on ' || to_char(entry.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC by ' || entry.by || ', because ' || entry.note
    where entry.id is not null
$$;
