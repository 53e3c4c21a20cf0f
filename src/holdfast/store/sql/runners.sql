-- Runners as rows of workers: their registration, what is heard of them, and who hears.

-- name: register_runner
-- Makes a runner, or begins a new term of the one with this name.  A drain that was asked for holds.  $10 is how many seconds its
-- lease lasts without a word from it.  Answers id, term, state, and how the former term was registered.  Locks the worker's
-- row; waits for whoever registers the same name.
with former as materialized (
    select jsonb_build_object('term', f.term, 'token', f.token_id, 'host', f.host, 'version', f.version, 'labels', f.labels,
                              'queues', f.queues, 'kinds', f.kinds, 'slots', f.slots, 'capacity', f.capacity) as was
    from holdfast.workers f where f.name = $1::text and f.term is not null for no key update
), made as (
    insert into holdfast.workers as w (name, host, pid, version, queues, kinds, labels, slots, capacity, ttl, protocol,
                                       term, started_at, renewed_at, expires_at, contact_at)
    select $1::text, $2::text, 0, $3::text, $4::text[], $5::text[], $6::text[], $7::integer, $8::text::jsonb,
           make_interval(secs => $10::double precision), $9::integer, 1, holdfast.now(), holdfast.now(),
           holdfast.now() + make_interval(secs => $10::double precision), holdfast.now()
    from (select count(*) from former) f
    on conflict (name) where term is not null do update
    set host = excluded.host, version = excluded.version, queues = excluded.queues, kinds = excluded.kinds,
        labels = excluded.labels, slots = excluded.slots, capacity = excluded.capacity, ttl = excluded.ttl,
        protocol = excluded.protocol, term = w.term + 1, started_at = excluded.started_at,
        renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, contact_at = excluded.contact_at,
        ended_at = null, state = case when w.drain_requested_at is null then 'online' else 'draining' end
    returning w.id, w.term, w.state
)
select m.id, m.term, m.state, (select f.was::text from former f) from made m;

-- name: attach_token
-- Lets token $2 speak for runner $1, and no other token any more.  Locks the worker's row.  Who waits by an older token
-- is told so at once, as of a drain: what its successor gives back would be offered to it.
with attached as (
    update holdfast.workers w set token_id = $2::bigint where w.id = $1::bigint returning w.id
), revoked as (
    update holdfast.tokens k set revoked_at = holdfast.now() from attached a
    where k.worker_id = a.id and k.role = 'runner' and k.revoked_at is null and k.id <> $2::bigint
    returning k.id
)
select a.id, case when n.topic is not null then pg_notify('holdfast', n.topic) end
from attached a
left join (values ('tokens'), ('drain:' || $1::bigint)) as n (topic) on exists (select from revoked);

-- name: hear_runners
-- Prolongs the leases of runners that were heard, one array per column: id and token.  One that was lost or away is back.
-- $3 is after how many seconds of silence contact begins anew.  Locks workers' rows in id order.  Zero rows for a
-- runner: another registration has its name, its token was revoked, or it was forgotten.
with heard as (
    select distinct u.id, u.token_id from unnest($1::bigint[], $2::bigint[]) as u (id, token_id)
), locked as materialized (
    select w.id, w.renewed_at from holdfast.workers w join heard h on w.id = any (array[h.id]) and w.token_id = h.token_id
    order by w.id for no key update of w
)
update holdfast.workers w
set renewed_at = holdfast.now(), expires_at = holdfast.now() + w.ttl, ended_at = null,
    contact_at = case when w.renewed_at < holdfast.now() - make_interval(secs => $3::double precision) then holdfast.now()
                      else w.contact_at end,
    state = case when w.drain_requested_at is null then 'online' else 'draining' end
from locked k where w.id = any (array[k.id])
returning w.id, w.name, w.term, w.state, w.labels, w.kinds, w.queues, w.slots, w.capacity::text;

-- name: see_runners
-- How runners stand, one array per column: id and token.  Locks nothing.  Zero rows for a runner: as of hear_runners.
select w.id, w.name, w.term, w.state, w.labels, w.kinds, w.queues, w.slots, w.capacity::text
from (select distinct u.id, u.token_id from unnest($1::bigint[], $2::bigint[]) as u (id, token_id)) h
join holdfast.workers w on w.id = any (array[h.id]) and w.token_id = h.token_id;

-- name: silenced_runners
-- Those of these runners for which nobody may speak, because the token was revoked.  Locks nothing.
select w.id from holdfast.workers w where w.id = any ($1::bigint[]) and w.token_id is null;

-- name: leave_runner
-- The runner goes in good order.  What it was offered and has not accepted it does not hold: see release_offers, after this in
-- the same transaction, for nothing is offered to it from now on.  Locks the worker's row.  Zero rows: it holds something, or
-- another registration has its name.
update holdfast.workers w set state = 'offline', ended_at = holdfast.now(), expires_at = holdfast.now()
where w.id = $1::bigint and w.token_id = $2::bigint
  and not exists (
      select from holdfast.live_jobs l
      join holdfast.assignments a on a.job_id = any (array[l.job_id]) and a.attempt = any (array[l.attempt])
      where l.worker_id = any (array[w.id]) and a.accepted_at is not null)
returning w.id;

-- name: resume_runner
-- Undoes a drain.  Locks the row; answers how the runner stood before and after.  Zero rows: there is no such runner.
with former as materialized (
    select w.id, w.state, w.drain_requested_at is not null as draining from holdfast.workers w
    where w.id = $1::bigint and w.term is not null
    for no key update
), resumed as (
    update holdfast.workers w
    set drain_requested_at = null, state = case when w.state = 'draining' then 'online' else w.state end
    from former f where w.id = any (array[f.id])
    returning w.id, w.state
)
select jsonb_build_object('before', jsonb_build_object('state', f.state, 'draining', f.draining),
                          'after', jsonb_build_object('state', r.state, 'draining', false))::text,
       pg_notify('holdfast', 'drain:' || r.id)
from resumed r, former f;

-- name: name_runner
-- The name of the runner with this id.  Zero rows: it was forgotten.
select w.name from holdfast.workers w where w.id = $1::bigint and w.term is not null;

-- name: has_runners
-- Whether a runner is there that may hold something.  Locks nothing.
select exists (select from holdfast.workers w where w.term is not null and w.state in ('online', 'draining'));

-- name: open_server
-- A process begins to hear runners; answers its id.
insert into holdfast.servers (name, started_at, renewed_at) values ($1::text, holdfast.now(), holdfast.now()) returning id;

-- name: renew_server
-- It still hears them; those that have been silent for a day are forgotten.  Zero rows: it was forgotten itself.
with gone as (
    delete from holdfast.servers s where s.renewed_at < holdfast.now() - interval '1 day' and s.id <> $1::bigint
)
update holdfast.servers s
set renewed_at = holdfast.now(),
    started_at = case when s.renewed_at < holdfast.now() - interval '30 seconds' then holdfast.now() else s.started_at end
where s.id = $1::bigint returning s.id;

-- name: close_server
-- It hears them no more.
delete from holdfast.servers s where s.id = $1::bigint returning s.id;
