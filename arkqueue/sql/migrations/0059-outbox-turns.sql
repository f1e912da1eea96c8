-- Who judges, and who chooses what is sent: locked rows in place of advisory locks.

-- Two rows: who judges locks the first until its transaction ends, and who chooses what is sent the second.
create table outbox_turn (
    work        int primary key
);
insert into outbox_turn values (1), (2);
