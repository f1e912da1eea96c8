-- What the plot of the queue's depth shows is counted once a minute.

create table queue_depth (
    at          timestamptz primary key,
    ready       int not null,
    running     int not null
);
