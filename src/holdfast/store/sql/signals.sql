-- Messages to runs.

-- name: send_signal
-- Sends a signal; answers its id, or that of the earlier one with the same key.  Raises HF002 where the run has ended.
-- Locks the run's row in live_jobs, but only while the transaction commits.
select holdfast.send_signal($1::bigint, $2::text, $3::text::json, $4::text);

-- name: take_signal
-- Gives the oldest unread signal of name $5 to the place that waits for it, and records it there in the same statement.
-- Asked again for the same place, it answers what it gave before.  Answers whether there was one, and its payload.
-- Zero rows: the lease was lost.  Locks the live_jobs row, so that nobody takes the run meanwhile, and the signal's, so
-- that of two branches each gets one of its own.
with held as materialized (
    select l.job_id, l.attempt from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for share
), prior as materialized (
    select s.result from holdfast.steps s
    where s.run_id = $1::bigint and s.branch = $3::text and s.place = $4::integer and s.state = 'completed'
), first as (
    select g.id from holdfast.signals g, held h
    where g.run_id = h.job_id and g.name = $5::text and g.consumed_at is null
      and not exists (select from prior)
    order by g.id limit 1
    for update of g
), taken as (
    update holdfast.signals g set consumed_at = holdfast.now(), branch = $3::text, place = $4::integer
    from first f where g.id = f.id
    returning g.payload
), noted as (
    insert into holdfast.steps as s (run_id, branch, place, name, kind, state, attempt, started_at, finished_at, result)
    select h.job_id, $3::text, $4::integer, $5::text, 'signal', 'completed', h.attempt, holdfast.now(), holdfast.now(),
           json_build_array(t.payload)
    from held h, taken t
    on conflict (run_id, branch, place) do update
    set state = 'completed', attempt = excluded.attempt, finished_at = excluded.finished_at, result = excluded.result,
        wake_at = null
    returning s.result
)
select coalesce((select n.result from noted n)::text, (select p.result from prior p)::text) from held;

-- name: list_signals
-- The signals that a run has not read yet, oldest first: id, name, key, when it was sent.
select g.id, g.name, g.key, g.sent_at from holdfast.signals g
where g.run_id = $1::bigint and g.consumed_at is null
order by g.id limit 1000;
