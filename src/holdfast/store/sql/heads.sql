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
