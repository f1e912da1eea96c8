-- Notifications (design 15). Changes of runs are judged: whether receivers have to be notified. A
-- notification goes into the outbox once for each receiver, and is sent. Called by
-- queue/notifications.py.
--
-- If an archive has receivers, each change of a graph stores the runs that it changed (`to_judge`)
-- in its own transaction, and does no other work for notifications. Judging and sending lock no row
-- of an archive. Only one queue manager judges at a time, and only one chooses the next deliveries
-- (`lock_outbox`); each of these transactions is short.

-- name: have_judged
-- Request that some runs, and the runs of some tasks, are judged, if their archives have receivers.
insert into to_judge (archive_id, run_id)
select a.id, found.run_id
from (select t.archive_id, t.run_id from task t where t.id = any(%(tasks)s) union select r.archive_id, r.id from run r where r.id = any(%(runs)s)) found
join archive a on a.id = found.archive_id and a.notifies;

-- name: have_archive_judged
-- Request that an archive is judged, which may be stopped now, if it has receivers.
insert into to_judge (archive_id, run_id) select id, 0 from archive where id = %(archive)s and notifies;

-- name: lock_outbox
-- Lock one kind of work of the outbox (1: judging; 2: choosing deliveries) until the transaction
-- ends. No row: another transaction does this work.
select work from outbox_turn where work = %(work)s for update skip locked;

-- name: take_to_judge
-- Take the next runs to judge. A change that commits after this statement has stored its runs
-- again.
with next as (delete from to_judge where id = any(array(select id from to_judge order by id limit %(most)s)) returning id, archive_id, run_id)
select archive_id, run_id from next group by archive_id, run_id order by min(id);

-- name: told
-- The last notification about some runs and archives, and the settings of each archive.
select a.id as archive_id, w.run_id, a.name as archive, a.settings::text as settings, a.stopped, t.occasion, t.digest, coalesce(t.is_failed, false) as is_failed
from unnest(%(archives)s::bigint[], %(runs)s::bigint[]) w(archive_id, run_id)
join archive a on a.id = w.archive_id and a.removed_at is null
left join told t on t.archive_id = w.archive_id and t.run_id = w.run_id;

-- name: failures_to_tell
-- The failed and rejected tasks of runs that nobody has waived: their number, the first ones, and a
-- digest that is different for the failures of other attempts. `goes_on`: other tasks of the run go
-- on without a person.
select t.run_id, count(*) as count,
       exists (select from task o where o.run_id = t.run_id and o.state in ('ready', 'running', 'deferred')) as goes_on, md5(string_agg(t.id || ':' || coalesce(t.attempt_id, 0), ',' order by t.id)) as digest,
       (array_agg(t.id order by t.position, t.id))[1:%(most)s] as tasks, (array_agg(t.attempt_id order by t.position, t.id))[1:%(most)s] as attempts
from task t
where t.run_id = any(%(runs)s) and t.kind = 'ordinary' and not t.deleted and t.state in ('failed', 'rejected') and not t.waived
group by t.run_id;

-- name: holds_to_tell
-- The runs with held tasks, and those of these tasks that wait for nothing but a release. Tasks that
-- a hold of the whole archive or backfill holds are left out, because the person who made such a
-- hold knows of it.
select t.run_id, count(*) filter (where t.unmet = 0) as count, (array_agg(t.id order by t.position, t.id) filter (where t.unmet = 0))[1:%(most)s] as tasks
from task t left join deed d on d.id = t.hold_id
where t.run_id = any(%(runs)s) and t.state = 'held' and not t.deleted and (t.hold_id <= 0 or d.run_id is not null)
group by t.run_id;

-- name: made_good
-- The completed tasks of runs whose previous result, in an earlier run, was a failure, also if a
-- person waived it: receivers heard of the failure, and of no repair yet. Of the earlier occurrences
-- of a task, the last 100 are read.
select t.run_id, count(*) as count, (array_agg(t.id order by t.position, t.id))[1:%(most)s] as tasks
from task t
cross join lateral (
    select p.state
    from (select p.state, p.deleted, p.number, p.run from task p
          where p.branch_id = t.branch_id and p.name = t.name and p.item = t.item and (p.number, p.run) < (t.number, t.run) and p.run_id <> all(array(select run_id from purging))
          order by p.number desc, p.run desc limit 100) p
    where p.state in ('completed', 'failed', 'rejected') and not p.deleted order by p.number desc, p.run desc limit 1) before
