-- name: register_worker
-- Makes the row that is the lease of all jobs of a worker.  $10 are those of its kinds whose jobs are runs, $11
-- says whether those make up for what they did when their attempts are used up.  Locks their rows of workflows in order of kind.
with known as (
    insert into holdfast.workflows as w (kind, makes_up) select distinct f, $11::boolean from unnest($10::text[]) f order by 1
    on conflict (kind) do update set makes_up = true where excluded.makes_up and not w.makes_up
)
insert into holdfast.workers (name, host, pid, version, queues, kinds, labels, slots, ttl, started_at, renewed_at, expires_at)
values ($1::text, $2::text, $3::integer, $4::text, $5::text[], $6::text[], $7::text[], $8::integer,
        make_interval(secs => $9::double precision), holdfast.now(), holdfast.now(),
        holdfast.now() + make_interval(secs => $9::double precision))
returning id;

-- name: know_queues
-- Makes sure that the queues of a worker have rows, so that they can be paused, limited and counted.  Locks nothing but the
-- rows it makes; waits for whoever is making the same.
insert into holdfast.queues (name) select distinct q from unnest($1::text[]) q order by 1
on conflict (name) do nothing;

-- name: renew_worker
-- Prolongs the lease.  Zero rows: the worker was declared lost and holds nothing any more.
-- Answers its state, so that a drain reaches it.
update holdfast.workers w
set renewed_at = holdfast.now(), expires_at = holdfast.now() + w.ttl
where w.id = $1::bigint and w.state in ('online', 'draining')
returning w.state;

-- name: wake_below
-- Says below which priority new jobs are to be announced to this worker.  Zero rows: that stands there already, or the worker is gone.
update holdfast.workers w set wakes_below = $2::smallint
where w.id = $1::bigint and w.wakes_below <> $2::smallint
returning w.id;

-- name: running_transactions
-- The number of the oldest transaction that runs and has one, and a number above those of all that had one before: this
-- transaction's own, for the snapshot says nothing of those that are younger than the last that has ended.  Locks nothing.
select pg_snapshot_xmin(s.shot)::text::bigint,
       greatest(pg_snapshot_xmax(s.shot), pg_current_xact_id())::text::bigint
from (select pg_current_snapshot() as shot) s;

-- name: note_settled
-- Notes up to where a worker has found that nothing is left, for whoever begins after it.  Zero rows: the worker has ended.
update holdfast.workers w set settled = $2::text::jsonb
where w.id = $1::bigint and w.state in ('online', 'draining')
returning w.id;

-- name: find_settled
-- What the $2 latest workers have noted that knew all of kinds $1.
select w.settled::text from holdfast.workers w
where w.kinds @> $1::text[] and w.settled is not null
order by w.id desc limit $2::integer;

-- name: close_worker
-- Lets no more claims of a worker in.  Locks its row against the share that claims take of it, so it waits for those that
-- are under way, also for one whose connection was cut off: what they took is there to be seen afterwards.
-- Zero rows: it has left before, or was declared lost.
with closed as materialized (
    select w.id from holdfast.workers w where w.id = $1::bigint and w.state in ('online', 'draining') for update
)
update holdfast.workers w set state = 'draining' from closed c where w.id = any (array[c.id])
returning w.id;

-- name: end_worker
-- The worker leaves in good order; it must hold nothing.  $2 is what it has to note of settled places, or null.
-- Zero rows: it has left before, or was declared lost.
update holdfast.workers w
set state = 'offline', wakes_below = 0, ended_at = holdfast.now(), expires_at = holdfast.now(),
    settled = coalesce($2::text::jsonb, w.settled)
where w.id = $1::bigint and w.state in ('online', 'draining')
returning w.id;

-- name: drain_worker
-- Asks a worker to take nothing more, finish and leave; a runner that is away learns of it when it comes back, and stays
-- drained until it is resumed.  Locks its row; answers how it stood before and after.  Zero rows: it is not online.
with former as materialized (
    select w.id, w.state, w.drain_requested_at is not null as draining from holdfast.workers w
    where w.id = $1::bigint and (w.state in ('online', 'draining') or w.term is not null)
    for no key update
), asked as (
    update holdfast.workers w
    set state = case when w.state = 'online' then 'draining' else w.state end, drain_requested_at = holdfast.now()
    from former f where w.id = any (array[f.id])
    returning w.id, w.state
)
select jsonb_build_object('before', jsonb_build_object('state', f.state, 'draining', f.draining),
                          'after', jsonb_build_object('state', a.state, 'draining', true))::text,
       pg_notify('holdfast', 'drain:' || a.id)
