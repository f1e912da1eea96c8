-- A dependency that is not part of the run is an edge to its nearest earlier occurrence, and stands for that task's product (design 5.6, 5.18).

alter table edge add column product boolean not null default false;

-- Runs by hand or by a schedule took such a dependency as met, without an edge. What is not settled yet gets its inputs from the edge now.
insert into edge (target, source, kind, settled, crossing, declared, met, product)
select distinct on (t.id, done.id) t.id, done.id, 'depends'::edge_kind, false, true, true, true, true
from task t
join run on run.id = t.run_id and run.trigger <> 'commit'
join definition d on d.id = t.definition_id
cross join jsonb_to_recordset(d.body->'depends') as needed(task text, previous boolean)
cross join lateral (
    select s.id from task s
    where s.branch_id = t.branch_id and s.name = needed.task and s.item in ('', t.item) and s.number = t.number and s.run < t.run and s.state = 'completed'
    order by s.run desc limit 1) done
where t.settled_at is null and needed.previous is not true
  and not exists (select from task o where o.run_id = t.run_id and o.name = needed.task)
on conflict do nothing;