where t.run_id = any(%(runs)s) and t.kind = 'ordinary' and not t.deleted and t.state = 'completed' and before.state <> 'completed'
group by t.run_id;

-- name: faulty_before
-- The given commit runs whose preceding commit run failed because of faults in its workflow files.
select r.id as run_id
from run r
cross join lateral (
    select b.faults <> '[]' as is_faulty from run b
    where b.branch_id = r.branch_id and b.number < r.number and b.trigger = 'commit' order by b.number desc limit 1) before
where r.id = any(%(runs)s) and r.trigger = 'commit' and before.is_faulty;

-- name: tell
-- Store the last notification about a run or an archive.
insert into told as t (archive_id, run_id, occasion, digest, is_failed) values (%(archive)s, %(run)s, %(occasion)s, %(digest)s, %(is_failed)s)
on conflict (archive_id, run_id) do update set (occasion, digest, is_failed) = (excluded.occasion, excluded.digest, excluded.is_failed);

-- name: post
-- Put a notification into the outbox, once for each receiver.
insert into delivery (archive_id, run_id, occasion, receiver, tasks, attempts, count, what, until)
select %(archive)s, %(run)s, r.occasion, r.receiver, %(tasks)s, %(attempts)s, %(count)s, %(what)s, clock_timestamp() + make_interval(secs => %(patience)s)
from unnest(%(receivers)s::text[], %(occasions)s::text[]) r(receiver, occasion);

-- part: mailbox
-- The receiver of a delivery `d`. The authors of commits are receivers of their own.
coalesce((select r.author from run join revision r on r.id = run.revision_id where run.id = d.run_id and d.receiver = 'author'), d.receiver)

-- part: of_its_author
-- Whether a delivery `o` is for the same author as a delivery `d`, if that is for an author.
(d.receiver <> 'author' or (select r.author from run join revision r on r.id = run.revision_id where run.id = o.run_id) = {part mailbox})

-- name: choose_deliveries
-- Choose the deliveries to send now. Each receiver gets at most one: the one that it did not
-- answer, or else the one that has been due longest, but never before an earlier delivery of the
-- same run. Receivers are left out while a delivery to them is in progress, or if they did not
-- answer the last one and it is not due again. The number of deliveries in progress to one host is
-- limited, and mail counts as one host. A sender has a limited time for the delivery that it chose;
-- after that, another sender sends it again. A mail receiver with many recent deliveries of an
-- archive gets the next one only when the first of these is old enough: then `carry` lets one
-- delivery report everything that has come since.
with waiting as materialized (
    select d.id, d.archive_id, d.run_id, {part mailbox} as mailbox, split_part(d.receiver, '/', 3) as host, d.due_at, d.sending_until, d.is_silent, d.carried_by
    from delivery d where d.state = 'waiting'
), busy as materialized (
    select distinct mailbox from waiting where sending_until > clock_timestamp() or is_silent and due_at > clock_timestamp()
), full_boxes as materialized (
    select {part mailbox} as mailbox, d.archive_id from delivery d
    where d.ended_at > clock_timestamp() - make_interval(secs => %(window)s) and d.state = 'sent' and d.carried_by is null and strpos(d.receiver, '://') = 0
    group by 1, 2 having count(*) >= %(most_mails)s
), hosts as materialized (
    -- The deliveries in progress to each host.
    select host, count(*) as under_way from waiting where sending_until > clock_timestamp() group by 1
), first as materialized (
    -- A delivery that another one carries also precedes the later ones of its run.
    select distinct on (mailbox, archive_id, run_id) id, mailbox, host, due_at, is_silent, carried_by from waiting
    where mailbox not in (select mailbox from busy) and (mailbox, archive_id) not in (select mailbox, archive_id from full_boxes)
    order by mailbox, archive_id, run_id, id
), chosen as materialized (
    select distinct on (mailbox) id, due_at, host from first where due_at <= clock_timestamp() and carried_by is null order by mailbox, is_silent desc, due_at, id
), fitting as materialized (
    select c.id, c.due_at, row_number() over (partition by c.host order by c.due_at, c.id) + coalesce(h.under_way, 0) as place
    from chosen c left join hosts h on h.host = c.host
)
update delivery set tries = tries + 1, sending_until = clock_timestamp() + make_interval(secs => %(lease)s)
where id = any(array(select id from fitting where place <= %(most_of_host)s order by due_at, id limit %(most)s))
returning id, archive_id, run_id, occasion, receiver, tasks, attempts, count, what, made_at, tries;

