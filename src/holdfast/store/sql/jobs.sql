-- name: enqueue_jobs
-- Puts jobs in, one array per column, empty where it is null for all; answers id and status in the order asked.
-- Under a unique key it waits for whoever is inserting that key, and a replace locks the holder's live_jobs and jobs rows; the
-- first concurrency key of a queue locks the queue's row at commit.
-- JSON and times travel as text: a caller's connection may have codecs of its own for them.
select job_id, status
from holdfast.enqueue_jobs(
    $1::text[], $2::text[], $3::text[]::jsonb[], $4::text::smallint[], $5::text::integer[], $6::text::double precision[],
    $7::text[]::timestamptz[], $8::text::double precision[], $9::text[]::jsonb[], $10::text[], $11::text[], $12::text[],
    $13::text[], $14::text[]::jsonb[], $15::text::bigint[], $16::text[])
order by place;

-- name: enqueue_alike
-- Puts jobs without keys in that differ in arguments $3 and traces $13 only, and wakes who is to know; answers ids in the order
-- given.  It is the short way of enqueue_jobs, at two thirds of its cost for eight jobs.
-- Locks nothing.  The transaction has its number before the jobs have their places: see next_place().
with writing as materialized (
    select pg_current_xact_id() as number, holdfast.now() as moment
), asked as materialized (
    select nextval('holdfast.jobs_id_seq') as id, u.arg, u.trace, u.nth, w.moment,
           coalesce($7::text::timestamptz, w.moment + make_interval(secs => $8::double precision), w.moment) as due
    from writing w, unnest($3::text[]::jsonb[], $13::text[]) with ordinality as u(arg, trace, nth) where w.number is not null
), stored as (
    insert into holdfast.jobs (id, kind, queue, args, priority, max_attempts, timeout, retry, tags, meta,
                               parent_id, trace, created_at)
    select a.id, $1::text, $2::text, a.arg, $4::smallint, $5::integer, $6::double precision,
           $9::text::jsonb, $10::text::text[], $11::text::jsonb, $12::bigint, a.trace, a.moment
    from asked a
-- part: living
), lived as (
    insert into holdfast.live_jobs (job_id, place, queue, kind, priority, state, run_at)
    select a.id, a.id, $2::text, $1::text, $4::smallint,
           case when a.due > a.moment then 'scheduled' else 'available' end, a.due
    from asked a
)
-- end of part
select a.id,
       case
           when a.nth > 1 then null
-- part: waking
           when a.due > a.moment then holdfast.wake_stager(a.due)
           when current_setting('transaction_isolation') <> 'read committed' or exists (
               select from holdfast.workers w
               where w.wakes_below > $4::smallint and w.state = 'online' and w.term is null and $2::text = any (w.queues)
           )
-- end of part
           then holdfast.wake(array[$2::text], $4::smallint)
       end
from asked a
order by a.nth;

-- name: enqueue_one
-- Puts one job without keys in, and wakes who is to know; answers its id.  It is the short way of enqueue_alike, at three quarters
-- of its cost: no array is read, and less is kept for later.  Locks nothing.  The transaction has its number before the job
-- has its place, as there.  A worker is told of the job by its number where it is the first write of its transaction: of
-- more, equal notifications are sent once.
with asked as materialized (
    select nextval('holdfast.jobs_id_seq') as id, w.is_first, w.moment,
           coalesce($7::text::timestamptz, w.moment + make_interval(secs => $8::double precision), w.moment) as due
    from (
        select pg_current_xact_id_if_assigned() is null as is_first, pg_current_xact_id() as number, holdfast.now() as moment
        offset 0
    ) w where w.number is not null
), stored as (
    insert into holdfast.jobs (id, kind, queue, args, priority, max_attempts, timeout, retry, tags, meta,
                               parent_id, trace, created_at)
    select a.id, $1::text, $2::text, $3::text::jsonb, $4::smallint, $5::integer, $6::double precision,
           $9::text::jsonb, $10::text::text[], $11::text::jsonb, $12::bigint, $13::text, a.moment
    from asked a
-- put in: living
select a.id,
       case
-- put in: waking
           then holdfast.wake(array[$2::text], $4::smallint, case when a.is_first then a.id end)
       end
from asked a;

-- name: enqueue_placed
-- Puts jobs in of which some are for runners: as enqueue_jobs, with a placement as JSON for each, null for any worker.
select job_id, status
from holdfast.enqueue_placed(
    $1::text[], $2::text[], $3::text[]::jsonb[], $4::text::smallint[], $5::text::integer[], $6::text::double precision[],
    $7::text[]::timestamptz[], $8::text::double precision[], $9::text[]::jsonb[], $10::text[], $11::text[], $12::text[],
    $13::text[], $14::text[]::jsonb[], $15::text::bigint[], $16::text[], $17::text[]::jsonb[])
order by place;

-- name: reserve_ids
-- Takes a block of job ids for a COPY; answers them, and the time as of which those jobs are due, in one row.
-- The transaction gets its number before it gets the ids: see next_place().
with writing as materialized (select pg_current_xact_id() as number)
select to_json(array_agg(nextval('holdfast.jobs_id_seq')))::text, holdfast.now()
from writing w, generate_series(1, $1::integer) where w.number is not null;

-- name: announce
-- Wakes workers of these queues for jobs of priority $3 at best, and the stager where the earliest due time is near.
-- Part of a COPY's transaction: the wake-up is delivered when it commits.
select holdfast.wake($1::text[], $3::smallint), holdfast.wake_stager($2::timestamptz);

-- name: announce_room
-- Tells whoever waits for room under the limits of these queues.
select holdfast.wake_for_room($1::text[]);

-- name: announce_room_for_others
-- Does the same for those of these queues in which a worker of kinds $2 that has found nothing more leaves something to others:
-- among the first hundred of a line are other kinds, runners may take some, or workers but $3 wait there for permits.
select holdfast.wake_for_room(array(
    select q from unnest($1::text[]) as q
    where holdfast.is_for_others(q, $2::text[], 100)
       or exists (select from holdfast.live_jobs l
                  where l.worker_id is not null and l.queue = q and l.state = 'claimed' and l.ahead and l.worker_id <> $3::bigint)
));

-- name: mark_keyed
-- Remembers which of these queues have concurrency keys; part of a COPY's transaction.
select holdfast.mark_keyed($1::text[], $2::text[]);

-- name: job_end
-- How a job stands for somebody who waits for it: its state, or its outcome once it has ended; its result, error and reason.
-- No row: there is no such job.  One that just ended in a partition made in this very moment may be in neither
-- table yet for a plan that is older: it counts as running, and the next look finds it.
select coalesce(l.state, f.outcome, 'running'), f.result::text, f.error, f.reason
from holdfast.jobs j
left join holdfast.unfinished_jobs l on l.job_id = j.id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
where j.id = $1::bigint;

-- name: living_jobs
-- Which of the jobs $1 still live.  Locks nothing.
select l.job_id from holdfast.unfinished_jobs l where l.job_id = any ($1::text::bigint[]);
