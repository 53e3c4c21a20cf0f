-- name: enqueue_jobs
-- Puts jobs in, one array per column; answers place, id and status in the order asked.
-- Locks nothing but the rows it makes; under a unique key it waits for whoever else is inserting that key.
-- JSON and times travel as text: a caller's connection may have codecs of its own for them.
select job_id, status
from holdfast.enqueue_jobs(
    $1::text[], $2::text[], $3::text[]::jsonb[], $4::smallint[], $5::integer[], $6::double precision[],
    $7::text[]::timestamptz[], $8::double precision[], $9::text[]::jsonb[], $10::text[], $11::text[], $12::text[],
    $13::text[], $14::text[]::jsonb[], $15::bigint[], $16::text[])
order by place;

-- name: reserve_ids
-- Takes a block of job ids for a COPY; answers them, and the time as of which those jobs are due, in one row.
-- The transaction gets its number before it gets the ids: see next_place().
with writing as materialized (select pg_current_xact_id() as number)
select array_agg(nextval('holdfast.jobs_id_seq')), holdfast.now()
from writing w, generate_series(1, $1::integer) where w.number is not null;

-- name: announce
-- Wakes whoever sleeps on these queues, and the stager where the earliest due time is near.
-- Part of a COPY's transaction: the wake-up is delivered when it commits.
select holdfast.wake($1::text[]), holdfast.wake_stager($2::timestamptz);

-- name: mark_keyed
-- Remembers which of these queues have concurrency keys; part of a COPY's transaction.
select holdfast.mark_keyed($1::text[], $2::text[]);

-- name: job_end
-- How a job stands for somebody who waits for it: state, then outcome, result, error, reason.
-- No row: there is no such job.  One that just ended in a partition made in this very moment may be in neither
-- table yet for a plan that is older: it counts as running, and the next look finds it.
select coalesce(l.state, f.outcome, 'running'), f.result::text, f.error, f.reason
from holdfast.jobs j
left join holdfast.live_jobs l on l.job_id = j.id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
where j.id = $1::bigint;