-- name: carry
-- If many notifications of an archive wait for a mail receiver, let a chosen delivery report
-- (*carry*) all of them. For the author of a commit, only notifications about commits of the same
-- author. Returns the notifications that it carries.
with waiting as (
    select o.id from delivery d
    join delivery o on o.receiver = d.receiver and o.archive_id = d.archive_id and o.state = 'waiting' and o.id <> d.id and (o.carried_by is null or o.carried_by = d.id)
    where d.id = %(delivery)s and strpos(d.receiver, '://') = 0 and {part of_its_author}
    order by o.id limit %(most)s
)
update delivery set carried_by = %(delivery)s
where id in (select id from waiting) and (select count(*) from waiting) >= %(least)s
returning id;

-- name: carried
-- The notifications that a delivery reports, itself and those that it carries: for each occasion
-- their number, and the first runs that still exist. `is_over`: the runs of this row have no failure
-- any more, or wait for no release any more.
select d.occasion, o.is_over, count(distinct d.run_id) as count, (array_agg(distinct d.run_id order by d.run_id))[1:%(most)s] as runs
from delivery d left join run r on r.id = d.run_id
cross join lateral (select case d.occasion
    when 'failed' then r.faults = '[]' and not exists (
        select from task t where t.run_id = r.id and t.kind = 'ordinary' and not t.deleted and t.state in ('failed', 'rejected') and not t.waived)
    when 'held' then not exists (select from task t where t.run_id = r.id and t.state = 'held' and not t.deleted and t.unmet = 0)
    else false end as is_over) o
where (d.id = %(delivery)s or d.carried_by = %(delivery)s) and (d.run_id = 0 or r.deleted_at is null and r.id is not null)
group by d.occasion, o.is_over order by min(min(d.id)) over (partition by d.occasion), o.is_over;

-- name: record_sent
-- Record that a receiver accepted a delivery, and so the notifications that it carries.
update delivery set state = 'sent', ended_at = clock_timestamp(), sending_until = null, is_silent = false, fault = ''
where (id = %(delivery)s or carried_by = %(delivery)s) and state = 'waiting';

-- name: record_failure
-- Record a failed try. The next try comes after a delay, or never, if the delivery has been tried
-- for long enough. The notifications that it was to carry wait on their own again.
with others as (update delivery set carried_by = null where carried_by = %(delivery)s and state = 'waiting')
update delivery set state = case when until < clock_timestamp() then 'failed' else 'waiting' end, ended_at = case when until < clock_timestamp() then clock_timestamp() end,
    sending_until = null, is_silent = %(is_silent)s, due_at = clock_timestamp() + make_interval(secs => %(pause)s), fault = %(fault)s
where id = %(delivery)s and state = 'waiting';

-- name: drop_delivery
-- Drop a delivery, because its receiver must not learn of it any more, or nothing is left to
-- report. The notifications that it was to carry wait on their own again.
with others as (update delivery set carried_by = null where carried_by = %(delivery)s and state = 'waiting')
update delivery set state = 'dropped', ended_at = clock_timestamp(), sending_until = null, fault = %(fault)s where id = %(delivery)s and state = 'waiting';

-- name: is_receiver
-- Whether a watched archive has a receiver, and whether the run of the delivery exists.
select a.removed_at is null and jsonb_typeof(a.settings->'notify') = 'object' and a.settings->'notify' ? %(receiver)s as is_receiver,
       %(run)s = 0 or exists (select from run r where r.id = %(run)s and r.deleted_at is null) as is_there
from archive a where a.id = %(archive)s;

-- name: not_deleted
-- Some tasks, without those of deleted items.
select id from task where id = any(%(tasks)s) and not deleted;

-- name: delivery
-- A delivery, with its archive's name.
select d.id, d.archive_id, a.name as archive, d.state, d.receiver, d.run_id from delivery d join archive a on a.id = d.archive_id where d.id = %(delivery)s;

-- name: resend
-- Send an ended delivery again, with the notifications that it carried. Each waits on its own, for
-- as long as a new delivery.
update delivery set state = 'waiting', due_at = clock_timestamp(), until = clock_timestamp() + make_interval(secs => %(patience)s), is_silent = false, ended_at = null,
    carried_by = null
