-- Messages to runs.

-- name: send_signal
-- Sends a signal; answers its id, or that of the earlier one with the same key.  Raises HF002 where the run has ended.
-- Locks the run's row in live_jobs, but only while the transaction commits.
select holdfast.send_signal($1::bigint, $2::text, $3::text::json, $4::text);

-- name: take_signals
-- Gives each place that waits ($3, $4) the oldest unread signal of its name $5, and records it there in the same
-- statement; of several places of a run that wait for the same name, the first in the order given gets the oldest.
-- Asked again for the same place, it answers what it gave before.  Answers for each, by its number, whether there was
-- one, its payload, and whether somebody wants the run paused; one that is missing has lost its lease.  Locks live_jobs
-- rows in id order, so that nobody takes a run meanwhile, and the signals', so that of two branches each gets one of
-- its own.
with asked as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text[], $4::text::integer[], $5::text[]) with ordinality
        as a (run_id, attempt, branch, place, name, nth)
), held as materialized (
    select l.job_id, l.attempt
    from (select distinct a.run_id, a.attempt from asked a) r
    join holdfast.live_jobs l on l.job_id = any (array[r.run_id]) and l.attempt = any (array[r.attempt])
    where l.state in ('claimed', 'running')
    order by r.run_id
    for share of l
), prior as materialized (
    select a.nth, s.result
    from asked a join holdfast.steps s
      on s.run_id = any (array[a.run_id]) and s.branch = any (array[a.branch]) and s.place = any (array[a.place])
    where s.state = 'completed'
), wanting as (
    select a.*, row_number() over (partition by a.run_id, a.name order by a.nth) - 1 as ahead
    from asked a
    -- `is true` keeps the planner from a join, as in append_logs.
    where ((a.run_id, a.attempt) in (select h.job_id, h.attempt from held h)) is true
      and a.nth not in (select p.nth from prior p)
), found as materialized (
    select w.*, g.id
    from wanting w cross join lateral (
        select g.id from holdfast.signals g
        where g.run_id = w.run_id and g.name = w.name and g.consumed_at is null
        order by g.id offset w.ahead limit 1
        for update of g
    ) g
), taken as (
    update holdfast.signals g set consumed_at = holdfast.now(), branch = f.branch, place = f.place
    from found f
    -- All are found before the first is taken: what this statement has changed already is passed over and not counted.
    where g.id = any (array[f.id]) and (select count(*) from found) > 0
    returning f.nth, g.payload
), noted as (
    insert into holdfast.steps as s (run_id, branch, place, name, kind, state, attempt, started_at, finished_at, result)
    select f.run_id, f.branch, f.place, f.name, 'signal', 'completed', f.attempt, holdfast.now(), holdfast.now(),
           json_build_array(t.payload)
    from found f join taken t on t.nth = f.nth
    on conflict (run_id, branch, place) do update
    set state = 'completed', attempt = excluded.attempt, finished_at = excluded.finished_at, result = excluded.result,
        wake_at = null
    returning s.run_id, s.branch, s.place, s.result
)
select a.nth, coalesce(n.result, p.result)::text,
       exists (select from holdfast.suspensions q where q.run_id = any (array[a.run_id]) and q.paused)
from asked a
left join noted n on n.run_id = a.run_id and n.branch = a.branch and n.place = a.place
left join prior p on p.nth = a.nth
where ((a.run_id, a.attempt) in (select h.job_id, h.attempt from held h)) is true;

-- name: list_signals
-- The signals that a run has not read yet, oldest first: id, name, key, when it was sent.
select g.id, g.name, g.key, g.sent_at from holdfast.signals g
where g.run_id = $1::bigint and g.consumed_at is null
order by g.id limit 1000;
