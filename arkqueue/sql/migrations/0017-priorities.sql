-- A person's priority wins over what a task of the run says (design 5.24).
alter table task add column prioritized boolean not null default false;
