-- Persons sign in to the pages with a provider of OpenID Connect. Their rights follow from their groups by the configuration.

alter table sign_in
    alter column token_id drop not null,
    add column issuer text,
    add column subject text,
    add column person text,
    add column groups text[],
    add column authors text[],
    add constraint sign_in_whose check (num_nulls(issuer, subject, person, groups, authors) = case when token_id is null then 0 else 5 end);
-- Answers of a provider that have signed somebody in: none does so twice. Only hashes are stored.
create table used_answer (
    hash        bytea primary key,
    expires_at  timestamptz not null
);
