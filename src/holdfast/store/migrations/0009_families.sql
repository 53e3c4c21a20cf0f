-- Families, the children of one step of a run: how they begin, are cancelled with their run, and wake it when the last ends.

-- Enqueues the children of a step, one array per column, with the step's row, and answers their family; 0 where the
-- parent is paused.  The caller has locked the parent.  Asked again for the same place, it answers what it did before.
create function holdfast.start_children(
    parent_id bigint, parent_attempt integer, branch text, place integer, name text, step_kind text, detail jsonb,
    kinds text[], queues text[], args jsonb[], priorities smallint[], max_attempts integer[],
    timeouts double precision[], run_ats timestamptz[], delays double precision[], retries jsonb[],
    concurrency_keys text[], tags text[], metas jsonb[], traces text[]
) returns bigint
language plpgsql
as $$
#variable_conflict use_variable
declare
    moment timestamptz := holdfast.now();
    ids bigint[];
    due timestamptz;
begin
    select array[s.child_id] into ids from holdfast.steps s
    where s.run_id = parent_id and s.branch = branch and s.place = place;
    if found then
        return ids[1];
    end if;
    -- A pause looks for the children that follow it once: nobody would pause these.
    if exists (select from holdfast.suspensions p where p.run_id = parent_id and p.paused) then
        return 0;
    end if;
    -- A place belongs to a transaction that has a number already: see next_place().
    perform pg_current_xact_id();
    ids := array(select nextval('holdfast.jobs_id_seq') from generate_series(1, cardinality(kinds)));
    insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt, started_at, child_id, detail)
    values (parent_id, branch, place, name, step_kind, 'running', parent_attempt, moment, ids[1], detail);
    if array_remove(concurrency_keys, null) <> '{}' then
        perform holdfast.mark_keyed(queues, concurrency_keys);
    end if;
    with asked as materialized (
        select u.*, coalesce(u.run_at, moment + make_interval(secs => u.delay), moment) as due_at
        from unnest(ids, kinds, queues, args, priorities, max_attempts, timeouts, run_ats, delays, retries,
                    concurrency_keys, tags, metas, traces)
            as u (id, kind, queue, arg, priority, max_attempt, timeout, run_at, delay, retry, concurrency_key, tag,
                  meta, trace)
    ), stored as (
        insert into holdfast.jobs (id, kind, queue, args, priority, max_attempts, timeout, retry, concurrency_key,
                                   tags, meta, parent_id, trace, created_at)
        select a.id, a.kind, a.queue, a.arg, a.priority, a.max_attempt, a.timeout, a.retry, a.concurrency_key,
               a.tag::text[], a.meta, parent_id, a.trace, moment
        from asked a
    )
    insert into holdfast.live_jobs (job_id, place, queue, kind, priority, state, run_at, concurrency_key, parent_id,
                                    family_id)
    select a.id, a.id, a.queue, a.kind, a.priority, case when a.due_at > moment then 'scheduled' else 'available' end,
           a.due_at, a.concurrency_key, parent_id, ids[1]
    from asked a;
    select min(l.run_at) into due from holdfast.live_jobs l where l.family_id = ids[1] and l.state = 'scheduled';
    if due is not null then
        perform holdfast.wake_stager(due);
    end if;
    perform holdfast.wake(queues, (select min(p) from unnest(priorities) p));
    return ids[1];
end
$$;

-- Cancels jobs by id, and the children of runs that follow their parent, as far down as they go.  A job that nobody
-- holds ends at once; one that is held is asked to stop and its worker told; a run that has begun becomes available,
-- so that it makes up for what it did.  A pause is forgotten.  Locks live_jobs rows in id order, and answers them as
-- they stood before.
create function holdfast.cancel_tree(job_ids bigint[], why text) returns table (
    job_id bigint, state text, attempt integer, failures integer, worker_id bigint, begun boolean
)
language plpgsql
as $$
#variable_conflict use_column
declare
    tree bigint[];
begin
    with recursive tree as (
        select l.job_id from holdfast.live_jobs l where l.job_id = any (job_ids)
        union
        select c.job_id from tree t
        cross join lateral (
            select l.job_id from holdfast.live_jobs l
            where l.parent_id = t.job_id and 'cancel' = (
                select s.detail ->> 'policy' from holdfast.steps s
                where s.run_id = t.job_id and s.child_id = l.family_id limit 1
            )
            offset 0
        ) c
    )
    select array_agg(t.job_id) into tree from tree t;
    -- Whoever falls asleep meanwhile writes its steps and what it waits for: look for these once nobody can.
    perform from holdfast.live_jobs l where l.job_id = any (tree) order by l.job_id for update;
    return query with target as materialized (
        select l.*, l.worker_id is null and exists (
                   select from holdfast.steps s where s.run_id = any (array[l.job_id])
               ) as begun
        from holdfast.live_jobs l where l.job_id = any (tree) order by l.job_id for update
    ), gone as (
        delete from holdfast.live_jobs l using target t
        where l.job_id = any (array[t.job_id]) and t.worker_id is null and not t.begun
    ), ended as (
        insert into holdfast.finished_jobs (job_id, queue, kind, outcome, reason, attempt, failures, finished_at, parent_id,
                                            family_id)
        select t.job_id, t.queue, t.kind, 'cancelled', why, t.attempt, t.failures,
               holdfast.now(), t.parent_id, t.family_id
        from target t where t.worker_id is null and not t.begun
    ), awake as (
        delete from holdfast.suspensions s using target t where s.run_id = t.job_id
    ), roused as (
        update holdfast.live_jobs l
        set state = 'available', run_at = holdfast.now(),
            cancel_requested_at = coalesce(l.cancel_requested_at, holdfast.now())
        from target t where l.job_id = any (array[t.job_id]) and t.begun
    ), woken as (
        select holdfast.wake(array_agg(distinct t.queue), min(t.priority)) from target t where t.begun having count(*) > 0
    ), asked as (
        update holdfast.live_jobs l set cancel_requested_at = coalesce(l.cancel_requested_at, holdfast.now())
        from target t where l.job_id = any (array[t.job_id]) and t.worker_id is not null
    ), explained as (
        update holdfast.assignments a
        set rungs = a.rungs || jsonb_build_object('requested', holdfast.now()),
            cancel_reason = why
        from target t
        where a.job_id = any (array[t.job_id]) and a.attempt = any (array[t.attempt]) and t.worker_id is not null
          and not a.rungs ? 'requested'
    ), told as (
        select pg_notify('holdfast', 'cancel:' || w.worker_id)
        from (select distinct t.worker_id from target t where t.worker_id is not null) w
    )
    select t.job_id, t.state, t.attempt, t.failures, t.worker_id, t.begun
    from target t, (select count(*) from told) n, (select count(*) from woken) w
    order by t.job_id;
