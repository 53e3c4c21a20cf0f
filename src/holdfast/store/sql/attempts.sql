-- Attempts: claimed, begun, put back, ended.
--
-- A row whose id comes from another row is looked up by `= any (array[x])`, or `>= x and <= x`: "The house" in docs/architecture.md
-- says why.  An insert into finished_jobs also locks rows of live_jobs, by trigger children_ended: the parents of children that
-- end, in id order; then, of runs that failed or were cancelled, the children that follow them, as far down as they go, in id order.

-- name: claim_jobs
-- Claims up to $5 jobs from queues without limits, in the order of the queues given, inside a queue by
-- priority, then oldest first.  The first $4 go to free slots and are running, the others are claimed for the buffer.
-- Locks the worker's own row against being declared lost meanwhile, then live_jobs rows, skipping
-- those that others hold.  Zero rows: nothing to do, every queue is paused or limited, or the worker may not claim.
-- A queue has twenty lines: its priorities, each with those that came back before those that are fresh.  In $6 stands for
-- each line of each queue the place after which to look: everything up to there is taken, but its dead rows may still be
-- in the index (rules/marks.py tells which places are safe).  Unless $7, fresh jobs are passed over that
-- somebody has locked or had: to learn that one is locked costs three times as much as to see its mark, and where many
-- claims are under way each walks over what the others have.  (What came back was locked on its way, and keeps the mark.)
-- jobs is met as it was when the statement began: a job replaced since then is left for the next claim, by its
-- revision.  By which of the two ways a row is looked up is a matter of 0.2 us: `>= and <=` is the quicker one.
-- part: holder
with holder as (
    select w.id from holdfast.workers w
    where w.id = $1::bigint and w.state = 'online' and w.expires_at > holdfast.now()
    for key share
)
-- end of part
-- part: picking
, picked as materialized (
    select array(
        select head.job_id
        from unnest($2::text[]) with ordinality as asked (queue, nth)
        cross join generate_series(0, 19) as line
        cross join lateral (
            select c.job_id from holdfast.live_jobs c
            where c.queue = asked.queue and c.priority = (line / 2)::smallint
              and c.place > (select $6::text::bigint[])[(asked.nth - 1) * 20 + line + 1]
              and c.place < case when line % 2 = 0 then 0 else 9223372036854775807 end
              and c.state = 'available' and c.concurrency_key is null and c.route_id is null and c.kind = any ($3::text[])
              and ($7::boolean or line % 2 = 0 or c.xmax = '0'::xid)
            order by c.place
            limit $5::integer
            for update skip locked
        ) head
        where (select h.id from holder h) is not null
          and not exists (
              select from holdfast.queues q
              where q.name = asked.queue and (q.paused or q.max_running is not null)
          )
        limit $5::integer
    ) as ids
)
-- end of part
update holdfast.live_jobs l
set state = case when $4::integer > 0 and l.job_id = any ((select p.ids[:$4::integer] from picked p)::bigint[]) then 'running'
                 else 'claimed' end,
    started_at = case when $4::integer > 0 and l.job_id = any ((select p.ids[:$4::integer] from picked p)::bigint[])
                      then holdfast.now() end,
    attempt = l.attempt + 1, worker_id = $1::bigint, claimed_at = holdfast.now(), progress = null, progress_note = null,
    ahead = false, in_turn = false
from holdfast.jobs j
where l.job_id = any ((select p.ids from picked p)::bigint[])
  and j.id >= l.job_id and j.id <= l.job_id and j.revision >= l.revision
-- part: answer
returning l.job_id, l.attempt, l.failures, l.kind, l.queue, l.priority::integer, j.max_attempts, j.timeout, j.args::text,
          j.retry::text, j.meta::text, nullif(j.tags, '{}'), j.trace, date_part('epoch', j.created_at),
          date_part('epoch', l.claimed_at), l.state = 'running', l.place, l.suspect;
-- end of part

