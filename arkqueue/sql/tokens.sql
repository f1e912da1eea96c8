-- Tokens: who may do what to which archives. Only hashes are stored.

-- name: add_token
-- Store a token's hash.
insert into token (name, hash, scope, archives, authors) values (%(name)s, %(hash)s, %(scope)s, %(archives)s, %(authors)s)
returning id, name, scope, archives, created_at, revoked_at, authors;

-- name: token_of_hash
-- The token of a hash, unless it was revoked.
select id, name, scope, archives, created_at, revoked_at, authors from token where hash = %(hash)s and revoked_at is null;

-- name: tokens
-- All tokens, revoked ones too.
select id, name, scope, archives, created_at, revoked_at, authors from token order by id;

-- name: token
-- One token.
select id, name, scope, archives, created_at, revoked_at, authors from token where id = %(token)s;

-- name: revoke_token
-- Make a token worthless.
update token set revoked_at = clock_timestamp() where id = %(token)s and revoked_at is null returning id;
