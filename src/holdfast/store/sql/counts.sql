-- name: count_jobs
-- Counts all live jobs in one scan and stores the sums with their queues, so that nobody else has to count.
-- What a worker has claimed ahead of a permit is available: it is no further.
-- Answers the available kinds that nobody has known for $2 seconds while a job waited; zero rows: all are known.
-- Jobs for runners wait for theirs.
-- Only for the leader of term $1.  Locks the queues' rows in order of name.
with found as materialized (
    select l.queue, l.kind, s.state, count(*) as jobs, min(l.run_at) as oldest,
           min(l.run_at) filter (where l.route_id is null) as oldest_for_any
    from holdfast.unfinished_jobs l
    cross join lateral (select case when l.ahead and l.state = 'claimed' then 'available' else l.state end as state) s
    where exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    group by l.queue, l.kind, s.state
), total as (
    select f.queue,
           sum(f.jobs) filter (where f.state = 'available') as available,
           sum(f.jobs) filter (where f.state = 'scheduled') as scheduled,
           sum(f.jobs) filter (where f.state in ('claimed', 'running')) as running,
           sum(f.jobs) filter (where f.state = 'waiting') as waiting,
           min(f.oldest) filter (where f.state = 'available') as oldest
    from found f group by f.queue
), stored as (
    insert into holdfast.queues as q (name, available, scheduled, running, waiting, oldest_available_at, counted_at)
    select coalesce(t.queue, known.name), coalesce(t.available, 0), coalesce(t.scheduled, 0), coalesce(t.running, 0),
           coalesce(t.waiting, 0), t.oldest, holdfast.now()
    from total t full join holdfast.queues known on known.name = t.queue
    where exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by 1
    on conflict (name) do update
    set available = excluded.available, scheduled = excluded.scheduled, running = excluded.running,
        waiting = excluded.waiting, oldest_available_at = excluded.oldest_available_at, counted_at = excluded.counted_at
)
select f.queue, f.kind from found f
where f.state = 'available' and f.oldest_for_any < holdfast.now() - make_interval(secs => $2::double precision)
  and holdfast.is_unknown(f.queue, f.kind, make_interval(secs => $2::double precision));

-- name: fail_unknown
-- Fails up to $5 jobs of queue $2 and kind $3 that have waited for more than $4 seconds (not those that were due long before they
-- were enqueued), unless somebody knows the kind by now.  Zero rows: somebody does, or none has waited that long.
-- Only for the leader of term $1.  Locks live_jobs rows in id order, skipping those that others hold, then as children_ended does.
with target as materialized (
    select l.job_id, l.queue, l.kind, l.attempt, l.failures, l.parent_id, l.family_id from holdfast.live_jobs l
    join holdfast.jobs j on j.id = any (array[l.job_id])
    where l.queue = $2::text and l.kind = $3::text and l.state = 'available' and l.route_id is null
      and greatest(l.run_at, j.created_at) < holdfast.now() - make_interval(secs => $4::double precision)
      and (select holdfast.is_unknown($2::text, $3::text, make_interval(secs => $4::double precision)))
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by l.job_id
    limit $5::integer
    for update of l skip locked
), gone as (
    delete from holdfast.live_jobs l where l.job_id = any (array(select t.job_id from target t))
)
insert into holdfast.finished_jobs (job_id, queue, kind, outcome, reason, attempt, failures, finished_at, parent_id,
                                    family_id)
select t.job_id, t.queue, t.kind, 'failed',
       format('unknown kind: no worker of queue %s has had a handler for %s for %s; deploy one, then retry the job',
              t.queue, t.kind, make_interval(secs => $4::double precision)),
       t.attempt, t.failures, holdfast.now(), t.parent_id, t.family_id
from target t
returning job_id;
