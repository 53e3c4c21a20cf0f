-- Claims the one job that was told of, and answers its number; no row where somebody else has it.
update live_jobs l
set state = 'running', attempt = l.attempt + 1, worker_id = 1, claimed_at = now(), started_at = now()
from jobs j
where l.job_id = $1 and l.state = 'available' and j.id = l.job_id
returning (j.args ->> 'number')::bigint;
