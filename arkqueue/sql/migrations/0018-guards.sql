-- Tokens of scope `approve`, and the persons whom they stand for (design 5.22).

alter table token drop constraint token_scope_check;
alter table token add constraint token_scope_check check (scope in ('hook', 'read', 'operate', 'approve', 'admin'));
alter table token add column authors text[] not null default '{}';
