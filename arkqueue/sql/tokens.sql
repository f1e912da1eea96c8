-- Tokens and sign-ins: who may act on which archives. Only hashes are stored.

-- name: add_token
-- Store a token's hash.
insert into token (name, hash, scope, archives, authors) values (%(name)s, %(hash)s, %(scope)s, %(archives)s, %(authors)s)
returning id, name, scope, archives, created_at, revoked_at, authors;

-- name: token_of_hash
-- The token of a hash, unless it was revoked.
select id, name, scope, archives, created_at, revoked_at, authors from token where hash = %(hash)s and revoked_at is null;

-- name: tokens
-- All tokens, including revoked ones.
select id, name, scope, archives, created_at, revoked_at, authors from token order by id;

-- name: token
-- One token.
select id, name, scope, archives, created_at, revoked_at, authors from token where id = %(token)s;

-- name: revoke_token
-- Revoke a token.
update token set revoked_at = clock_timestamp() where id = %(token)s and revoked_at is null returning id;

-- name: add_sign_in
-- Store the hash of a browser's secret or of a link's code, and delete expired ones.
with expired as (delete from sign_in where expires_at < clock_timestamp())
insert into sign_in (hash, token_id, once, expires_at, browser)
values (%(hash)s, %(token)s, %(once)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(browser)s);

-- name: token_of_sign_in
-- The token with which a browser is signed in, unless it was revoked.
select t.id, t.name, t.scope, t.archives, t.created_at, t.revoked_at, t.authors
from sign_in s join token t on t.id = s.token_id
where s.hash = %(hash)s and not s.once and s.expires_at > clock_timestamp() and t.revoked_at is null;

-- name: person_of_sign_in
-- The person who signed in with this browser at a provider.
select issuer, subject, person, groups, authors from sign_in
where hash = %(hash)s and token_id is null and not once and expires_at > clock_timestamp();

-- name: was_answer_used
-- Whether an answer of the provider has already been used to sign in.
select hash from used_answer where hash = %(hash)s;

-- name: sign_person_in
-- Use an answer of the provider, unless it was used before, and store the hash of the browser's
-- secret. Also delete expired hashes.
with expired_answers as (delete from used_answer where expires_at < clock_timestamp()),
expired as (delete from sign_in where expires_at < clock_timestamp()),
used as (
    insert into used_answer (hash, expires_at) values (%(answer)s, clock_timestamp() + make_interval(secs => %(answer_seconds)s))
    on conflict do nothing returning hash
)
insert into sign_in (hash, once, expires_at, issuer, subject, person, groups, authors, browser, sid)
select %(hash)s, false, clock_timestamp() + make_interval(secs => %(seconds)s), %(issuer)s, %(subject)s, %(person)s, %(groups)s, %(authors)s, %(browser)s, %(sid)s
from used returning hash;

-- name: use_code
-- Use up the code of a link. Returns the token whose rights the link gives.
delete from sign_in s using token t
where s.hash = %(hash)s and s.once and s.expires_at > clock_timestamp() and t.id = s.token_id and t.revoked_at is null
returning t.id, t.name, t.scope, t.archives, t.created_at, t.revoked_at, t.authors;

-- name: sign_out
-- Sign a browser out.
delete from sign_in where hash = %(hash)s and not once;

-- name: sign_ins_seen
-- The signed-in browsers of a token, of the token or the person that the browser with this hash
-- has, or, with `every`, of everybody. The last sign-in comes first.
with me as (select token_id, issuer, subject from sign_in where hash = %(own)s and not once)
select s.hash, s.token_id, t.name as token, t.scope, s.person, s.issuer, s.subject, s.begun_at, s.expires_at, s.browser, s.hash = %(own)s as is_own
from sign_in s left join token t on t.id = s.token_id
where not s.once and s.expires_at > clock_timestamp() and t.revoked_at is null
  and (%(every)s or s.token_id = %(token)s or s.token_id = (select token_id from me) or (s.issuer, s.subject) = (select issuer, subject from me))
order by s.begun_at desc nulls last, s.hash limit %(most)s;

-- name: end_sign_ins
-- Sign some browsers out. Returns the browsers that were signed in.
delete from sign_in where hash = any(%(hashes)s) and not once returning hash;

-- name: end_at_provider
-- Use a logout token of the provider, unless it was used before, and sign out the browsers of the
-- person, or of the session, that it names. Returns whether the logout token was new, and the
-- persons of these browsers.
with expired_answers as (delete from used_answer where expires_at < clock_timestamp()),
used as (
    insert into used_answer (hash, expires_at) values (%(token)s, to_timestamp(%(expires)s)) on conflict do nothing returning hash
),
ended as (
    delete from sign_in
    where exists (select from used) and token_id is null and not once and issuer = %(issuer)s
      and (%(subject)s::text is null or subject = %(subject)s)
      and (%(sid)s::text is null or sid = %(sid)s or sid is null and %(subject)s::text is not null)
    returning person
)
select exists (select from used) as is_new, array(select person from ended) as persons;