-- name: claim_bundled
-- Claims as claim_jobs does, and takes what is fresh, and of kinds $8, out of live_jobs into bundles, each of them one row of the
-- answer, as take_jobs in the migrations says.  Locks as claim_jobs does.  Zero rows: as there.
-- put in: holder
-- put in: picking
select taken.* from picked p cross join lateral holdfast.take_jobs(
    $1::bigint, p.ids, p.ids[:$4::integer], '{}', '{}', $8::text[], holdfast.now(), false) taken;

-- name: claim_announced
-- Claims job $3 as running, if claim_jobs could take it: the short way of that for a worker at rest that was told of one job.
-- It looks into no line, and keeps nothing for later: arrays and a materialized part cost 0.08 ms of a process that has slept.
-- Written as num_nulls() no index of what is available can be planned for it.
-- Locks as claim_jobs does.  Zero rows: the job is not there to be claimed, not here, or not without more ado.
-- put in: holder
update holdfast.live_jobs l
set state = 'running', started_at = holdfast.now(), attempt = l.attempt + 1, worker_id = $1::bigint,
    claimed_at = holdfast.now(), progress = null, progress_note = null, ahead = false, in_turn = false
from holdfast.jobs j
where l.job_id = (
    select c.job_id from holdfast.live_jobs c
    where c.job_id = $3::bigint
      and c.state = 'available' and num_nulls(c.concurrency_key, c.route_id) = 2 and c.kind = any ($2::text[])
      and (select h.id from holder h) is not null
      and not exists (
          select from holdfast.queues q
          where q.name = c.queue and (q.paused or q.max_running is not null)
      )
    for update skip locked
)
  and j.id >= l.job_id and j.id <= l.job_id and j.revision >= l.revision
-- put in: answer

-- name: find_leftovers
-- What a worker must know before it trusts that all up to a place is taken: a number above those of all transactions that
-- have one, the numbers of those that run, for each line of each queue in $1 the first place after $3 and up to $4 that
-- is still available for kinds $2, null where there is none, when the server was started, and how many seconds it took to
-- find out (so that comes last).  The number is this
-- transaction's own: the snapshot says nothing of those that are younger than the last that has ended.  Locks nothing.
select greatest(pg_snapshot_xmax(s.shot), pg_current_xact_id())::text::bigint,
       to_json(array(select running::text::bigint from pg_snapshot_xip(s.shot) running))::text,
       to_json(array(
           select (
               select c.place from holdfast.live_jobs c
               where c.queue = asked.queue and c.priority = (line / 2)::smallint
                 and c.place > (select $3::text::bigint[])[(asked.nth - 1) * 20 + line + 1]
                 and c.place <= (select $4::text::bigint[])[(asked.nth - 1) * 20 + line + 1]
                 and c.state = 'available' and c.concurrency_key is null and c.route_id is null and c.kind = any ($2::text[])
               order by c.place limit 1
           )
           from unnest($1::text[]) with ordinality as asked (queue, nth) cross join generate_series(0, 19) as line
           order by asked.nth, line
       ))::text,
       extract(epoch from pg_postmaster_start_time())::double precision,
       extract(epoch from clock_timestamp() - statement_timestamp())::double precision
from (select pg_current_snapshot() as shot) s;

-- name: lock_limits
-- Serialises the claims of one limited queue until the transaction ends.
select pg_advisory_xact_lock(hashtext('holdfast.limits'), hashtext($1::text));

-- name: claim_limited
-- Claims up to $5 jobs from one queue under its limits, the first $4 of them running, and $6 ahead of permits or, up to $7 of each
-- key, of their key's turn, with what is more urgent than $9 say of keys $8, those of kinds $10 into bundles, as `claim_limited` in the
-- migrations says.
select * from holdfast.claim_limited(
    $1::bigint, $2::text, $3::text[], $4::integer, $5::integer, $6::integer, $7::integer, $8::text[], $9::text::integer[], $10::text[]);

