-- Browsers that are signed in, and the codes of links that sign a browser in once. Of both only hashes are stored, as of tokens.
create table sign_in (
    hash        bytea primary key,
    token_id    bigint not null references token,   -- whose rights it has; it ends with that token
    once        boolean not null,                   -- the code of a link: its first use takes it away
    expires_at  timestamptz not null
);
-- What needs a person is listed by archive, as failed tasks are.
create index task_rejected on task (archive_id, run_id) where state = 'rejected';
