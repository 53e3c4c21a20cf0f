-- name: queue_heads
-- The queues in which a job of these kinds is available, the one with the best job first: by priority, then oldest.
-- Locks nothing.  Zero rows: nothing is available.  For drain in tests.
select head.queue from (
    select distinct on (l.queue) l.queue, l.priority, l.job_id
    from holdfast.live_jobs l
    where l.state = 'available' and l.kind = any ($1::text[])
    order by l.queue, l.priority, l.job_id
) head
order by head.priority, head.job_id;

-- name: next_due
-- In how many seconds the next job of these kinds falls due, in the queues $2 (null: in any) that are not paused; null: none
-- does.  Locks nothing.  For drain in tests.
select extract(epoch from min(l.run_at) - holdfast.now())::double precision
from holdfast.live_jobs l
where l.state in ('scheduled', 'waiting') and l.run_at > holdfast.now() and l.run_at < 'infinity'
  and l.kind = any ($1::text[]) and ($2::text[] is null or l.queue = any ($2::text[]))
  and not exists (select from holdfast.queues q where q.name = l.queue and q.paused);
