-- name: plan_freely
-- Lets the listings below be planned for the filters that are really given, and ends them after $1, such as '10s'; for
-- the transaction only.  A plan for every filter at once would use no index.
select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('statement_timeout', $1::text, true);

-- name: list_jobs
-- Up to $15 jobs before id $14, newest first, after plan_freely.  $1 are live states, $2 outcomes; a filter that is null
-- asks for nothing.  Locks nothing; zero rows: none fits.
select * from (
    (select l.job_id, l.kind, l.queue, l.state, l.priority::integer, l.attempt, l.failures, j.max_attempts, j.tags,
            j.unique_key, j.concurrency_key, j.parent_id, j.created_at, nullif(coalesce(l.run_at, j.created_at), 'infinity'),
            l.claimed_at, l.started_at,
            null::timestamptz, l.worker_id, l.cancel_requested_at, round(l.progress::numeric, 4)::double precision,
            l.progress_note, null::text
     from holdfast.unfinished_jobs l join holdfast.jobs j on j.id = l.job_id
     where l.state = any ($1::text[])
       and (l.worker_id is not null or not $1::text[] <@ array['claimed', 'running'])
       and ($3::text is null or l.kind = $3::text) and ($4::text is null or l.queue = $4::text)
       and ($12::text is null or l.unique_key = $12::text)
       and ($13::text is null or l.concurrency_key = $13::text)
       and ($5::text[] is null or (j.tags @> $5::text[] and j.tags <> '{}'))
       and ($6::timestamptz is null or j.created_at >= $6::timestamptz)
       and ($7::timestamptz is null or j.created_at < $7::timestamptz)
       and ($10::bigint is null or l.worker_id = $10::bigint)
       and ($11::text is null or strpos(lower(holdfast.shown_args(j.kind, j.args)::text), lower($11::text)) > 0)
       and ($14::bigint is null or l.job_id < $14::bigint)
     order by l.job_id desc limit $15::integer)
    union all
    (select f.job_id, f.kind, f.queue, f.outcome, j.priority::integer, f.attempt, f.failures, j.max_attempts, j.tags,
            j.unique_key, j.concurrency_key, j.parent_id, j.created_at, null, f.claimed_at, f.started_at,
            f.finished_at, f.worker_id, null, null, null, f.reason
     from holdfast.finished_jobs f join holdfast.jobs j on j.id = f.job_id
     where f.outcome = any ($2::text[])
       and ($3::text is null or f.kind = $3::text) and ($4::text is null or f.queue = $4::text)
       and ($12::text is null or j.unique_key = $12::text)
       and ($13::text is null or j.concurrency_key = $13::text)
       and ($5::text[] is null or (j.tags @> $5::text[] and j.tags <> '{}'))
       and ($6::timestamptz is null or j.created_at >= $6::timestamptz)
       and ($7::timestamptz is null or j.created_at < $7::timestamptz)
       and ($8::timestamptz is null or f.finished_at >= $8::timestamptz)
       and ($9::timestamptz is null or f.finished_at < $9::timestamptz)
       and ($10::bigint is null or f.worker_id = $10::bigint)
       and ($11::text is null
            or strpos(lower(concat_ws(' ', holdfast.shown_args(j.kind, j.args)::text, f.reason, f.error)), lower($11::text)) > 0)
       and ($14::bigint is null or f.job_id < $14::bigint)
     order by f.job_id desc limit $15::integer)
) as either (id)
order by either.id desc limit $15::integer;

