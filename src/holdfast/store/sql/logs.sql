-- name: append_logs
-- Appends lines to the logs of held attempts, one array per column.  Locks their live_jobs rows in id order, so that
-- nobody takes a job meanwhile, and tells whoever follows them.  $7 says that the same lines may have been written before, by
-- a statement whose answer was lost: what is there by its attempt and place is left out then.
-- Lines of an attempt whose lease was lost are not written; answers the jobs whose lease still held.
with line as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[], $4::text[]::timestamptz[],
                         $5::text[], $6::text[])
        as n (job_id, attempt, byte_offset, at, level, line)
), held as (
    select l.job_id, l.attempt
    from (select distinct n.job_id, n.attempt from line n) a
    join holdfast.live_jobs l on l.job_id = any (array[a.job_id]) and l.attempt = any (array[a.attempt])
    where l.state in ('claimed', 'running')
    order by a.job_id
    for share of l
), written as (
    insert into holdfast.job_logs (job_id, attempt, byte_offset, at, level, line)
    select n.job_id, n.attempt, n.byte_offset, n.at, n.level, n.line
    from line n
    -- `is true` keeps the planner from a join: to it there are few of both, and it would compare each line with each attempt.
    where ((n.job_id, n.attempt) in (select h.job_id, h.attempt from held h)) is true
      and (not $7::boolean or not exists (
          select from holdfast.job_logs g
          where g.job_id = any (array[n.job_id]) and g.attempt = n.attempt and g.byte_offset = n.byte_offset
      ))
), told as (
    select holdfast.tell_watchers(h.job_id) from held h where exists (select from holdfast.log_watches)
)
select h.job_id from held h, (select count(*) from told) t;

-- name: follow_logs
-- Up to $5 lines of a job after byte $3 of attempt $2, in order; of attempt $4 alone where it is given.
select g.attempt, g.byte_offset, g.at, g.level, g.line
from holdfast.job_logs g
where g.job_id = $1::bigint and (g.attempt, g.byte_offset) > ($2::integer, $3::bigint)
  and ($4::integer is null or g.attempt = $4::integer)
order by g.attempt, g.byte_offset
limit $5::integer;

-- name: last_logs
-- The last $3 lines of a job, newest first; of attempt $2 alone where it is given.
select g.attempt, g.byte_offset, g.at, g.level, g.line
from holdfast.job_logs g
where g.job_id = $1::bigint and ($2::integer is null or g.attempt = $2::integer)
order by g.attempt desc, g.byte_offset desc
limit $3::integer;
