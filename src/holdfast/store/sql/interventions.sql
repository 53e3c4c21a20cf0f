-- What operators do to jobs.  Each act is written to audit_log by the statement that does it.  What children_ended locks
-- is said in attempts.sql.

-- name: cancel_jobs
-- Cancels jobs by id that are in one of the states $4, and the children of runs that follow their parent, as far down as they
-- go: see holdfast.cancel_tree.  Locks live_jobs rows in id order, then those of children, then, where some end at once, as
-- children_ended does.  A job without a row in the answer is in another state, has ended or never was.
with meant as materialized (
    select l.job_id from holdfast.live_jobs l
    where l.job_id = any ($1::bigint[]) and l.state = any ($4::text[])
    order by l.job_id for update
), target as materialized (
    select * from holdfast.cancel_tree(array(select m.job_id from meant m), coalesce($3::text, 'cancelled by ' || $2::text))
), audited as (
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    select holdfast.now(), $2::text, 'job.cancel', 'job ' || t.job_id, $3::text, jsonb_build_object(
        'before', jsonb_build_object('state', t.state, 'attempt', t.attempt, 'failures', t.failures, 'worker_id', t.worker_id),
        'after', jsonb_build_object('state', case when t.worker_id is not null then t.state when t.begun then 'available'
                                                  else 'cancelled' end,
                                    'cancel_requested', t.worker_id is not null or t.begun))
    from target t order by t.job_id
)
select t.job_id, t.worker_id is null and not t.begun from target t order by t.job_id;

-- name: discard_jobs
-- Ends jobs by id as failed that nobody holds and that are in one of the states $4; what they waited for is forgotten.
-- Locks live_jobs rows in id order, then as children_ended does.  A job without a row in the answer is held, in another state, has
-- ended or never was.
with target as materialized (
    select l.* from holdfast.live_jobs l
    where l.job_id = any ($1::bigint[]) and l.worker_id is null and l.state = any ($4::text[])
    order by l.job_id for update
), gone as (
    delete from holdfast.live_jobs l using target t where l.job_id = any (array[t.job_id])
), awake as (
    delete from holdfast.suspensions s using target t where s.run_id = t.job_id
), ended as (
    insert into holdfast.finished_jobs (job_id, queue, kind, outcome, reason, attempt, failures, finished_at, parent_id,
                                        family_id)
    select t.job_id, t.queue, t.kind, 'failed', 'discarded by ' || $2::text || coalesce(': ' || $3::text, ''), t.attempt,
           t.failures, holdfast.now(), t.parent_id, t.family_id
    from target t
), audited as (
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    select holdfast.now(), $2::text, 'job.discard', 'job ' || t.job_id, $3::text, jsonb_build_object(
        'before', jsonb_build_object('state', t.state, 'attempt', t.attempt, 'failures', t.failures),
        'after', jsonb_build_object('state', 'failed'))
    from target t order by t.job_id
)
select t.job_id from target t order by t.job_id;

