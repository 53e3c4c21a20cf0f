-- name: delivery_horizon
-- The moment up to which history is complete once the transactions of the last column are over, and the time now.  These
-- are all that may have written an end, or may yet with a time from before now: they hold a lock on history or on rows of
-- live_jobs, or wait for one, from before that time was taken.  Anybody may see them, and no clock has a say.
-- finish_jobs tells of ends up to a twentieth of a second before it.  No row: nobody wants to be told of anything.  Read it
-- in a statement of its own, before history is looked at.
select holdfast.now() - interval '50 ms', holdfast.now(), array(
    select distinct concat_ws(' of session ', l.virtualtransaction, l.pid) from pg_locks l
    where l.database = (select d.oid from pg_database d where d.datname = current_database())
      and (l.mode = 'RowExclusiveLock' and l.relation in ('holdfast.finished_jobs'::regclass, 'holdfast.finished_completed'::regclass,
                                                             'holdfast.attempts'::regclass)
           or l.mode = 'RowShareLock' and l.relation = 'holdfast.live_jobs'::regclass)
)
where exists (select from holdfast.endpoints);

-- name: plan_deliveries
-- Makes a delivery for each end up to $2 that an endpoint wants to be told of, looking at up to $3 ends of each sort
-- from $4 seconds before where the last look ended (one that lies ahead counts as ended now) to $5 seconds behind it, for
-- all that ended between is read and sorted, and remembers where this one did.  What was told before is not told again.
-- Answers the new deliveries with the names of their endpoints; one row without an id where there was nothing, and no row
-- where somebody else leads.  The last columns say that there is more to look at, and that it is in the same seconds.
-- Only for the leader of term $1; locks the places.  What carries deliveries is not told of.  After plan_by_time.
with place as materialized (
    select p.source,
           least(p.moment - make_interval(secs => $4::double precision),
                 $2::timestamptz - make_interval(secs => least($4::double precision, 60))) as moment,
           case when $4::double precision > 0 or p.moment > $2::timestamptz then 0 else p.job_id end as job_id,
           case when isfinite(p.moment) then least($2::timestamptz, p.moment + make_interval(secs => $5::double precision))
                else $2::timestamptz end as until
    from holdfast.delivery_places p
    where exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by p.source for update
), jobs as materialized (
    select f.*, 'job.' || f.outcome as event, f.finished_at as at
    from place p
    cross join lateral (
        select * from holdfast.finished_jobs f
        where f.finished_at >= p.moment and (f.finished_at, f.job_id) > (p.moment, p.job_id)
          and f.finished_at < p.until
        order by f.finished_at, f.job_id limit $3::integer
    ) f
    where p.source = 'jobs'
), attempts as materialized (
    select a.*, 'attempt.' || a.outcome as event, a.ended_at as at
    from place p
    cross join lateral (
        select * from holdfast.attempts a
        where a.ended_at >= p.moment and (a.ended_at, a.job_id) > (p.moment, p.job_id) and a.ended_at < p.until
        order by a.ended_at, a.job_id limit $3::integer
    ) a
    where p.source = 'attempts'
), reached as (
    select 'jobs' as source, count(*) as seen, max(n.at) as moment,
           (select l.job_id from jobs l order by l.at desc, l.job_id desc limit 1) as job_id
    from jobs n
    union all
    select 'attempts', count(*), max(n.at),
           (select l.job_id from attempts l order by l.at desc, l.job_id desc limit 1)
    from attempts n
), moved as (
    update holdfast.delivery_places p
    set moment = case when r.seen < $3::integer then b.until else r.moment end,
        job_id = case when r.seen < $3::integer then 0 else r.job_id end
    from place b join reached r on r.source = b.source
    where p.source = b.source
), told as (
    select n.job_id, j.queue, j.kind, n.event, n.at, n.attempt, n.reason, n.worker_id, n.claimed_at, n.started_at
    from jobs n join holdfast.jobs j on j.id = n.job_id
    union all
    select n.job_id, j.queue, j.kind, n.event, n.at, n.attempt, n.reason, n.worker_id, n.claimed_at, n.started_at
    from attempts n join holdfast.jobs j on j.id = n.job_id
), made as (
    insert into holdfast.deliveries (endpoint_id, job_id, event, at, body, created_at)
    select e.id, n.job_id, n.event, n.at,
           jsonb_build_object('event', n.event, 'at', n.at, 'job', jsonb_build_object(
               'id', n.job_id, 'queue', n.queue, 'kind', n.kind, 'attempt', n.attempt, 'reason', n.reason,
               'worker_id', n.worker_id, 'claimed_at', n.claimed_at, 'started_at', n.started_at))::text,
           holdfast.now()
    from told n
    join holdfast.endpoints e on n.event = any (e.events) and (e.queues = '{}' or n.queue = any (e.queues))
         and (e.kinds = '{}' or n.kind = any (e.kinds)) and n.at >= e.created_at
    where n.kind <> 'holdfast:deliver'
    on conflict do nothing
    returning id, endpoint_id
)
select m.id, e.name, lead.dense or lead.short, lead.dense
from (
    select bool_or(p.until < $2::timestamptz) as short, bool_or(r.seen = $3::integer) as dense
    from place p join reached r on r.source = p.source
    having count(*) > 0
) lead
left join (made m join holdfast.endpoints e on e.id = any (array[m.endpoint_id])) on true;

