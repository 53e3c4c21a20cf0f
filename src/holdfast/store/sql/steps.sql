-- What runs remember of their steps, and the log of every call.

-- name: load_steps
-- Everything that these runs remember, in order of run, branch and place, each row behind its run, the database's now,
-- whether a cancel and whether a pause was requested; one row without a step where nothing was recorded.  A run that is
-- missing has ended.  The last column tells whether children live that a place waits for.
select l.job_id, holdfast.now(), l.cancel_requested_at is not null,
       exists (select from holdfast.suspensions p where p.run_id = any (array[l.job_id]) and p.paused),
       s.branch, s.place, s.name, s.kind, s.state, s.tries, s.wake_at, s.child_id, s.result::text, s.error::text,
       s.detail::text,
       s.state = 'running' and exists (select from holdfast.live_jobs c where c.family_id = any (array[s.child_id]))
from holdfast.live_jobs l left join holdfast.steps s on s.run_id = any (array[l.job_id])
where l.job_id = any ($1::text::bigint[])
order by l.job_id, s.branch, s.place;

-- name: save_steps
-- Writes places of held runs, and a line of the log for each call of a step ($15 is its parameters, null for none), one
-- array per column.  $9 is how many seconds ago the place began, null where it has not, $10 in how many it wakes.
-- What has ended stays as it is, and nothing gives way to an older attempt or an earlier try; of several notes about
-- one place the furthest is written.  What is not written is not logged: asked again, it logs nothing twice.
-- Locks live_jobs rows in id order, so that nobody takes a run meanwhile.  Answers each run whose lease still held, and
-- whether somebody wants it paused; of a run that is missing from the answer nothing was written.
with noted as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text[], $4::text::integer[], $5::text[], $6::text[], $7::text[],
                         $8::text::integer[], $9::text::double precision[], $10::text::double precision[], $11::text[]::json[],
                         $12::text[]::json[], $13::text[]::jsonb[], $14::text[]::json[], $15::text[]::json[])
        as n (run_id, attempt, branch, place, name, kind, state, tries, seconds, wake_in, result, error, detail,
              shown, parameters)
), held as materialized (
    select l.job_id, l.attempt
    from (select distinct n.run_id, n.attempt from noted n) a
    join holdfast.live_jobs l on l.job_id = any (array[a.run_id]) and l.attempt = any (array[a.attempt])
    where l.state in ('claimed', 'running')
    order by a.run_id
    for share of l
), written as (
    insert into holdfast.steps as s (run_id, branch, place, name, kind, state, attempt, tries, started_at, finished_at,
                                     wake_at, result, error, detail)
    select distinct on (n.run_id, n.branch, n.place)
           n.run_id, n.branch, n.place, n.name, n.kind, n.state, n.attempt, n.tries,
           holdfast.now() - make_interval(secs => n.seconds),
           case when n.state in ('completed', 'failed') then holdfast.now() end,
           holdfast.now() + make_interval(secs => n.wake_in), n.result, n.error, n.detail
    from noted n join held h on h.job_id = n.run_id and h.attempt = n.attempt
    order by n.run_id, n.branch, n.place, n.state in ('completed', 'failed') desc, n.tries desc, n.state = 'retrying' desc
    on conflict (run_id, branch, place) do update
    set name = excluded.name, kind = excluded.kind, state = excluded.state, attempt = excluded.attempt,
        tries = excluded.tries, started_at = coalesce(s.started_at, excluded.started_at),
        finished_at = excluded.finished_at, wake_at = excluded.wake_at, result = excluded.result,
        error = excluded.error, detail = coalesce(excluded.detail, s.detail)
    where s.state in ('running', 'retrying')
      and (excluded.state in ('completed', 'failed')
           or (excluded.attempt, excluded.tries, excluded.state = 'retrying') > (s.attempt, s.tries, s.state = 'retrying'))
    returning s.run_id, s.branch, s.place
), logged as (
    insert into holdfast.activities (run_id, attempt, branch, place, step, try, parameters, result, error, started_at,
                                     seconds)
    select n.run_id, n.attempt, n.branch, n.place, n.name, n.tries, n.parameters,
           case when n.error is null then n.shown end, case when n.error is not null then coalesce(n.shown, n.error) end,
           holdfast.now() - make_interval(secs => n.seconds), n.seconds
    from noted n join written w on w.run_id = n.run_id and w.branch = n.branch and w.place = n.place
    where n.parameters is not null
)
select h.job_id, exists (select from holdfast.suspensions p where p.run_id = any (array[h.job_id]) and p.paused)
from held h;

-- name: list_steps
-- The progress of a run's steps, in the order in which they began, up to $4 of those behind place $3 of branch $2 (null:
-- from the first on).  Zero rows: nothing else was recorded, or there is no such place.
select s.branch, s.place, s.name, s.kind, s.state, s.attempt, s.tries, s.started_at, s.finished_at, s.wake_at,
       s.child_id, s.result::text, s.error::text, s.detail::text
from holdfast.steps s
where s.run_id = $1::bigint and s.place >= 0
  and ($2::text is null or (coalesce(s.started_at, s.finished_at, 'infinity'), s.branch, s.place) > (
           select coalesce(p.started_at, p.finished_at, 'infinity'), p.branch, p.place from holdfast.steps p
           where p.run_id = $1::bigint and p.branch = $2::text and p.place = $3::integer))
order by coalesce(s.started_at, s.finished_at, 'infinity'), s.branch, s.place
limit $4::integer;

-- name: list_activities
-- The log of a run's step calls after line $2, at most $3, in the order in which they were written.
select a.id, a.attempt, a.branch, a.place, a.step, a.try, a.parameters::text, a.result::text, a.error::text,
       a.started_at, a.seconds
from holdfast.activities a where a.run_id = $1::bigint and a.id > $2::bigint
order by a.id limit $3::integer;