-- name: retry_jobs
-- Takes up failed and cancelled jobs again, with all their attempts to spend, and makes scheduled ones available now: those
-- that are in one of the states $4.
-- How a job had ended becomes a row of its attempts.  Answers each job, with its unique key and the live job that holds
-- that key where it stays as it is for that (0: it has just ended), else with nulls.  Locks finished_jobs, then live_jobs rows, in id order;
-- and placements, whose runner nobody takes back meanwhile.
-- A run goes on from its failed step: the failure of a step or a child that nothing followed, in its branch or in those
-- above it, is forgotten; of many children, and of those that it still waited for, those are taken up that did not end
-- well, as far down as they go, and it looks again how all of them end.  Where its key is taken none of them is.  What a fork remembers are the children of another
-- run: they are forgotten together, and begin anew as its own.  One that has made up for its steps stays as it is; a child of that sort begins
-- anew with nothing remembered, and other random values.  A job without a row in the answer is in another state or never was.
with recursive again as (
    select f.job_id, null::bigint as taken_by from holdfast.finished_jobs f
    where f.job_id = any ($1::bigint[]) and f.outcome in ('failed', 'cancelled') and f.outcome = any ($4::text[])
      and not exists (select from holdfast.steps s where s.run_id = f.job_id and s.branch = 'compensation')
    union
    select c.job_id, a.job_id from again a
    cross join lateral (
        select f.job_id
        from holdfast.steps s join holdfast.finished_jobs f on f.family_id = s.child_id
        where s.run_id = a.job_id
          and ((s.kind = 'children' and s.state = 'completed') or (s.kind in ('child', 'children') and s.state = 'running'))
          and f.parent_id = a.job_id and f.outcome in ('failed', 'cancelled')
          and not exists (select from holdfast.steps m where m.run_id = a.job_id and m.branch = 'compensation')
          and holdfast.is_last(s)
        offset 0
    ) c
), ended as materialized (
    select f.* from holdfast.finished_jobs f
    where f.job_id in (select a.job_id from again a) and f.outcome in ('failed', 'cancelled')
    order by f.job_id for update
), due_later as materialized (
    select l.job_id, l.queue, l.priority, l.attempt, l.failures, l.run_at from holdfast.live_jobs l
    where l.job_id = any ($1::bigint[]) and l.state = 'scheduled' and l.state = any ($4::text[])
    order by l.job_id for update
), wanted as (
    select e.job_id, j.queue, j.kind, j.priority, 'available', e.attempt, holdfast.now(), j.unique_key,
           j.concurrency_key, j.revision, e.parent_id, e.family_id,
           (select holdfast.route_for(j.queue, j.kind, p.labels, p.runner)
            from holdfast.placements p where p.job_id = j.id for share)
    from ended e join holdfast.jobs j on j.id = any (array[e.job_id])
), admitted as (
    insert into holdfast.live_jobs (job_id, queue, kind, priority, state, attempt, run_at, unique_key, concurrency_key,
                                    revision, parent_id, family_id, route_id)
    select w.* from wanted w where w.job_id in (select a.job_id from again a where a.taken_by is null)
    order by w.unique_key, w.job_id
    on conflict do nothing
    returning job_id, queue, priority, attempt
), going as (
    select d.job_id from admitted d
    union
    select a.job_id from going g join again a on a.taken_by = g.job_id
), followed as (
    insert into holdfast.live_jobs (job_id, queue, kind, priority, state, attempt, run_at, unique_key, concurrency_key,
                                    revision, parent_id, family_id, route_id)
    select w.* from wanted w
    where w.job_id in (select g.job_id from going g except select a.job_id from again a where a.taken_by is null)
    order by w.job_id
    returning job_id, queue, priority, attempt
), lived as (
    select * from admitted union all select * from followed
), undone as materialized (
    select v.job_id, v.attempt from lived v
    where exists (select from holdfast.steps m where m.run_id = any (array[v.job_id]) and m.branch = 'compensation')
), gone as (
    delete from holdfast.finished_jobs f using lived v
    where f.job_id = any (array[v.job_id]) and f.outcome in ('failed', 'cancelled')
), forgotten as (
    delete from holdfast.steps s using lived v
    where s.run_id = v.job_id and holdfast.is_last(s) and v.job_id not in (select u.job_id from undone u)
      and (s.state in ('failed', 'retrying')
           or s.kind in ('child', 'children') and s.result::jsonb @? '$[*][1] ? (@ != "completed")'
              and (s.kind = 'child' or not holdfast.has_own_children(s)))
), emptied as (
    delete from holdfast.steps s using undone u where s.run_id = u.job_id and (s.branch, s.place) <> ('main', -1)
), seeded as (
    insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt, result)
    select u.job_id, 'main', -1, 'seed', 'seed', 'completed', u.attempt,
           to_json('anew ' || u.job_id || '/' || u.attempt || '/' || holdfast.now())
    from undone u
    on conflict (run_id, branch, place) do update set result = excluded.result
), reopened as (
    update holdfast.steps s set state = 'running', finished_at = null, result = null
    from lived v
    where s.run_id = v.job_id and s.kind = 'children' and s.state = 'completed' and holdfast.is_last(s)
      and v.job_id not in (select u.job_id from undone u)
      and s.result::jsonb @? '$[*][1] ? (@ != "completed")'
      and holdfast.has_own_children(s)
), awake as (
    delete from holdfast.suspensions s using lived v where s.run_id = v.job_id
), noted as (
    insert into holdfast.attempts (job_id, attempt, outcome, reason, error, worker_id, claimed_at, started_at, ended_at)
    select e.job_id, e.attempt, e.outcome, e.reason, e.error, e.worker_id, e.claimed_at, e.started_at, e.finished_at
    from ended e where e.job_id in (select v.job_id from lived v)
), hurried as (
    update holdfast.live_jobs l set state = 'available', run_at = holdfast.now()
    from due_later s where l.job_id = any (array[s.job_id])
), audited as (
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    select holdfast.now(), $2::text, 'job.retry', 'job ' || c.job_id, $3::text,
           jsonb_build_object('before', c.before, 'after', jsonb_build_object('state', 'available'))
    from (
        select e.job_id, jsonb_build_object('state', e.outcome, 'attempt', e.attempt, 'failures', e.failures,
                                            'reason', e.reason) as before
        from ended e where e.job_id in (select v.job_id from lived v)
        union all
        select s.job_id, jsonb_build_object('state', 'scheduled', 'attempt', s.attempt, 'failures', s.failures,
                                            'run_at', s.run_at)
        from due_later s
    ) c order by c.job_id
), woken as (
    select holdfast.wake(array_agg(distinct c.queue), min(c.priority))
    from (select v.queue, v.priority from lived v union all select s.queue, s.priority from due_later s) c
    having count(*) > 0
)
select c.job_id, c.unique_key, c.holder from (
    select v.job_id, null::text as unique_key, null::bigint as holder from lived v
    union all
    select s.job_id, null, null from due_later s
    union all
    select e.job_id, j.unique_key, coalesce(
        (select l.job_id from holdfast.live_jobs l where l.unique_key = j.unique_key),
        (select v.job_id from lived v join holdfast.jobs o on o.id = any (array[v.job_id])
         where o.unique_key = j.unique_key),
        0)
    from ended e join holdfast.jobs j on j.id = any (array[e.job_id])
    where e.job_id not in (select v.job_id from lived v)
) c, (select count(*) from woken) n
where c.job_id = any ($1::bigint[])
order by c.job_id;
