-- name: jobs_now
-- How these jobs stand now, in order of id.  A job without a row was pruned or never was.  The bundles are looked through
-- once for all of them.
with bundled as materialized (
    select * from holdfast.bundled_jobs b where b.job_id = any ($1::bigint[])
)
select j.id, j.queue, j.kind, coalesce(l.state, f.outcome), coalesce(l.attempt, f.attempt),
       coalesce(l.failures, f.failures), coalesce(l.worker_id, f.worker_id), l.progress, l.progress_note,
       l.cancel_requested_at is not null, f.reason, coalesce(f.finished_at, l.started_at, l.claimed_at, l.run_at)
from unnest($1::bigint[]) as asked (id)
join holdfast.jobs j on j.id = any (array[asked.id])
left join lateral (
    select i.job_id, i.state, i.attempt, i.failures, i.worker_id, i.progress, i.progress_note, i.cancel_requested_at,
           i.started_at, i.claimed_at, i.run_at
    from holdfast.live_jobs i where i.job_id = any (array[j.id])
    union all
    select b.job_id, b.state, b.attempt, b.failures, b.worker_id, b.progress, b.progress_note, b.cancel_requested_at,
           b.started_at, b.claimed_at, b.run_at
    from bundled b where b.job_id = j.id
) l on true
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
where l.job_id is not null or f.job_id is not null
order by j.id;

-- name: held_now
-- Up to $1 jobs that workers hold now, in order of id.
select l.job_id, l.queue, l.kind, l.state, l.attempt, l.failures, l.worker_id, l.progress, l.progress_note,
       l.cancel_requested_at is not null, null::text, coalesce(l.started_at, l.claimed_at)
from holdfast.unfinished_jobs l
where l.worker_id is not null
order by l.job_id
limit $1::integer;

-- name: ended_since
-- Up to $2 jobs that ended from $1 on, oldest first; after plan_by_time.
select f.job_id, f.queue, f.kind, f.outcome, f.attempt, f.failures, f.worker_id, null::real, null::text, false, f.reason,
       f.finished_at
from holdfast.finished_jobs f
where f.finished_at >= $1::timestamptz
order by f.finished_at, f.job_id
limit $2::integer;

-- name: returned_since
-- Up to $2 live jobs with an attempt that ended from $1 on, as they stand now, oldest first; after plan_by_time.
select l.job_id, l.queue, l.kind, l.state, l.attempt, l.failures, l.worker_id, l.progress, l.progress_note,
       l.cancel_requested_at is not null, a.outcome || coalesce(': ' || a.reason, ''), a.ended_at
from holdfast.attempts a
join holdfast.live_jobs l on l.job_id = any (array[a.job_id])
where a.ended_at >= $1::timestamptz
order by a.ended_at, l.job_id
limit $2::integer;

-- name: enqueued_since
-- Up to $2 live jobs with ids above $1 that nobody holds yet, in order of id.
select l.job_id, l.queue, l.kind, l.state, l.attempt, l.failures, l.worker_id, l.progress, l.progress_note,
       l.cancel_requested_at is not null, null::text, j.created_at
from holdfast.jobs j
join holdfast.live_jobs l on l.job_id = any (array[j.id])
where j.id > $1::bigint and l.worker_id is null
order by j.id
limit $2::integer;

-- name: feed_place
-- Where a feed begins that wants nothing of the past: the time, and the newest job that is older than $1 seconds, for
-- among those behind it may be some that nobody can see yet.  One row.
select holdfast.now(), coalesce(
    (select j.id from holdfast.jobs j
     where j.created_at < holdfast.now() - make_interval(secs => $1::double precision)
     order by j.id desc limit 1),
    0);

-- name: plan_by_time
-- Lets the looks at history below use its indexes by time, and ends them after $1, such as '10s'; for the transaction
-- only.  The plans of all other statements are pinned to what is good for them.
select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_bitmapscan', 'on', true),
       set_config('statement_timeout', $1::text, true);
