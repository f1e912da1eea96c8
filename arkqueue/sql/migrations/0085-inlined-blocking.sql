-- The body of blocks_behind without FROM, which the server inlines. Its result is the same.
create or replace function blocks_behind(
    settled boolean, crossing boolean, has_root boolean, state task_state, waived boolean, blocks smallint, has_begun boolean) returns smallint
    language sql immutable as
$$ select (case when (settled or not crossing and not has_root)
                     and case when state in ('canceled', 'skipped') then blocks = 1
                              when state in ('failed', 'rejected') then true
                              else state <> 'completed' and not crossing and has_begun end then 0
                when state in ('canceled', 'skipped') then blocks
                when state in ('failed', 'rejected') then (not waived)::int
                when state <> 'completed' and not crossing and has_begun then 1
                else 2 end)::smallint $$;
