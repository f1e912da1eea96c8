-- A task with a `poll` whose command has ended with 75 is polled, and its command is not run again (design 5.29).

alter type attempt_kind add value 'poll';
alter table task add column polls boolean not null default false;
