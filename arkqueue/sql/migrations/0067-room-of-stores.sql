create table upload_turn (
    store       text primary key
);
