-- Tokens are looked up by the SHA-256 of their text; times are the database's.

-- name: create_token
-- Makes a token named $1 with the hash $2 and role $3, for runner $4 and attempt $6 of job $5 where they are given, in
-- the name of $7, for $8 seconds (null: for ever).  Zero rows: a valid token has that name.
insert into holdfast.tokens (name, sha256, role, worker_id, job_id, attempt, created_by, created_at, expires_at)
values ($1::text, $2::bytea, $3::text, $4::bigint, $5::bigint, $6::integer, $7::text, holdfast.now(),
        holdfast.now() + make_interval(secs => $8::double precision))
on conflict (name) where revoked_at is null and role in ('admin', 'operator', 'producer', 'viewer', 'registrar')
do nothing
returning id, name, role, worker_id, job_id, attempt, created_by, created_at, expires_at, revoked_at, last_used_at;

-- name: use_tokens
-- The valid tokens with these hashes, as somebody uses them, by the place of each; noted at most once a minute.  That of an
-- assignment is good while somebody may speak for its runner.
-- Locks rows to note it, skipping those that others hold: nobody waits here.  No row for a hash: there is none.
with found as materialized (
    select u.nth, t.* from unnest($1::bytea[]) with ordinality as u (asked, nth)
    join holdfast.tokens t on t.sha256 = any (array[u.asked])
    where t.revoked_at is null and (t.expires_at is null or t.expires_at > holdfast.now())
      and (t.role <> 'assignment'
           or (select w.token_id from holdfast.workers w where w.id = any (array[t.worker_id])) is not null)
), idle as materialized (
    select t.id from holdfast.tokens t
    where t.id = any (array(
        select f.id from found f
        where f.last_used_at is null or f.last_used_at < holdfast.now() - interval '1 minute'
    ))
    for no key update skip locked
), noted as (
    update holdfast.tokens t set last_used_at = holdfast.now() from idle i where t.id = any (array[i.id])
)
select f.nth, f.sha256, f.id, f.name, f.role, f.worker_id, f.job_id, f.attempt, f.created_by, f.created_at, f.expires_at,
       f.revoked_at, f.last_used_at
from found f;

-- name: has_tokens
-- Whether a token was ever made for somebody: from then on nobody comes in without one, even if all are revoked.  Those
-- that runners get do not count: where nobody needs a token, a runner that comes shuts nobody out.
select exists (select from holdfast.tokens t where t.role not in ('runner', 'assignment'));

-- name: superseded_runner
-- Whose token the hash $1 was, where another registration has the name of that runner.  Zero rows: it is none of those.
select t.worker_id from holdfast.tokens t join holdfast.workers w on w.id = any (array[t.worker_id])
where t.sha256 = $1::bytea and t.role = 'runner' and t.revoked_at is not null and w.token_id <> t.id;

-- name: list_tokens
-- Up to $3 tokens with ids below $2, newest first; those of assignments, and those that are no longer valid, only
-- where $1 says so.
select t.id, t.name, t.role, t.worker_id, t.job_id, t.attempt, t.created_by, t.created_at, t.expires_at, t.revoked_at,
       t.last_used_at
from holdfast.tokens t
where ($2::bigint is null or t.id < $2::bigint)
  and ($1::boolean or (t.revoked_at is null and (t.expires_at is null or t.expires_at > holdfast.now())
                       and t.role <> 'assignment'))
order by t.id desc limit $3::integer;

-- name: revoke_token
-- Ends token $1 and tells every service, which may remember it.  Where it is a runner's own, nobody speaks for that runner
-- until it registers again, and whoever waits by the token is told so at once, as of a drain.  Locks that worker's row
-- first, as a registration does.  Zero rows: there is none, or it was revoked before.
with spoken as materialized (
    select w.id from holdfast.tokens t join holdfast.workers w on w.id = any (array[t.worker_id]) and w.token_id = t.id
    where t.id = $1::bigint
    for no key update of w
), silenced as (
    update holdfast.workers w set token_id = null from spoken s where w.id = any (array[s.id])
    returning w.id
), gone as (
    update holdfast.tokens t set revoked_at = holdfast.now()
    where t.id = $1::bigint and t.revoked_at is null and (select count(*) from spoken) >= 0
    returning t.id, t.name, t.role, t.worker_id, t.job_id, t.attempt, t.created_by, t.created_at, t.expires_at,
              t.revoked_at, t.last_used_at
), told as (
    select pg_notify('holdfast', 'tokens') from gone
    union all
    select pg_notify('holdfast', 'drain:' || s.id) from silenced s
)
select g.* from gone g, (select count(*) from told) n;

-- name: find_token
-- Token $1, valid or not.  Zero rows: there is none.
select t.id, t.name, t.role, t.worker_id, t.job_id, t.attempt, t.created_by, t.created_at, t.expires_at, t.revoked_at,
       t.last_used_at
from holdfast.tokens t where t.id = $1::bigint;

-- name: prune_tokens
-- Forgets up to $3 tokens of runners and assignments that ended more than $2 seconds ago; those of people stay, for
-- the audit log names them.  Zero rows: there are none.  Only for the leader of term $1.
delete from holdfast.tokens t
where t.ctid = any (array(
    select old.ctid from holdfast.tokens old
    where old.role in ('runner', 'assignment')
      and least(old.revoked_at, old.expires_at) < holdfast.now() - make_interval(secs => $2::double precision)
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning t.id;