-- name: tally_jobs
-- How many jobs list_jobs would find without a limit, after plan_freely; one row.
select (
    select count(*)
    from holdfast.unfinished_jobs l join holdfast.jobs j on j.id = l.job_id
    where l.state = any ($1::text[])
      and (l.worker_id is not null or not $1::text[] <@ array['claimed', 'running'])
      and ($3::text is null or l.kind = $3::text) and ($4::text is null or l.queue = $4::text)
      and ($12::text is null or l.unique_key = $12::text)
      and ($13::text is null or l.concurrency_key = $13::text)
      and ($5::text[] is null or (j.tags @> $5::text[] and j.tags <> '{}'))
      and ($6::timestamptz is null or j.created_at >= $6::timestamptz)
      and ($7::timestamptz is null or j.created_at < $7::timestamptz)
      and ($10::bigint is null or l.worker_id = $10::bigint)
      and ($11::text is null or strpos(lower(holdfast.shown_args(j.kind, j.args)::text), lower($11::text)) > 0)
) + (
    select count(*)
    from holdfast.finished_jobs f join holdfast.jobs j on j.id = f.job_id
    where f.outcome = any ($2::text[])
      and ($3::text is null or f.kind = $3::text) and ($4::text is null or f.queue = $4::text)
      and ($12::text is null or j.unique_key = $12::text)
      and ($13::text is null or j.concurrency_key = $13::text)
      and ($5::text[] is null or (j.tags @> $5::text[] and j.tags <> '{}'))
      and ($6::timestamptz is null or j.created_at >= $6::timestamptz)
      and ($7::timestamptz is null or j.created_at < $7::timestamptz)
      and ($8::timestamptz is null or f.finished_at >= $8::timestamptz)
      and ($9::timestamptz is null or f.finished_at < $9::timestamptz)
      and ($10::bigint is null or f.worker_id = $10::bigint)
      and ($11::text is null
           or strpos(lower(concat_ws(' ', holdfast.shown_args(j.kind, j.args)::text, f.reason, f.error)), lower($11::text)) > 0)
);

-- name: job_record
-- One job with everything about it; the last column is its timeline as JSON: ended attempts, then the one that ended
-- the job or is under way.  Locks nothing.  Zero rows: there is no such job.
select j.id, j.kind, j.queue, coalesce(l.state, f.outcome), j.priority::integer, coalesce(l.attempt, f.attempt),
       coalesce(l.failures, f.failures), j.max_attempts, j.timeout, holdfast.shown_args(j.kind, j.args)::text, j.meta::text,
       j.tags, j.unique_key, j.concurrency_key, j.parent_id, j.created_at,
       case when l.job_id is not null then nullif(coalesce(l.run_at, j.created_at), 'infinity') end, coalesce(l.claimed_at, f.claimed_at),
       coalesce(l.started_at, f.started_at), f.finished_at, coalesce(l.worker_id, f.worker_id), l.cancel_requested_at,
       round(l.progress::numeric, 4)::double precision, l.progress_note, f.reason, f.error, f.result::text,
       (select coalesce(jsonb_agg(jsonb_build_object(
                    'number', t.attempt, 'outcome', t.outcome, 'worker_id', t.worker_id, 'worker', w.name,
                    'claimed_at', t.claimed_at, 'started_at', t.started_at, 'ended_at', t.ended_at,
                    'reason', t.reason, 'error', t.error
                ) order by t.ended_at nulls last, t.attempt), '[]')::text
        from (
            select a.attempt, a.outcome, a.worker_id, a.claimed_at, a.started_at, a.ended_at, a.reason, a.error
            from holdfast.attempts a where a.job_id = j.id
            union all
            select f.attempt, f.outcome, f.worker_id, f.claimed_at, f.started_at, f.finished_at, f.reason, f.error
            where l.job_id is null
            union all
            select l.attempt, l.state, l.worker_id, l.claimed_at, l.started_at, null, null, null
            where l.worker_id is not null
        ) t left join holdfast.workers w on w.id = t.worker_id)
from holdfast.jobs j
left join holdfast.unfinished_jobs l on l.job_id = j.id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
where j.id = $1::bigint and coalesce(l.job_id, f.job_id) is not null;