end
$$;

-- Pauses runs and, as far down as they go, their children that are runs and follow them; answers all that were met.  One that
-- is held parks at its next step.  A parent is locked before its children are looked for, so it cannot start more of them meanwhile.
create function holdfast.pause_runs(run_ids bigint[], actor text, why text) returns setof bigint
language plpgsql
as $$
declare
    level bigint[] := run_ids;
    tree bigint[] := '{}';
begin
    loop
        level := array(
            select l.job_id from holdfast.live_jobs l
            where l.job_id = any (level) and l.job_id <> all (tree) and holdfast.is_run(l.kind) is not false
            order by l.job_id for update
        );
        exit when level = '{}';
        tree := tree || level;
        level := array(
            select l.job_id from holdfast.live_jobs l
            where l.parent_id = any (level) and '{"policy": "cancel", "runs": true}' <@ (
                select s.detail from holdfast.steps s
                where s.run_id = l.parent_id and s.child_id = l.family_id limit 1
            )
        );
    end loop;
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    select holdfast.now(), pause_runs.actor, 'run.pause', 'job ' || l.job_id, why,
           jsonb_build_object(
               'before', jsonb_build_object('state', l.state, 'paused', coalesce(
                   (select s.paused from holdfast.suspensions s where s.run_id = l.job_id), false)),
               'after', jsonb_build_object('state', case when l.worker_id is null then 'waiting' else l.state end,
                                           'paused', true))
    from holdfast.live_jobs l where l.job_id = any (tree) order by l.job_id;
    insert into holdfast.suspensions as s (run_id, wake_at, paused, pause_reason, reason, since)
    select l.job_id, l.run_at, true, 'paused by ' || pause_runs.actor || coalesce(': ' || why, ''), 'its time', holdfast.now()
    from holdfast.live_jobs l where l.job_id = any (tree)
    on conflict (run_id) do update set paused = true, pause_reason = excluded.pause_reason;
    update holdfast.live_jobs l set state = 'waiting', run_at = 'infinity'
    where l.job_id = any (tree) and l.worker_id is null;
    return query select unnest(tree);
end
$$;

-- Cancels the children that follow runs which have ended without a result: nobody waits for them any more.
create function holdfast.cancel_followers(run_ids bigint[]) returns void language plpgsql as $$
declare
    followers bigint[] := array(
        select l.job_id from holdfast.live_jobs l
        where l.parent_id = any (run_ids) and 'cancel' = (
            select s.detail ->> 'policy' from holdfast.steps s
            where s.run_id = l.parent_id and s.child_id = l.family_id limit 1
        )
    );
begin
    if followers <> '{}' then
        perform holdfast.cancel_tree(followers, 'cancelled with its parent');
    end if;
end
$$;

-- The last child of a family to end wakes its parent.  Children that end at once queue at their parent's row, so
-- that one of them sees all the others gone.  Asked once for each statement: for each row, it would walk over the
-- children that the same statement has ended, again and again.  A run that has no result takes along what follows it.
-- Locks those parents in id order, then what cancel_tree locks of those that follow.
create function holdfast.children_ended() returns trigger language plpgsql as $$
declare
    parents bigint[];
    unhappy bigint[];
begin
    select array_agg(distinct e.parent_id) filter (where e.family_id is not null),
           array_agg(e.job_id) filter (where e.outcome <> 'completed')
    into parents, unhappy from ended e;
    if parents is not null then
        perform holdfast.lock_runs(parents);
        perform holdfast.revive_runs(array_agg(distinct e.parent_id))
        from (select distinct f.parent_id, f.family_id from ended f where f.family_id is not null) e
        where (select l.job_id from holdfast.live_jobs l where l.family_id = e.family_id
               order by l.family_id desc, l.job_id desc limit 1) is null
           or current_setting('transaction_isolation') <> 'read committed'  -- see revive_runs()
        having count(*) > 0;
    end if;
    if unhappy is not null then
        perform holdfast.cancel_followers(unhappy);
    end if;
    return null;
end
$$;

create trigger children_ended after insert on holdfast.finished_jobs
referencing new table as ended
for each statement execute function holdfast.children_ended();
