-- The root of the tasks that are skipped because of a bad task: the task's own root, or the task
-- itself. A task of a deleted run or item is a root itself unless its root was deleted, too, because
-- it does not come back together with its root.
create function root_behind(bad bigint, root bigint) returns bigint language plpgsql stable as $$
begin
    if root is not null and exists (
        select from task s join run g on g.id = s.run_id, task o join run h on h.id = o.run_id
        where s.id = bad and o.id = root and (s.deleted or g.deleted_at is not null) and not (o.deleted or h.deleted_at is not null)) then
        return bad;
    end if;
    return coalesce(root, bad);
end $$;
