-- REPORT may have a command, which gets reports and sends them (design 5.4, 5.32).

alter table report
    add column is_given boolean not null default false,
    add column sent_at timestamptz;
alter table run add column updating int;
