-- One mail tells of many notifications where many wait for one receiver.

alter table delivery add column carried_by bigint references delivery on delete set null;
create index delivery_carried on delivery (carried_by) where carried_by is not null;