-- name: carry_deliveries
-- Remembers which jobs carry these deliveries, one array per column.  A delivery that is missing from the answer was forgotten.
update holdfast.deliveries d set carrier_id = c.carrier
from unnest($1::text::bigint[], $2::text::bigint[]) as c (id, carrier)
where d.id = any (array[c.id])
returning d.id;

-- name: open_delivery
-- What a carrier has to deliver, and where.  No row: the endpoint is gone, or the delivery was pruned.
select d.id, d.event, d.body, e.name, e.url, e.secret, d.delivered_at is not null
from holdfast.deliveries d join holdfast.endpoints e on e.id = any (array[d.endpoint_id])
where d.id = $1::bigint;

-- name: note_delivery
-- Writes what a try to deliver came to: status $2 of the answer, problem $3, null where it was taken.
update holdfast.deliveries d
set status = $2::integer, problem = $3::text, delivered_at = case when $3::text is null then holdfast.now() end
where d.id = $1::bigint
returning d.id;

-- name: lock_delivery
-- Locks a delivery until the transaction ends, so that nobody else has it made again meanwhile.  No row: there is none.
select d.id from holdfast.deliveries d where d.id = $1::bigint for update;

-- name: list_deliveries
-- Up to $4 deliveries with ids below $3, newest first, of the endpoint named $1 where it is given; where $2 is given only
-- those that are in that state, which is that of what carries them: delivered, waiting or dead.
select d.id, e.name, d.job_id, d.event, d.at, d.delivered_at, d.status, d.problem, d.carrier_id,
       case when d.delivered_at is not null then 'delivered'
            when exists (select from holdfast.live_jobs l where l.job_id = any (array[d.carrier_id])) then 'waiting'
            else 'dead' end as state
from holdfast.deliveries d join holdfast.endpoints e on e.id = any (array[d.endpoint_id])
where ($1::text is null or e.name = $1::text) and ($3::bigint is null or d.id < $3::bigint)
  and ($2::text is null or $2::text = case
           when d.delivered_at is not null then 'delivered'
           when exists (select from holdfast.live_jobs l where l.job_id = any (array[d.carrier_id])) then 'waiting'
           else 'dead' end)
order by d.id desc
limit $4::integer;

-- name: add_endpoint
-- Remembers who wants to be told of what, from now on, and with the first one how many deliveries may be under way to
-- one endpoint at once: $8, unless an operator has said otherwise.  No row: another endpoint has that name.
with begun as (
    update holdfast.delivery_places p set moment = holdfast.now(), job_id = 0
    where not exists (select from holdfast.endpoints)
), limited as (
    insert into holdfast.queues (name, key_limit) values ('holdfast:deliveries', $8::integer) on conflict do nothing
), told as (
    select pg_notify('holdfast', 'deliveries')
)
insert into holdfast.endpoints (name, url, secret, events, queues, kinds, created_by, created_at)
select $1::text, $2::text, $3::text, $4::text[], $5::text[], $6::text[], $7::text, holdfast.now()
from (select count(*) from told) t
on conflict do nothing
returning id;

-- name: list_endpoints
-- Everybody who wants to be told of something, without their secrets.
select e.id, e.name, e.url, e.events, e.queues, e.kinds, e.created_by, e.created_at
from holdfast.endpoints e order by e.name;

-- name: remove_endpoint
-- Forgets an endpoint with all its deliveries, and answers it; what carries them finds nothing to deliver.  No row: there
-- is none.
with gone as (
    delete from holdfast.endpoints e where e.name = $1::text returning e.*
), forgotten as (
    delete from holdfast.deliveries d using gone g where d.endpoint_id = g.id
)
select g.id, g.name, g.url, g.events, g.queues, g.kinds, g.created_by, g.created_at from gone g;

-- name: prune_deliveries
-- Deletes up to $3 deliveries that were made more than $2 seconds ago and that no live job carries.
-- Only for the leader of term $1.
delete from holdfast.deliveries d
where d.id = any (array(
    select old.id from holdfast.deliveries old
    where old.created_at < holdfast.now() - make_interval(secs => $2::double precision)
      and not exists (select from holdfast.live_jobs l where l.job_id = any (array[old.carrier_id]))
      and exists (select from holdfast.leader l where l.term = $1::bigint and l.expires_at > holdfast.now())
    order by old.id
    limit $3::integer
))
returning d.id;
