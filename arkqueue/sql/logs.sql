-- The logs of attempts: chunks of bytes in the order in which they were read. Only the process that
-- owns a live attempt writes its log.

-- name: append_log
-- Store the next chunks of some attempts' logs. Returns the attempts that still belong to this
-- process, and whether anyone follows their logs. A repeated chunk changes nothing.
with mine as (
    select id from attempt
    where id = any(%(attempts)s) and process = %(process)s and "end" is null
    order by id for no key update
), counted as (
    update attempt a set log_bytes = greatest(a.log_bytes, e.bytes),
        log_stdout = greatest(a.log_stdout, e.stdout), log_stderr = greatest(a.log_stderr, e.stderr)
    from mine, unnest(%(attempts)s::bigint[], %(bytes)s::bigint[], %(stdouts)s::bigint[], %(stderrs)s::bigint[])
        as e(id, bytes, stdout, stderr)
    where a.id = mine.id and e.id = mine.id
    returning a.id, a.followed_until > clock_timestamp() as followed
), written as (
    insert into log_chunk (attempt_id, position, stream, at, data, lines, before)
    select c.id, c.position, c.stream, to_timestamp(c.at), c.data, c.lines, c.before
    from unnest(%(ids)s::bigint[], %(positions)s::bigint[], %(streams)s::text[], %(times)s::float8[], %(datas)s::bytea[], %(lines)s::integer[],
                %(befores)s::bigint[])
        as c(id, position, stream, at, data, lines, before)
    join counted on counted.id = c.id
    on conflict do nothing
)
select id, followed from counted;

-- name: cut_log
-- Delete the middle of some attempts' logs: the chunks that begin after the head and before the
-- tail.
delete from log_chunk c
using unnest(%(attempts)s::bigint[], %(heads)s::bigint[], %(tails)s::bigint[]) as e(id, head, tail), attempt a
where c.attempt_id = e.id and c.position >= e.head and c.position < e.tail
  and a.id = e.id and a.process = %(process)s and a."end" is null;

-- name: follow_logs
-- Ask the writers of some attempts' logs to send a wake-up when a log grows or ends. Returns the
-- attempts that were marked. An attempt whose row is locked is left out.
update attempt set followed_until = clock_timestamp() + make_interval(secs => %(seconds)s)
where id = any(array(select id from attempt where id = any(%(attempts)s) order by id for no key update skip locked))
returning id;

-- name: log_sizes
-- The sizes of some attempts' logs, and whether the attempts have ended.
select id, log_bytes, ended_at is not null as ended from attempt where id = any(array(select unnest(%(attempts)s::bigint[])));

-- name: read_log
-- The next chunks of one attempt's log from a position on, the size of the log, and whether the
-- attempt has ended. For a removed log, the text that replaces it.
select a.log_bytes, a.ended_at is not null as ended, d.at as removed_at, removed('log was', d) as removed, c.position, c.stream, c.at, c.data, c.before as ended_before
from attempt a
left join deed d on d.id = a.log_removal_id
left join lateral (
    select position, stream, at, data, before from (
        select l.*, sum(octet_length(l.data)) over (order by l.position) - octet_length(l.data) as bytes
        from (
            select position, stream, at, data, before from log_chunk
            where attempt_id = a.id
              and position >= coalesce((select max(position) from log_chunk where attempt_id = a.id and position <= %(offset)s), 0)
              and position + octet_length(data) > %(offset)s
            order by position limit 500
        ) l
    ) l where l.bytes < %(limit)s
) c on a.log_removal_id is null
where a.id = %(attempt)s
order by c.position;

-- name: place_in_log
-- The number of lines of a log, and the last chunk that begins at or before a position, or before
-- the end of the line that precedes a line; if there is none, the first chunk. Line ends are
-- counted if their number is not stored. `missing`: the bytes that are not stored. `gap_after`: the
-- lines before the first missing part, with the beginning of a line; null: nothing is missing.
-- `gap_until`: the line ends before the chunk behind that part.
with counted as materialized (
    select position, octet_length(data) as size, before, case when stream = 'note' then 0
        else coalesce(lines, length(encode(data, 'escape')) - length(replace(encode(data, 'escape'), e'\n', ''))) end as n
    from log_chunk where attempt_id = %(attempt)s
), numbered as materialized (
    select position, size, n, coalesce(before, sum(n) over (order by position) - n) as before from counted
), chunk as materialized (
    select position, size, n, before, coalesce(lag(position + size) over (order by position), 0) as follows,
           coalesce(lag(before + n) over (order by position), 0) as ended, lag(position) over (order by position) as previous
    from numbered
)
select coalesce((select before + n from chunk order by position desc limit 1), 0)::bigint
         + coalesce((select (stream <> 'note' and get_byte(data, octet_length(data) - 1) <> 10)::int
                     from log_chunk where attempt_id = %(attempt)s order by position desc limit 1), 0) as lines,
       (select sum(position - follows) from chunk)::bigint as missing,
       found.position, found.before::bigint, gap.after::bigint as gap_after, gap.before::bigint as gap_until
from (values (1)) one
left join lateral (
    select position, before from chunk
    where position <= %(offset)s::bigint or before < %(line)s::bigint - 1 or position = (select min(position) from chunk)
    order by position desc limit 1) found on true
left join lateral (
    select before, ended + coalesce((select (stream <> 'note' and get_byte(data, octet_length(data) - 1) <> 10)::int
                                     from log_chunk l where l.attempt_id = %(attempt)s and l.position = chunk.previous), 0) as after
    from chunk where position > follows order by position limit 1) gap on true;