-- name: finish_jobs
-- Ends attempts and their jobs: failed, cancelled, or completed where $3 has no outcome.  $7 is how many seconds each handler
-- ran; an array that has nothing to say of any, no outcome, reason, result, error or failure to add, may be empty.
-- Where permits were handed on (else $9 to $15 are empty), $9 to $11 are of these attempts, $12 to $15 of others that go on:
--   $9   over: how many seconds ago each ended; 0 where it handed none on
--   $10  since: how many seconds ago it was handed its permit; null where it was handed none
--   $11  root: with which of these jobs the permit that it was handed, or has handed on, was last written: itself if it is the first; else null
--   $12 to $15  job, attempt, since and root of each who has got one and goes on
-- What is recorded of a permit never goes back in time, though one statement may take longer to get here than the next one;
-- and nothing is told to be longer ago than delivery_horizon waits.
-- Locks live_jobs rows in the order given, which is id order, as everybody who waits for several rows does; then, in the same
-- way, those who go on; then as children_ended does.
-- An attempt that is missing from the answer has lost its lease, and nothing of it was written.
with ended as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text[], $4::text[], $5::text[]::jsonb[],
                         $6::text[], $7::text::double precision[], $8::text::integer[],
                         $9::text::double precision[], $10::text::double precision[], $11::text::bigint[])
        as e (job_id, attempt, outcome, reason, result, error, seconds, failed, over, since, root)
), gone as (
    delete from holdfast.live_jobs l using ended e
    where l.job_id = any (array[e.job_id]) and l.attempt = any (array[e.attempt]) and l.state in ('claimed', 'running')
    returning l.job_id, l.queue, l.kind, l.attempt, l.failures, l.worker_id, l.claimed_at, l.parent_id, l.family_id,
              e.outcome, e.reason, e.result, e.error, e.seconds, e.failed, coalesce(e.over, 0) as over, e.root,
              -- Who waited for the turn of its key, and not for a permit, is told to have been claimed as it began.
              coalesce(e.since, case when l.in_turn then e.seconds end) as since
), root_claims as (
    -- One value to look them up in, as text that loses nothing: joined, each would be compared with each, for there seem to be few.
    select jsonb_object_agg(g.job_id, g.claimed_at) as by_job from gone g where g.root = g.job_id
), permitted as (
    update holdfast.live_jobs l
    set ahead = false, claimed_at = greatest(l.claimed_at, p.permitted_at),
        started_at = case when l.started_at is not null then greatest(l.started_at, p.permitted_at) end
    from unnest($12::text::bigint[], $13::text::integer[], $14::text::double precision[], $15::text::bigint[])
             as h (job_id, attempt, since, root)
    cross join lateral (
        select greatest(((select r.by_job from root_claims r) ->> h.root::text)::timestamptz,
                        holdfast.now() - make_interval(secs => h.since)) as permitted_at
    ) p
    where l.job_id = any (array[h.job_id]) and l.attempt = any (array[h.attempt]) and l.state in ('claimed', 'running')
      and l.ahead
), permit as (
    select g.*, greatest(g.claimed_at, ((select r.by_job from root_claims r) ->> g.root::text)::timestamptz,
                         holdfast.now() - make_interval(secs => g.since)) as permitted_at
    from gone g
)
insert into holdfast.finished_jobs (job_id, queue, kind, outcome, reason, attempt, failures, worker_id, claimed_at,
                                    started_at, finished_at, result, error, parent_id, family_id)
select g.job_id, g.queue, g.kind, coalesce(g.outcome, 'completed'), g.reason, g.attempt,
       g.failures + coalesce(g.failed, 0), g.worker_id, g.permitted_at,
       greatest(g.permitted_at, holdfast.now() - make_interval(secs => g.seconds + g.over)),
       greatest(g.permitted_at, holdfast.now() - make_interval(secs => g.over)), g.result, g.error, g.parent_id, g.family_id
from permit g
returning job_id;

