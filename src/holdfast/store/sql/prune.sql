-- name: retentions
-- What is past its retention: outcomes, queue (null for all) and the moment before which jobs must have ended.
-- $1 and $2 are the seconds that completed jobs, and failed and cancelled ones, are kept; both count in whole UTC
-- days, as partitions do.  A queue's own retention counts exactly, and only where it is shorter.
select general.outcomes, null::text,
       date_trunc('day', holdfast.now() - make_interval(secs => general.seconds), 'UTC')
from (values (array['completed'], $1::double precision), (array['failed', 'cancelled'], $2::double precision))
    as general (outcomes, seconds)
union all
select array['completed', 'failed', 'cancelled'], q.name, holdfast.now() - q.retention
from holdfast.queues q
where q.retention < make_interval(secs => greatest($1::double precision, $2::double precision));

-- name: prune_jobs
-- Deletes up to $7 ended jobs with everything that belongs to them: those with an outcome of $2, of queue $3 (null
-- for all), that ended from $4 (null for ever) to before $5, with ids after $6, in order of id.
-- Answers how many there were and the last id; the latter is null where none is left.
-- A child is kept for as long as its parent lives or may be taken up again: it may still want the child's result.
-- What endpoints may yet have to be told of stays until the deliverer has come by.  A job that lives again loses only
-- the row of its former end.  Locks finished_jobs rows in id order, skipping those that others hold, so an operator's
-- retry and this never take the same job.  Only for the leader of term $1.
with old as materialized (
    select f.job_id from holdfast.finished_jobs f
    where f.outcome = any ($2::text[]) and ($3::text is null or f.queue = $3::text)
      and f.finished_at >= coalesce($4::timestamptz, '-infinity') and f.finished_at < $5::timestamptz
      and f.job_id > $6::bigint
      and (f.family_id is null or not exists (
               select from holdfast.live_jobs p where p.job_id = f.parent_id
               union all
               select from holdfast.finished_jobs p
               where p.job_id = f.parent_id and p.outcome in ('failed', 'cancelled')))
      and f.finished_at < coalesce((select min(p.moment) from holdfast.delivery_places p
                                    where exists (select from holdfast.endpoints)), 'infinity')
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by f.job_id
    limit $7::integer
    for update skip locked
), ended as (
    delete from holdfast.finished_jobs f
    where f.job_id = any (array(select o.job_id from old o)) and f.outcome = any ($2::text[])
      and f.finished_at >= coalesce($4::timestamptz, '-infinity') and f.finished_at < $5::timestamptz
), dead as materialized (
    select o.job_id from old o where not exists (select from holdfast.live_jobs l where l.job_id = o.job_id)
), asked as (
    delete from holdfast.jobs j where j.id = any (array(select d.job_id from dead d))
), tried as (
    delete from holdfast.attempts a where a.job_id = any (array(select d.job_id from dead d))
), saved as (
    delete from holdfast.checkpoints c where c.job_id = any (array(select d.job_id from dead d))
), written as (
    delete from holdfast.job_logs g where g.job_id = any (array(select d.job_id from dead d))
), streamed as (
    delete from holdfast.log_streams s where s.job_id = any (array(select d.job_id from dead d))
), sent_in as (
    delete from holdfast.log_chunks c where c.job_id = any (array(select d.job_id from dead d))
), placed as (
    delete from holdfast.placements p where p.job_id = any (array(select d.job_id from dead d))
), given as (
    delete from holdfast.assignments a where a.job_id = any (array(select d.job_id from dead d))
), left_behind as (
    delete from holdfast.artifacts a where a.job_id = any (array(select d.job_id from dead d))
), granted as (
    delete from holdfast.tokens k where k.job_id = any (array(select d.job_id from dead d))
), remembered as (
    delete from holdfast.steps s where s.run_id = any (array(select d.job_id from dead d))
), sent as (
    delete from holdfast.signals g where g.run_id = any (array(select d.job_id from dead d))
), slept as (
    delete from holdfast.suspensions s where s.run_id = any (array(select d.job_id from dead d))
), done as (
    delete from holdfast.activities a where a.run_id = any (array(select d.job_id from dead d))
), kept as (
    delete from holdfast.blobs b where b.run_id = any (array(select d.job_id from dead d))
)
select count(*), max(o.job_id) from old o;

-- name: prune_attempts
-- Deletes up to $3 suspended and snoozed attempts of living jobs that are older than $2 seconds, in whole UTC days: an
-- endless run leaves them behind for ever.  Failures stay with their job, and everything of an ended job goes with it.
-- Zero rows: none is that old.  Only for the leader of term $1.
delete from holdfast.attempts a
where a.ctid = any (array(
    select old.ctid from holdfast.attempts old
    where old.outcome in ('suspended', 'snoozed')
      and old.ended_at < date_trunc('day', holdfast.now() - make_interval(secs => $2::double precision), 'UTC')
      and exists (select from holdfast.live_jobs l where l.job_id = any (array[old.job_id]))
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning a.job_id;

-- name: prune_activities
-- Deletes up to $3 lines of the log of step calls of living runs that are older than $2 seconds, in whole UTC days.
-- Zero rows: none is that old.  Only for the leader of term $1.
delete from holdfast.activities a
where a.ctid = any (array(
    select old.ctid from holdfast.activities old
    where old.started_at < date_trunc('day', holdfast.now() - make_interval(secs => $2::double precision), 'UTC')
      and exists (select from holdfast.live_jobs l where l.job_id = any (array[old.run_id]))
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning a.run_id;

-- name: prune_logs
-- Deletes up to $3 log lines from the default partition that are older than $2 seconds, in whole UTC days.
-- Zero rows: nothing there is that old.  Only for the leader of term $1.
delete from holdfast.job_logs_rest g
where g.ctid = any (array(
    select old.ctid from holdfast.job_logs_rest old
    where old.at < date_trunc('day', holdfast.now() - make_interval(secs => $2::double precision), 'UTC')
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning g.job_id;

-- name: prune_chunks
-- Deletes up to $3 pieces of runners' logs from the default partition that are older than $2 seconds, in whole UTC days.
-- Zero rows: nothing there is that old.  Only for the leader of term $1.
delete from holdfast.log_chunks_rest c
where c.ctid = any (array(
    select old.ctid from holdfast.log_chunks_rest old
    where old.at < date_trunc('day', holdfast.now() - make_interval(secs => $2::double precision), 'UTC')
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning c.job_id;

-- name: prune_workers
-- Deletes the rows of workers that ended more than $2 seconds ago and hold nothing, and all tokens of those that were
-- runners: nobody is left to speak for.  Zero rows: there are none.  Only for the leader of term $1.
with gone as (
    delete from holdfast.workers w
    where w.state in ('offline', 'lost') and w.ended_at < holdfast.now() - make_interval(secs => $2::double precision)
      and not exists (select from holdfast.unfinished_jobs l where l.worker_id = w.id)
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    returning w.id
), silenced as (
    delete from holdfast.tokens k using gone g where k.worker_id = g.id
)
select g.id from gone g;

-- name: prune_routes
-- Deletes up to $3 shapes of jobs for runners that no living job has, where there are more than $2.
-- Only for the leader of term $1.
select holdfast.prune_routes($2::integer, $3::integer)
from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now();
