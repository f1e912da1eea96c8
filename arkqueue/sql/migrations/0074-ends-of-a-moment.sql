-- The end of a branch in steps cancels only what was there when it began, and what no person has retried since. Until all is held that could start, claims leave out its revisions.
alter table ending add column entry_id bigint, add column until bigint;
update ending e set entry_id = r.revision_id, until = (select max(t.id) from task t where t.run_id = e.run_id) from run r where r.id = e.run_id;
delete from ending where entry_id is null;
alter table ending alter column entry_id set not null, alter column until set not null;
create table spared (
    run_id      bigint,
    task_id     bigint,
    primary key (run_id, task_id)
);