-- name: complete_jobs
-- Ends attempts that have nothing to say but that they are completed, and their jobs: what finish_jobs does, for the case of
-- nearly all jobs at seven eighths of its price, and four fifths where few end at once.  $3 is how
-- many seconds each handler ran.  The partition is named, so no trigger looks for parents of children: those are left to finish_jobs.
-- Locks live_jobs rows in the order given, which is id order.
-- An attempt that is missing from the answer has lost its lease or is a child, and nothing of it was written.
with gone as (
    delete from holdfast.live_jobs l
    using unnest($1::text::bigint[], $2::text::integer[], $3::text::double precision[]) as e (job_id, attempt, seconds)
    where l.job_id >= e.job_id and l.job_id <= e.job_id and l.attempt = any (array[e.attempt])
      and l.state in ('claimed', 'running') and l.family_id is null
    returning l.job_id, l.queue, l.kind, l.attempt, l.failures, l.worker_id, l.claimed_at, l.in_turn, l.parent_id, e.seconds
)
insert into holdfast.finished_completed (job_id, queue, kind, outcome, attempt, failures, worker_id, claimed_at, started_at,
                                         finished_at, parent_id)
select g.job_id, g.queue, g.kind, 'completed', g.attempt, g.failures, g.worker_id,
       case when g.in_turn then greatest(g.claimed_at, holdfast.now() - make_interval(secs => g.seconds)) else g.claimed_at end,
       greatest(g.claimed_at, holdfast.now() - make_interval(secs => g.seconds)), greatest(g.claimed_at, holdfast.now()),
       g.parent_id
from gone g
returning job_id;

-- name: complete_one
-- Completes one attempt and its job with the result $3 of a handler that ran $4 seconds, in a transaction of the caller's: as
-- finish_jobs does, which is planned anew each time where a session does not pin its plans.  Locks its row of live_jobs, then, of a
-- child, that of its parent, as children_ended does.
-- Zero rows: the attempt has lost its lease, and nothing of it was written.
with gone as (
    delete from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    returning l.job_id, l.queue, l.kind, l.attempt, l.failures, l.worker_id, l.claimed_at, l.in_turn, l.parent_id, l.family_id
)
insert into holdfast.finished_jobs (job_id, queue, kind, outcome, attempt, failures, worker_id, claimed_at, started_at,
                                    finished_at, result, parent_id, family_id)
select g.job_id, g.queue, g.kind, 'completed', g.attempt, g.failures, g.worker_id,
       case when g.in_turn then greatest(g.claimed_at, holdfast.now() - make_interval(secs => $4::double precision))
            else g.claimed_at end,
       greatest(g.claimed_at, holdfast.now() - make_interval(secs => $4::double precision)), greatest(g.claimed_at, holdfast.now()),
       $3::text::jsonb, g.parent_id, g.family_id
from gone g
returning job_id;

