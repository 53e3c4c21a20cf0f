-- name: append_activities
-- Writes lines of the log of step calls of held runs, one array per column, in the order given.  $10 is how many seconds
-- ago each call began, $11 how long it took.  $12 says that the same lines may have been written before, by a statement
-- whose answer was lost: what is there by its attempt, place and try is left out then.  Locks live_jobs rows in id order, so that nobody takes a run meanwhile.
-- Answers the run of each line; of a run that has lost its lease nothing was written.
with noted as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text[], $4::text::integer[], $5::text[],
                         $6::text::integer[], $7::text[]::json[], $8::text[]::json[], $9::text[]::json[],
                         $10::text::double precision[], $11::text::double precision[])
        with ordinality
        as n (run_id, attempt, branch, place, step, try, parameters, result, error, ago, seconds, nth)
), held as materialized (
    select l.job_id, l.attempt
    from (select distinct n.run_id, n.attempt from noted n) a
    join holdfast.live_jobs l on l.job_id = any (array[a.run_id]) and l.attempt = any (array[a.attempt])
    where l.state in ('claimed', 'running')
    order by a.run_id
    for share of l
)
insert into holdfast.activities (run_id, attempt, branch, place, step, try, parameters, result, error, started_at, seconds)
select n.run_id, n.attempt, n.branch, n.place, n.step, n.try, n.parameters, n.result, n.error,
       holdfast.now() - make_interval(secs => n.ago), n.seconds
from noted n
-- `is true` keeps the planner from a join, as in append_logs.
where ((n.run_id, n.attempt) in (select h.job_id, h.attempt from held h)) is true
  and (not $12::boolean or not exists (
      select from holdfast.activities a
      where a.run_id = any (array[n.run_id]) and a.attempt = n.attempt and a.branch = n.branch and a.place = n.place
        and a.try = n.try
  ))
order by n.nth
returning run_id;