from asked a, former f;

-- name: list_workers
-- The workers that are online or draining, or all that are remembered where $1 says so, or the one whose id is $3,
-- newest first, at most $2; with how many jobs each one holds, and how a runner is heard, as JSON.  Locks nothing.
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.slots, w.state, w.started_at, w.renewed_at, w.expires_at,
       (select count(*) from holdfast.unfinished_jobs l where l.worker_id = w.id and l.state = 'running'),
       (select count(*) from holdfast.unfinished_jobs l where l.worker_id = w.id and l.state = 'claimed'),
       w.ended_at, w.labels, w.kinds,
       case when w.term is not null then jsonb_build_object(
           'silence', extract(epoch from holdfast.now() - w.renewed_at), 'ttl', extract(epoch from w.ttl),
           'since', w.contact_at, 'term', w.term, 'protocol', w.protocol, 'capacity', w.capacity,
           'drain_requested_at', w.drain_requested_at)::text end
from holdfast.workers w
where case when $3::bigint is null then $1::boolean or w.state in ('online', 'draining') else w.id = $3::bigint end
order by w.id desc limit $2::integer;

-- name: worker_state
-- Whether a worker may hold leases.  Zero rows: there is no such worker.
select w.state from holdfast.workers w where w.id = $1::bigint;

-- name: declare_lost
-- Marks workers whose lease ran out.  A lease cannot run out while nobody can renew it: it gets a full ttl after a restart of
-- PostgreSQL, and after a time in which no leader was heard, be it an outage of the network, a pause of the server's machine
-- or a jump of its clock; nor that of a runner while no server is there to hear it.  One that ends more than a ttl after the
-- leader's own duty was given before the clock was set back: it lasts a ttl from when a leader noticed.
-- Only for the leader of term $1.  Locks the workers' rows, skipping those that others hold: whoever claims at this
-- moment is looked at again in the next turn.
with lapsed as (
    select w.id from holdfast.leader d, holdfast.workers w
    where d.term = $1::bigint and d.expires_at > holdfast.now()
      and w.state in ('online', 'draining')
      and greatest(case when w.expires_at <= d.expires_at + w.ttl + interval '1 second' then w.expires_at end,
                   pg_postmaster_start_time() + w.ttl, d.heard_since + w.ttl) < holdfast.now()
      and (w.term is null or exists (
          select from holdfast.servers s
          where s.renewed_at > holdfast.now() - least(w.ttl / 4, interval '30 seconds') and s.started_at < holdfast.now() - w.ttl
      ))
    order by w.id
    for update of w skip locked
)
update holdfast.workers w set state = 'lost', wakes_below = 0, ended_at = holdfast.now()
from lapsed where w.id = lapsed.id
returning w.id;

-- name: rescue_jobs
-- Takes up to $2 jobs from workers that are lost or, with $3, have left; see holdfast.take_away for what becomes of them.
-- Only for the leader of term $1.  Locks live_jobs rows, skipping those that others hold.
with orphan as materialized (
    select l.job_id,
           'worker ' || w.id || ' (' || w.name || ') ' ||
           case w.state when 'lost' then 'stopped renewing its lease' else 'left without giving the job back' end as reason
    from holdfast.live_jobs l
    join holdfast.workers w on w.id = l.worker_id
    where l.worker_id = any (array(
              select g.id from holdfast.workers g
              where (g.state = 'lost' or g.state = 'offline' and $3::boolean) and not g.cleared
          ))
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $2::integer
    for update of l skip locked
)
select t.job_id, t.kind, t.fate
from (select array_agg(o.job_id) as job_ids, array_agg(o.reason) as reasons from orphan o having count(*) > 0) o,
     holdfast.take_away(o.job_ids, o.reasons) t;

-- name: lost_hold_jobs
-- Whether workers that are lost still hold jobs: a rescue passes over those that somebody has locked.
select exists (
    select from holdfast.live_jobs l where l.worker_id = any (array(
        select w.id from holdfast.workers w where w.state = 'lost' and not w.cleared
    ))
);

-- name: clear_workers
-- Marks up to $2 workers that have ended and hold nothing, as `clear_workers` in the migrations says.
-- Only for the leader of term $1.
select * from holdfast.clear_workers($1::bigint, $2::integer);
