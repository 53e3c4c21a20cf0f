-- Claims a batch with everything a worker needs to run it, then finishes it under the fence and writes the history.
-- A worker that waits for jobs may find none.
with claimed as (
    update live_jobs l
    set state = 'running', attempt = l.attempt + 1, worker_id = 1, claimed_at = now(), started_at = now()
    from jobs j
    where l.job_id = any (array(
            select c.job_id from live_jobs c
            where c.queue = 'default' and c.state = 'available'
            order by c.priority, c.job_id
            limit :batch
            for update skip locked
        ))
      and j.id = any (array[l.job_id])
    returning l.job_id, l.attempt, j.args
)
select coalesce(array_agg(job_id), '{}') as ids, coalesce(array_agg(attempt), '{}') as attempts,
       string_agg(args::text, ',') as args
from claimed
\gset
with ended as (
    select * from unnest(:ids::bigint[], :attempts::integer[]) as e (job_id, attempt)
), gone as (
    delete from live_jobs l using ended e
    where l.job_id = any (array[e.job_id]) and l.attempt = any (array[e.attempt]) and l.state = 'running'
    returning l.*
)
insert into finished_jobs (job_id, queue, kind, outcome, attempt, failures, worker_id, claimed_at, started_at, finished_at)
select job_id, queue, kind, 'completed', attempt, failures, worker_id, claimed_at, started_at, now() from gone;