where (id = %(delivery)s or carried_by = %(delivery)s) and state <> 'waiting' returning id;

-- name: try_delivery_now
-- Try a waiting delivery at once.
update delivery set due_at = clock_timestamp(), is_silent = false, until = greatest(until, clock_timestamp() + make_interval(secs => %(patience)s))
where id = %(delivery)s and state = 'waiting' and sending_until is null returning id;

-- name: try_receiver_now
-- Prepare for a delivery that a person wants at once. Its receiver is tried again, although it did
-- not answer another delivery. The earlier deliveries of its run, which go first, become due as
-- well.
update delivery o set due_at = clock_timestamp(), is_silent = false
from delivery d
where d.id = %(delivery)s and o.receiver = d.receiver and o.state = 'waiting' and o.sending_until is null and o.id <> d.id and {part of_its_author}
  and (o.is_silent or o.archive_id = d.archive_id and o.run_id = d.run_id and o.id < d.id);

-- name: forget_deliveries
-- Delete some deliveries that ended long ago.
delete from delivery where id = any(array(
    select id from delivery where ended_at < clock_timestamp() - make_interval(secs => %(age)s) order by ended_at limit %(most)s));

-- name: purge_deliveries
-- Delete the deliveries about purged runs, and the record of their last notifications.
with gone as (delete from delivery where run_id = any(%(runs)s)) delete from told where archive_id = %(archive)s and run_id = any(%(runs)s);

-- name: list_deliveries
-- A page of deliveries, the newest first; of some archives, states or one receiver. A delivery that
-- waits may have to wait for another one, by the rules of `choose_deliveries`: `first_id` is to be
-- sent first; `is_same_run`: because it is an earlier one of the same run; else because its receiver
-- has it now (`is_first_sent`), or has not answered it. `box_until`: until then, the mailbox has got
-- enough mails of the archive. `due_at`: the earliest time of the next try. `mailbox`: the receiver,
-- or the author who is.
select d.id, a.name as archive, d.run_id, d.occasion, d.receiver, {part mailbox} as mailbox, d.count, d.made_at, d.state, d.tries, d.carried_by,
       case when d.state = 'waiting' then greatest(d.due_at, f.due_at, box.until) end as due_at, d.sending_until > clock_timestamp() as is_being_sent, d.fault, d.ended_at,
       b.name as branch, b.main, r.number, r.run, f.id as first_id, f.is_same_archive, f.is_same_run, f.is_sent as is_first_sent, box.until as box_until
from delivery d join archive a on a.id = d.archive_id left join run r on r.id = d.run_id left join branch b on b.id = r.branch_id
left join lateral (
    select o.id, o.due_at, o.archive_id = d.archive_id as is_same_archive, o.archive_id = d.archive_id and o.run_id = d.run_id and o.id < d.id as is_same_run, coalesce(o.sending_until > clock_timestamp(), false) as is_sent
    from delivery o
    where o.receiver = d.receiver and o.state = 'waiting' and o.id <> d.id and {part of_its_author}
      and (o.archive_id = d.archive_id and o.run_id = d.run_id and o.id < d.id or o.sending_until > clock_timestamp() or o.is_silent and o.due_at > clock_timestamp())
    order by is_same_run desc, o.id limit 1
) f on d.state = 'waiting' and d.carried_by is null and coalesce(d.sending_until < clock_timestamp(), true) and not (d.is_silent and d.due_at > clock_timestamp())
left join lateral (
    select o.ended_at + make_interval(secs => %(window)s) as until from delivery o
    where o.receiver = d.receiver and o.archive_id = d.archive_id and o.state = 'sent' and o.carried_by is null
      and o.ended_at > clock_timestamp() - make_interval(secs => %(window)s) and {part of_its_author}
    order by o.ended_at desc offset %(most_mails)s - 1 limit 1
) box on d.state = 'waiting' and d.carried_by is null and coalesce(d.sending_until < clock_timestamp(), true) and strpos(d.receiver, '://') = 0
where (%(archives)s::bigint[] is null or d.archive_id = any(%(archives)s)) and (%(states)s::text[] is null or d.state = any(%(states)s))
  and d.id < coalesce(%(before)s::bigint, 9223372036854775807) and (r.id is null or r.deleted_at is null)
order by d.id desc limit %(limit)s;
