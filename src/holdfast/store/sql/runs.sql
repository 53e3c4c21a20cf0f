-- How runs fall asleep, and what operators do to them.

-- name: suspend_runs
-- Ends attempts whose runs wait, one object for each (see holdfast.suspend_held).  What has come by now makes a run
-- available at once.  Locks live_jobs rows in id order.  An attempt that is missing from the answer has lost
-- its lease, and nothing of it was written.
with asked as (
    select * from unnest($1::text::bigint[], $2::text::integer[], $3::text[]::jsonb[]) as a (job_id, attempt, wait)
), held as materialized (
    select l.job_id, a.wait
    from asked a join holdfast.live_jobs l on l.job_id = any (array[a.job_id]) and l.attempt = any (array[a.attempt])
    where l.state in ('claimed', 'running')
    order by a.job_id
    for update of l
), slept as (
    select holdfast.suspend_held(array_agg(h.job_id), array_agg(h.wait)) from held h having count(*) > 0
)
select h.job_id from held h, (select count(*) from slept) s;

-- name: continue_run
-- Begins a held run anew under its id with arguments $3: what it remembered is forgotten, but for which children of it
-- live, in places that no code comes by (-2), so that a cancel or a pause finds them; signals that it has not read
-- stay, and the keys of those that it has read for a day.  $4 is what its random values grow from.  Locks the live_jobs row.  Zero rows: the lease was lost.
with held as materialized (
    select l.* from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for update
), forgotten as (
    delete from holdfast.steps s using held h
    where s.run_id = h.job_id and (s.branch, s.place) <> ('main', -1)
      and not exists (select from holdfast.live_jobs c where c.family_id = s.child_id and c.parent_id = h.job_id)
), kept as (
    update holdfast.steps s set branch = 'former/' || s.child_id, place = -2 from held h
    where s.run_id = h.job_id and s.place <> -2
      and exists (select from holdfast.live_jobs c where c.family_id = s.child_id and c.parent_id = h.job_id)
), seeded as (
    insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt, result)
    select h.job_id, 'main', -1, 'seed', 'seed', 'completed', h.attempt, $4::text::json from held h
    on conflict (run_id, branch, place) do update set result = excluded.result
), taken as (
    delete from holdfast.signals g using held h where g.run_id = h.job_id and g.consumed_at is not null
      and (g.key is null or g.sent_at < holdfast.now() - interval '1 day')
), emptied as (
    delete from holdfast.blobs b using held h where b.run_id = h.job_id
), asked as (
    update holdfast.jobs j set args = $3::text::jsonb, revision = j.revision + 1 from held h where j.id = h.job_id
    returning j.revision
), noted as (
    insert into holdfast.attempts (job_id, attempt, outcome, reason, worker_id, claimed_at, started_at, ended_at)
    select h.job_id, h.attempt, 'suspended', 'continued as new', h.worker_id, h.claimed_at, h.started_at, holdfast.now()
    from held h
), moved as (
    update holdfast.live_jobs l
    set state = 'available', run_at = holdfast.now(), failures = 0, worker_id = null, claimed_at = null,
        started_at = null, progress = null, progress_note = null, revision = a.revision
    from held h, asked a where l.job_id = h.job_id
    returning l.queue, l.priority
), woken as (
    select holdfast.wake(array_agg(m.queue), min(m.priority)) from moved m having count(*) > 0
)
select h.job_id from held h, (select count(*) from woken) w;

-- name: pause_runs
-- Pauses runs and, as far down as they go, their children that are runs and follow them, for actor $2 with reason $3.
-- Locks live_jobs rows, parents before their children.  Answers the runs met; one that is missing has ended, never was or
-- is a job of another sort.
select r from holdfast.pause_runs($1::bigint[], $2::text, $3::text) r order by r;

-- name: resume_runs
-- Lets paused runs go on, and their children that follow them: what has come meanwhile makes them available.
-- Locks live_jobs rows in id order.  Answers the runs met; one that is missing is not paused, has ended or never was.
with recursive tree as (
    select l.job_id from holdfast.live_jobs l where l.job_id = any ($1::bigint[])
    union
    select c.job_id from tree t
    cross join lateral (
        select l.job_id from holdfast.live_jobs l
        where l.parent_id = t.job_id and '{"policy": "cancel", "runs": true}' <@ (
            select s.detail from holdfast.steps s
            where s.run_id = t.job_id and s.child_id = l.family_id limit 1
        )
        offset 0
    ) c
), target as materialized (
    select l.job_id, l.state, l.worker_id from holdfast.live_jobs l
    where l.job_id in (select t.job_id from tree t)
      and exists (select from holdfast.suspensions s where s.run_id = l.job_id and s.paused)
    order by l.job_id for update
), audited as (
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    select holdfast.now(), $2::text, 'run.resume', 'job ' || t.job_id, $3::text,
           jsonb_build_object('before', jsonb_build_object('state', t.state, 'paused', true),
                              'after', jsonb_build_object('paused', false))
    from target t order by t.job_id
), resumed as (
    select holdfast.resume_held(array_agg(t.job_id)) from target t having count(*) > 0
)
select t.job_id from target t, (select count(*) from resumed) r order by t.job_id;

-- name: fork_run
-- Enqueues a new run that remembers what run $1 had recorded when its step $4 of branch $3 had finished (place $5; null:
-- the last of that name), and nothing after it.  $6 names who did it, $7 why.  Answers its id.
-- Zero rows: there is no such finished step.
select holdfast.fork_run($1::bigint, $2::text, $3::text, $4::text, $5::integer, $6::text, $7::text) as id
where exists (
    select from holdfast.steps s
    where s.run_id = $1::bigint and s.branch = $3::text and s.name = $4::text and s.state in ('completed', 'failed')
      and s.place >= 0 and ($5::integer is null or s.place = $5::integer)
);
