-- The children of runs.

-- name: start_children
-- Enqueues the children of a place of a held run, with the row of the place, and answers their family.
-- Where the parent's cancel was requested, or it is paused, nothing is enqueued any more, and 0 is answered: nobody would
-- cancel or pause them.
-- Locks the parent's live_jobs row, so that nobody takes it meanwhile.  Zero rows: the lease was lost.
with held as materialized (
    select l.job_id, l.attempt, l.cancel_requested_at from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for share
)
select case when h.cancel_requested_at is null then holdfast.place_children(holdfast.start_children(
    h.job_id, h.attempt, $3::text, $4::integer, $5::text, $6::text, $7::text::jsonb, $8::text[], $9::text[],
    $10::text[]::jsonb[], $11::text::smallint[], $12::text::integer[], $13::text::double precision[], $14::text[]::timestamptz[],
    $15::text::double precision[], $16::text[]::jsonb[], $17::text[], $18::text[], $19::text[]::jsonb[], $20::text[]),
    $21::text[]::jsonb[]) else 0 end
from held h;

-- name: take_children
-- Records at their place how the $6 children of family $5 ended, once all have: id, outcome, result and reason of each.
-- Answers what is recorded, null while one of them lives; how many bytes there are to record where those are more than
-- $7; and how many ends are missing where none of them lives, for history is kept for a time: in both cases nothing is.
-- Zero rows: the lease was lost.  Locks the parent's live_jobs row, so that nobody takes it meanwhile.
with held as materialized (
    select l.job_id, l.attempt from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for share
), alive as materialized (
    select l.job_id from holdfast.live_jobs l where l.family_id = $5::bigint
    order by l.family_id desc, l.job_id desc limit 1
), ends as (
    select json_agg(json_build_array(f.job_id, f.outcome, f.result, f.reason) order by f.job_id) as told, count(*) as n
    from holdfast.finished_jobs f
    where f.family_id = $5::bigint and not exists (select from alive)
), noted as (
    update holdfast.steps s set state = 'completed', finished_at = holdfast.now(), result = e.told
    from held h, ends e
    where s.run_id = h.job_id and s.branch = $3::text and s.place = $4::integer and s.state = 'running'
      and e.n = $6::bigint and coalesce(octet_length(e.told::text), 0) <= $7::bigint
    returning s.result
)
select coalesce(
    (select n.result from noted n)::text,
    (select s.result from holdfast.steps s
     where s.run_id = $1::bigint and s.branch = $3::text and s.place = $4::integer and s.state = 'completed')::text),
    (select octet_length(e.told::text) from ends e where e.n = $6::bigint and octet_length(e.told::text) > $7::bigint),
    (select $6::bigint - e.n from ends e where e.n < $6::bigint and not exists (select from alive))
from held;