-- name: put_back_jobs
-- Ends attempts whose jobs go on: retried, snoozed, released.  $4 is the delay in seconds, $5 how many failures to add.
-- A job whose cancel was requested ends as cancelled instead, but for a run with steps to make up for.  Locks live_jobs rows in id order,
-- then, where one is cancelled, as children_ended does.
-- An attempt that is missing from the answer has lost its lease, and nothing of it was written.
with ended as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text[], $4::text::double precision[],
                         $5::text::integer[], $6::text[], $7::text[])
        as e (job_id, attempt, outcome, delay, failed, reason, error)
), held as materialized (
    select l.job_id, l.queue, l.priority, l.kind, l.attempt, l.failures + e.failed as failures, l.worker_id, l.claimed_at,
           l.started_at, l.parent_id, l.family_id, e.outcome, e.delay, e.reason, e.error,
           l.cancel_requested_at is not null
           and not exists (select from holdfast.steps s where s.run_id = any (array[l.job_id])) as cancelled
    from holdfast.live_jobs l join ended e on l.job_id = any (array[e.job_id]) and l.attempt = any (array[e.attempt])
    where l.state in ('claimed', 'running')
    order by e.job_id
    for update of l
), gone as (
    delete from holdfast.live_jobs l using held h where l.job_id = any (array[h.job_id]) and h.cancelled
), finished as (
    insert into holdfast.finished_jobs (job_id, queue, kind, outcome, reason, attempt, failures, worker_id, claimed_at,
                                        started_at, finished_at, error, parent_id, family_id)
    select h.job_id, h.queue, h.kind, 'cancelled', 'cancel requested; last attempt: ' || h.reason, h.attempt, h.failures, h.worker_id,
           h.claimed_at, h.started_at, holdfast.now(), h.error, h.parent_id, h.family_id
    from held h where h.cancelled
), moved as (
    update holdfast.live_jobs l
    set state = case when h.delay > 0 then 'scheduled' else 'available' end,
        run_at = holdfast.now() + make_interval(secs => h.delay), failures = h.failures, worker_id = null,
        claimed_at = null, started_at = null, progress = null, progress_note = null,
        suspect = l.suspect and h.outcome = 'released'
    from held h where l.job_id = any (array[h.job_id]) and not h.cancelled
), noted as (
    insert into holdfast.attempts (job_id, attempt, outcome, reason, error, worker_id, claimed_at, started_at, ended_at)
    select h.job_id, h.attempt, h.outcome, h.reason, h.error, h.worker_id, h.claimed_at, h.started_at, holdfast.now()
    from held h where not h.cancelled
), woken as (
    select holdfast.wake(array_agg(distinct h.queue), min(h.priority)) from held h where h.delay <= 0 having count(*) > 0
), staged as (
    select holdfast.wake_stager(holdfast.now() + make_interval(secs => min(h.delay))) from held h
    where h.delay > 0 having count(*) > 0
)
select h.job_id from held h, (select count(*) from woken) w, (select count(*) from staged) s;

-- name: last_failure
-- Why the last attempt of a job failed that counted as a failure.  Zero rows: none has.  Locks nothing.
select a.reason, a.error from holdfast.attempts a
where a.job_id = $1::bigint and a.outcome in ('lost', 'retried')
order by a.attempt desc limit 1;

-- name: start_jobs
-- Marks buffered attempts whose handlers have begun.  $3 is how many seconds ago each began.
-- Locks live_jobs rows in the order given, which is id order.  An attempt that is missing from the answer runs
-- already, or has lost its lease.
with begun as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text::double precision[]) as b (job_id, attempt, seconds)
)
update holdfast.live_jobs l
set state = 'running', started_at = greatest(l.claimed_at, holdfast.now() - make_interval(secs => b.seconds))
from begun b
where l.job_id = any (array[b.job_id]) and l.attempt = any (array[b.attempt]) and l.state = 'claimed'
returning l.job_id;

-- name: report_progress
-- Writes how far an attempt is, 0 to 1, with a note.  Zero rows: the lease was lost.
update holdfast.live_jobs l
set progress = $3::real, progress_note = $4::text
where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
returning l.job_id;

-- name: cancel_requests
-- Which of the jobs $1 somebody wants stopped, with the attempts that hold them.  Zero rows: none of them.  Locks nothing.
select l.job_id, l.attempt from holdfast.live_jobs l
where l.job_id = any ($1::text::bigint[]) and l.state in ('claimed', 'running') and l.cancel_requested_at is not null;

-- name: attempt_outcomes
-- How attempts have ended, as history says; one that is missing has not.
with asked as materialized (
    select * from unnest($1::text::bigint[], $2::text::integer[]) as a (job_id, attempt)
)
select h.job_id, h.attempt, h.outcome
from asked a join holdfast.attempts h on h.job_id = any (array[a.job_id]) and h.attempt = any (array[a.attempt])
union all
select f.job_id, f.attempt, f.outcome
from asked a join holdfast.finished_jobs f on f.job_id = any (array[a.job_id]) and f.attempt = any (array[a.attempt]);

-- name: held_attempts
-- What a worker holds in live_jobs, so all that is not in bundles, for it to compare itself with.  Zero rows: nothing.  Locks nothing.
select l.job_id, l.attempt from holdfast.live_jobs l where l.worker_id = $1::bigint;
