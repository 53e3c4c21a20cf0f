-- The lease as the holder of a single attempt knows it.

-- name: renew_attempt
-- Prolongs the lease of the worker that holds an attempt, and with it that of all else that this worker holds.  Answers what
-- is wanted of the holder: whether the job's cancel was requested, whether it is to be paused, whether its worker is to leave.
-- Locks the worker's row.  Zero rows: the lease was lost.
with held as materialized (
    select l.job_id, l.worker_id, l.cancel_requested_at is not null as cancelled from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
), renewed as (
    update holdfast.workers w set renewed_at = holdfast.now(), expires_at = holdfast.now() + w.ttl
    from held h where w.id = h.worker_id and w.state in ('online', 'draining')
    returning w.state
)
select h.cancelled, exists (select from holdfast.suspensions s where s.run_id = h.job_id and s.paused),
       r.state = 'draining'
from held h, renewed r;
