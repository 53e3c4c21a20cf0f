-- Runs for people: lists, one with its steps and children.

-- name: list_runs
-- Up to $8 runs before id $7, newest first, after plan_freely, with what each one waits for as JSON.  $1 are live
-- states, $2 outcomes, $3 a kind (without a version: all its versions), $4 a queue, $5 a signal that they wait for; $6
-- asks for paused ones.  Locks nothing; zero rows: none fits.
with flows as materialized (
    select f.kind from holdfast.workflows f
    where $3::text is null or f.kind = $3::text or split_part(f.kind, '@', 1) = $3::text
    union
    select $3::text where holdfast.is_run($3::text) is not false
)
select * from (
    (select l.job_id, l.kind, l.queue, l.state, l.attempt, l.failures, j.max_attempts, j.tags, j.parent_id,
            j.created_at, nullif(l.run_at, 'infinity'), l.started_at, null::timestamptz, l.worker_id,
            l.cancel_requested_at, null::text,
            (case when jsonb_typeof(j.meta -> 'forked_from') = 'number' then j.meta -> 'forked_from' end)::bigint,
            case when s.run_id is not null then jsonb_build_object(
                'signals', s.signals, 'families', s.families, 'wake_at', s.wake_at, 'paused', s.paused,
                'pause_reason', s.pause_reason, 'reason', s.reason, 'since', s.since)::text end
     from holdfast.live_jobs l join holdfast.jobs j on j.id = l.job_id
     left join holdfast.suspensions s on s.run_id = l.job_id
     where l.state = any ($1::text[]) and l.kind = any (array(select w.kind from flows w))
       and ($4::text is null or l.queue = $4::text)
       and ($5::text is null or $5::text = any (s.signals)) and (not $6::boolean or s.paused)
       and ($7::bigint is null or l.job_id < $7::bigint)
     order by l.job_id desc limit $8::integer)
    union all
    (select f.job_id, f.kind, f.queue, f.outcome, f.attempt, f.failures, j.max_attempts, j.tags, j.parent_id,
            j.created_at, null, f.started_at, f.finished_at, f.worker_id, null, f.reason,
            (case when jsonb_typeof(j.meta -> 'forked_from') = 'number' then j.meta -> 'forked_from' end)::bigint, null
     from holdfast.finished_jobs f join holdfast.jobs j on j.id = f.job_id
     where f.outcome = any ($2::text[]) and f.kind = any (array(select w.kind from flows w))
       and ($4::text is null or f.queue = $4::text)
       and ($7::bigint is null or f.job_id < $7::bigint)
     order by f.job_id desc limit $8::integer)
) as either (id)
order by either.id desc limit $8::integer;

-- name: run_tree
-- Run $1 with the children that its steps started, down to depth $2, of each family up to $3: those first that did not
-- end well, then those that live; in all up to $4.  With each its last $5 steps, its unread signals and how many children
-- of which family are in which state, as JSON.  Parents stand before their children.  Locks nothing.
-- Zero rows: there is no such job.
with recursive tree as (
    select $1::bigint as job_id, null::bigint as above, null::bigint as family_id, 0 as depth
    union all
    select c.job_id, t.job_id, c.family_id, t.depth + 1
    from tree t cross join lateral (
        select m.job_id, m.family_id
        from holdfast.steps s
        cross join lateral (
            select e.job_id, s.child_id as family_id
            from (
                select l.job_id, 1 as rank from holdfast.live_jobs l where l.family_id = s.child_id
                union all
                select f.job_id, case f.outcome when 'completed' then 2 else 0 end
                from holdfast.finished_jobs f where f.family_id = s.child_id
            ) e order by e.rank, e.job_id limit $3::integer
        ) m
        where s.run_id = t.job_id and s.child_id is not null
        order by m.job_id
    ) c
    where t.depth < $2::integer
), shown as materialized (
    select t.* from tree t limit $4::integer
)
select n.above, n.family_id, j.id, j.kind, j.queue, coalesce(l.state, f.outcome), coalesce(l.attempt, f.attempt),
       coalesce(l.failures, f.failures), j.max_attempts, j.tags, j.parent_id, j.created_at,
       nullif(l.run_at, 'infinity'), coalesce(l.started_at, f.started_at), f.finished_at,
       coalesce(l.worker_id, f.worker_id), l.cancel_requested_at, f.reason,
       (case when jsonb_typeof(j.meta -> 'forked_from') = 'number' then j.meta -> 'forked_from' end)::bigint,
       case when s.run_id is not null then jsonb_build_object(
           'signals', s.signals, 'families', s.families, 'wake_at', s.wake_at, 'paused', s.paused,
           'pause_reason', s.pause_reason, 'reason', s.reason, 'since', s.since)::text end,
       holdfast.is_run(j.kind),
       (select coalesce(jsonb_agg(jsonb_build_object(
                    'branch', p.branch, 'place', p.place, 'name', p.name, 'kind', p.kind, 'state', p.state,
                    'attempt', p.attempt, 'tries', p.tries, 'started_at', p.started_at,
                    'finished_at', p.finished_at, 'wake_at', p.wake_at, 'child_id', p.child_id,
                    'error', left(nullif(concat_ws(': ', p.error ->> 'type', p.error ->> 'message'), ''), 500)
                ) order by p.began, p.branch, p.place), '[]')::text
        from (
            select p.*, coalesce(p.started_at, p.finished_at, 'infinity') as began from holdfast.steps p
            where p.run_id = j.id and p.place >= 0
            order by began desc, p.branch desc, p.place desc limit $5::integer
        ) p),
       (select count(*) from holdfast.steps p where p.run_id = j.id and p.place >= 0),
       (select coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'name', g.name, 'key', g.key, 'sent_at', g.sent_at)
                                  order by g.id), '[]')::text
        from (
            select g.* from holdfast.signals g where g.run_id = j.id and g.consumed_at is null order by g.id limit 100
        ) g),
       (select coalesce(jsonb_agg(jsonb_build_object('id', c.family_id, 'states', c.states) order by c.family_id), '[]')::text
        from (
            select b.family_id, jsonb_object_agg(b.state, b.n) as states
            from (
                select p.child_id as family_id, e.state, count(*) as n
                from holdfast.steps p cross join lateral (
                    select k.state from holdfast.live_jobs k where k.family_id = p.child_id
                    union all
                    select k.outcome from holdfast.finished_jobs k where k.family_id = p.child_id
                ) e
                where p.run_id = j.id and p.child_id is not null
                group by p.child_id, e.state
            ) b group by b.family_id
        ) c)
from shown n
join holdfast.jobs j on j.id = n.job_id
left join holdfast.live_jobs l on l.job_id = j.id
left join holdfast.suspensions s on s.run_id = l.job_id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
where coalesce(l.job_id, f.job_id) is not null
order by n.depth, j.id;

-- name: look_at_run
-- How a job stands for somebody whose act met no run: its state, its kind, whether that is a workflow (null: nobody knows),
-- whether it is paused.  Zero rows: there is no such job.
select coalesce(l.state, f.outcome, 'running'), j.kind, holdfast.is_run(j.kind), coalesce(s.paused, false)
from holdfast.jobs j
left join holdfast.live_jobs l on l.job_id = j.id
left join holdfast.suspensions s on s.run_id = l.job_id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
where j.id = $1::bigint;
