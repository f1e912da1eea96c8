-- A deleted branch, a rewrite, a rewind or the removal of an archive cancels what has not started of many runs in several transactions.
create table ending (
    run_id      bigint primary key,
    archive_id  bigint not null references archive,
    deed_id     bigint not null,
    is_aside    boolean not null default false
);