-- name: job_standings
-- What decides when live jobs run next: their queue, its limits, the workers that could take them, who is ahead (counted
-- up to $2), and what a suspended run waits for.  Locks nothing.  A job that is missing does not live.
select l.job_id, holdfast.now(), l.state, l.queue, l.kind, nullif(l.run_at, 'infinity'), l.failures, l.concurrency_key,
       l.worker_id, h.name, h.expires_at, l.cancel_requested_at, coalesce(q.paused, false), q.max_running,
       coalesce(q.key_limit, 1),
       (select count(*) from holdfast.live_jobs r
        where r.worker_id is not null and r.queue = l.queue and not (r.ahead and r.state = 'claimed'))
       + holdfast.bundled_in(l.queue),
       -- Those that wait for the turn of their key follow one that runs, which may have waited as well.
       (select greatest(count(*) filter (where not r.in_turn), least(count(*), 1))
        from holdfast.held_keys(l.queue) r where r.key = l.concurrency_key),
       able.workers, able.knowing, able.slots,
       (select count(*) from holdfast.unfinished_jobs r where r.worker_id = any (able.ids)),
       (select count(*) from (
            select from holdfast.live_jobs a
            where a.queue = l.queue and a.state = 'available' and (a.priority, a.job_id) < (l.priority, l.job_id)
            limit $2::integer
        ) earlier),
       exists (select from holdfast.leader d where d.expires_at > holdfast.now()),
       s.reason, coalesce(s.paused, false), s.pause_reason, coalesce(s.stopping, false), nullif(s.wake_at, 'infinity'),
       coalesce(s.signals, '{}'),
       (select coalesce(sum((t.detail ->> 'count')::bigint), 0)::bigint from holdfast.steps t
        where t.run_id = s.run_id and t.child_id = any (s.families)),
       (select count(*) from holdfast.live_jobs c where c.family_id = any (s.families)),
       array(select distinct k from holdfast.workers w cross join lateral unnest(w.kinds) k
             where able.knowing = 0 and l.kind like '%@%' and w.state = 'online' and w.expires_at > holdfast.now()
               and l.queue = any (w.queues) and split_part(k, '@', 1) = split_part(l.kind, '@', 1)
             order by k),
       array(select distinct o from holdfast.workers w cross join lateral unnest(w.queues) o
             where able.knowing = 0 and l.route_id is null and l.kind = any (w.kinds)
               and w.state = 'online' and w.term is null and w.expires_at > holdfast.now()
             order by o limit 5),
       (select jsonb_build_object(
                   'labels', r.labels, 'runner', r.runner, 'pinned_until', p.pinned_until, 'named_state', n.state,
                   'silence', extract(epoch from holdfast.now() - n.renewed_at),
                   'ttl', extract(epoch from n.ttl), 'labelled', count(f.id),
                   'ready', count(f.id) filter (where f.state = 'online'),
                   'slots', coalesce(sum(f.slots) filter (where f.state = 'online'), 0),
                   'held', coalesce(sum(f.held) filter (where f.state = 'online'), 0),
                   'roomy', count(f.id) filter (where f.state = 'online' and f.of_queue < coalesce(f.most, f.of_queue + 1)))::text
        from holdfast.routes r
        join holdfast.placements p on p.job_id = l.job_id
        left join holdfast.workers n on n.name = r.runner and n.term is not null
        left join lateral (
            select w.id, w.state, w.slots, (w.capacity ->> l.queue)::integer as most,
                   (select count(*) from holdfast.live_jobs x where x.worker_id = w.id) as held,
                   (select count(*) from holdfast.live_jobs x where x.worker_id = w.id and x.queue = l.queue) as of_queue
            from holdfast.fitting_runners w where w.route_id = r.id
        ) f on true
        where r.id = l.route_id
        group by r.id, p.job_id, n.id)
from holdfast.unfinished_jobs l
left join holdfast.suspensions s on s.run_id = l.job_id
left join holdfast.queues q on q.name = l.queue
left join holdfast.workers h on h.id = l.worker_id
cross join lateral (
    select count(*) as workers, count(*) filter (where l.kind = any (w.kinds)) as knowing,
           coalesce(sum(w.slots) filter (where l.kind = any (w.kinds)), 0) as slots,
           array_agg(w.id) filter (where l.kind = any (w.kinds)) as ids
    from holdfast.workers w
    where (w.state = 'online' or w.term is not null and w.state = 'draining') and w.expires_at > holdfast.now()
      and l.queue = any (w.queues) and (w.term is null) = (l.route_id is null)
) able
where l.job_id = any ($1::bigint[]);
