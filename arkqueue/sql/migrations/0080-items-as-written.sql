-- Items keep the order of their fields.
alter table item alter column body type json;
