-- What may start of a large run is let in in portions, once all of it is stored.
alter table planning add column to_let_in bigint[];
update task t set unmet = t.unmet - 1 from planning p where t.run_id = p.run_id and t.item = '' and (t.kind = 'commit' or t.kind = 'gate' and starts_with(t.name, 'PREV:*'));
update task t set unmet = t.unmet + 1 from planning p
where t.run_id = p.run_id and t.kind = 'ordinary'
  and not exists (
    select from edge e join task s on s.id = e.source
    where e.target = t.id and e.kind = 'depends' and not e.settled and not e.crossing
      and s.kind <> 'commit' and not (s.kind = 'gate' and starts_with(s.name, 'PREV:*')));
-- Whether a branch has a large run that is being stored is asked all the time.
create index planning_open on planning (branch_id) where next < items;
