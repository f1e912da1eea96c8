-- `when: failed`: an edge that only a source which failed, or rejected its input, meets (design 5.6).

alter table edge add column failed boolean not null default false;
create index edge_failed on edge (source) where failed;
