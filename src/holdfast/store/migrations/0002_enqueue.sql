-- How jobs get in: waking, uniqueness, enqueue from any client and from plain SQL.

-- ---------------------------------------------------------------------------------------------
-- Waking

-- Tells workers of these queues that there is something to claim, the best of it of priority best, where they sleep or
-- have claimed worse ahead.  NOTIFY takes a database-wide lock at commit, so it is sent only then: a busy one looks anyway.
-- A payload has room for 8000 bytes; where the names do not fit, or cannot be told apart, all are told to look.
-- A paused queue wakes too: its resume may commit before this does, and would have found nothing yet.
-- With *job_id* it is this job alone, of one queue, which whoever is idle may claim by its number.
create function holdfast.wake(queues text[], best smallint, job_id bigint default null) returns void
language plpgsql
as $$
declare
    waiting text;
    nameable boolean;
begin
    if current_setting('transaction_isolation') = 'read committed' then
        select string_agg(distinct q, ','), not bool_or(q like '%,%') into waiting, nameable
        from holdfast.workers w, unnest(w.queues) as q
        where w.wakes_below > wake.best and w.state = 'online' and w.term is null and q = any (wake.queues);
    else
        -- Who fell asleep since the transaction's snapshot is not to be seen in it.
        select string_agg(distinct q, ','), not bool_or(q like '%,%') into waiting, nameable from unnest(wake.queues) as q;
    end if;
    if waiting is not null then
        nameable := nameable and octet_length(waiting) < 7000;
        perform pg_notify(
            'holdfast', coalesce('job:' || job_id, 'jobs') || ':' || best || ':' || case when nameable then waiting else '*' end
        );
    end if;
end
$$;

-- Tells the leader of a job that falls due before its next regular look (5 s).
create function holdfast.wake_stager(due timestamptz) returns void
language plpgsql
as $$
begin
    if due < holdfast.now() + interval '5 seconds' then
        perform pg_notify('holdfast', 'stage');
    end if;
end
$$;

-- ---------------------------------------------------------------------------------------------
-- Enqueue

-- Puts jobs in, one array per column, and answers in the order asked: the id, and whether the job is
-- new, was kept (a live job holds the unique key) or replaced a job that is still queued.
-- A replace of a job that already runs keeps it.  Policy reject raises HF001 with the id of the holder in
-- the detail and the key in the hint.  delays are in seconds and count from now; run_ats win over delays.
create function holdfast.enqueue_jobs(
    kinds text[], queues text[], args jsonb[], priorities smallint[], max_attempts integer[],
    timeouts double precision[], run_ats timestamptz[], delays double precision[], retries jsonb[],
    unique_keys text[], unique_policies text[], concurrency_keys text[], tags text[], metas jsonb[],
    parent_ids bigint[], traces text[]
) returns table (place bigint, job_id bigint, status text)
language plpgsql
as $$
declare
    due timestamptz;
    ready text[] := queues;
    best smallint := (select min(p) from unnest(priorities) p);
    moment timestamptz := holdfast.now();
    -- A place belongs to a transaction that has a number already: see next_place().
    number xid8 := pg_current_xact_id();
begin
    if array_remove(concurrency_keys, null) <> '{}' then
        perform holdfast.mark_keyed(queues, concurrency_keys);
    end if;
    if array_remove(unique_keys, null) = '{}' then
        return query
        with asked as materialized (
            select nextval('holdfast.jobs_id_seq') as id, u.*,
                   coalesce(u.run_at, moment + make_interval(secs => u.delay), moment) as due_at
            from unnest(kinds, queues, args, priorities, max_attempts, timeouts, run_ats, delays, retries,
                        concurrency_keys, tags, metas, parent_ids, traces)
                 with ordinality as u(kind, queue, arg, priority, max_attempt, timeout, run_at, delay, retry,
                                      concurrency_key, tag, meta, parent_id, trace, nth)
        ), stored as (
            insert into holdfast.jobs (id, kind, queue, args, priority, max_attempts, timeout, retry,
                                       concurrency_key, tags, meta, parent_id, trace, created_at)
            select a.id, a.kind, a.queue, a.arg, a.priority, a.max_attempt, a.timeout, a.retry,
                   a.concurrency_key, a.tag::text[], a.meta, a.parent_id, a.trace, moment
            from asked a
        ), lived as (
            insert into holdfast.live_jobs (job_id, place, queue, kind, priority, state, run_at, concurrency_key)
            select a.id, a.id, a.queue, a.kind, a.priority,
                   case when a.due_at > moment then 'scheduled' else 'available' end,
                   a.due_at, a.concurrency_key
            from asked a
        )
        select a.nth, a.id, 'new' from asked a order by a.nth;
    else
        -- Ids in the order asked, keys in one order for everybody: two sessions with the same keys do not deadlock.
        return query
        with asked as materialized (
            select nextval('holdfast.jobs_id_seq') as id, u.*
            from unnest(kinds, queues, args, priorities, max_attempts, timeouts, run_ats, delays, retries,
                        unique_keys, unique_policies, concurrency_keys, tags, metas, parent_ids, traces)
                 with ordinality as u(kind, queue, arg, priority, max_attempt, timeout, run_at, delay, retry,
                                      unique_key, unique_policy, concurrency_key, tag, meta, parent_id, trace, nth)
        )
        select nth, (one).job_id, (one).status
        from (
            select a.nth, holdfast.enqueue_unique(
                a.id, a.kind, a.queue, a.arg, a.priority, a.max_attempt, a.timeout,
                coalesce(a.run_at, moment + make_interval(secs => a.delay), moment), a.retry,
                a.unique_key, a.unique_policy, a.concurrency_key, a.tag::text[], a.meta, a.parent_id, a.trace
            ) as one
            from (select * from asked order by unique_key, nth offset 0) a
            offset 0
        ) each;
    end if;
    if array_remove(run_ats, null) <> '{}' or array_remove(delays, null) <> '{}' then
        select min(a.due_at) filter (where a.due_at > moment), array_agg(distinct a.queue) filter (where a.due_at <= moment),
               min(a.priority) filter (where a.due_at <= moment)
        into due, ready, best
        from (
            select u.queue, u.priority, coalesce(u.run_at, moment + make_interval(secs => u.delay), moment) as due_at
            from unnest(queues, priorities, run_ats, delays) as u(queue, priority, run_at, delay)
        ) a;
        if due is not null then
            perform holdfast.wake_stager(due);
        end if;
    end if;
    perform holdfast.wake(ready, best);
end
$$;

-- Queues whose first concurrency keys came in the transaction that sees them; none is left when it commits.
create table holdfast.keyed_news (queue text not null);

-- Remembers that a queue has concurrency keys, so that its claims take the exact way in.  That is written when the caller's
-- transaction commits: until then others would wait for it at the queue's row, for as long as it likes.
create function holdfast.mark_keyed(queues text[], concurrency_keys text[]) returns void
language sql
as $$
    insert into holdfast.keyed_news (queue)
    select distinct u.q
    from unnest(queues, concurrency_keys) as u(q, k)
    where u.k is not null
      and not exists (select from holdfast.queues o where o.name = u.q and o.keyed)
      and not exists (select from holdfast.keyed_news n where n.queue = u.q)
$$;

-- Called for each of them; the first call takes all, in order of name.
create function holdfast.tell_keyed() returns trigger
language plpgsql
as $$
begin
    with news as (
        delete from holdfast.keyed_news returning queue
    )
    insert into holdfast.queues as known (name, keyed)
    select distinct n.queue, true from news n order by 1
    on conflict (name) do update set keyed = true where not known.keyed;
    if found then
        perform pg_notify('holdfast', 'queues');
    end if;
    return null;
end
$$;
create constraint trigger tell_keyed after insert on holdfast.keyed_news
    deferrable initially deferred for each row execute function holdfast.tell_keyed();

create type holdfast.enqueued as (job_id bigint, status text);

-- Puts one job in under its unique key (a null key is always new).  The unique index decides who is first; a loser reads the
-- winner's row and follows its policy.  The loop ends as soon as the key is ours or its holder is seen; each
-- round takes an id of its own, so that one taken by hand cannot hold it up.
create function holdfast.enqueue_unique(
    new_id bigint, kind text, queue text, args jsonb, priority smallint, max_attempts integer, timeout double precision,
    due timestamptz, retry jsonb, unique_key text, unique_policy text, concurrency_key text, tags text[],
    meta jsonb, parent_id bigint, trace text
) returns holdfast.enqueued
language plpgsql
as $$
#variable_conflict use_variable
declare
    moment timestamptz := holdfast.now();
    new_state text := case when due > moment then 'scheduled' else 'available' end;
    holder record;
    new_revision integer;
begin
    loop
        insert into holdfast.live_jobs as l
            (job_id, place, queue, kind, priority, state, run_at, unique_key, concurrency_key)
        values (new_id, new_id, queue, kind, priority, new_state, due, unique_key, concurrency_key)
        on conflict do nothing;
        if found then
            insert into holdfast.jobs (id, kind, queue, args, priority, max_attempts, timeout, retry, unique_key,
                                       concurrency_key, tags, meta, parent_id, trace, created_at)
            values (new_id, kind, queue, args, priority, max_attempts, timeout, retry, unique_key,
                    concurrency_key, tags, meta, parent_id, trace, moment);
            return row(new_id, 'new')::holdfast.enqueued;
        end if;
        select l.job_id, l.state into holder
        from holdfast.live_jobs l where l.unique_key = enqueue_unique.unique_key;
        if not found then
            new_id := nextval('holdfast.jobs_id_seq');
            continue;
        end if;
        if unique_policy = 'reject' then
            raise exception 'job % already holds unique key %', holder.job_id, unique_key
                using errcode = 'HF001', detail = holder.job_id::text, hint = unique_key;
        end if;
        if unique_policy = 'keep' or holder.state not in ('scheduled', 'available') then
            return row(holder.job_id, 'kept')::holdfast.enqueued;
        end if;
        -- Whoever claims it meanwhile waits for nobody: either the lock finds it queued, or it is claimed and kept.
        perform from holdfast.live_jobs l
        where l.job_id = holder.job_id and l.state in ('scheduled', 'available') for update;
        if not found then
            continue;
        end if;
        -- What a run remembers is of its own arguments, and its children live: it goes on as what it is.
        if exists (select from holdfast.steps s where s.run_id = holder.job_id) then
            return row(holder.job_id, 'kept')::holdfast.enqueued;
        end if;
        delete from holdfast.checkpoints c where c.job_id = holder.job_id;
        update holdfast.jobs j
        set kind = enqueue_unique.kind, queue = enqueue_unique.queue, args = enqueue_unique.args,
            priority = enqueue_unique.priority, max_attempts = enqueue_unique.max_attempts,
            timeout = enqueue_unique.timeout, retry = enqueue_unique.retry,
            concurrency_key = enqueue_unique.concurrency_key, tags = enqueue_unique.tags,
            meta = enqueue_unique.meta, parent_id = enqueue_unique.parent_id, trace = enqueue_unique.trace,
            revision = j.revision + 1
        where j.id = holder.job_id returning j.revision into new_revision;
        update holdfast.live_jobs l
        set kind = enqueue_unique.kind, queue = enqueue_unique.queue, priority = enqueue_unique.priority,
            state = new_state, run_at = due, concurrency_key = enqueue_unique.concurrency_key, failures = 0,
            revision = new_revision, place = holdfast.next_place()
        where l.job_id = holder.job_id;
        perform holdfast.unroute(holder.job_id);
        return row(holder.job_id, 'replaced')::holdfast.enqueued;
    end loop;
end
$$;

-- Enqueues one job from plain SQL or a trigger; the job exists once the transaction commits.
--   select holdfast.enqueue('send_mail', '{"to": "a@b.c"}', queue => 'mail', priority => 1);
-- A bad option is an error that names it.  The arguments are not checked against the handler here: a worker does that
-- when it runs the job.
create function holdfast.enqueue(
    kind text, args jsonb default '{}', queue text default 'default', priority integer default 5,
    run_at timestamptz default null, delay interval default null, max_attempts integer default 5,
    timeout interval default '5 minutes', retry jsonb default null, unique_key text default null,
    unique_policy text default 'keep', concurrency_key text default null, tags text[] default '{}',
    meta jsonb default '{}', parent_id bigint default null, trace text default null
) returns bigint
language plpgsql
as $$
declare
    problem text := case
        when kind is null or length(kind) not between 1 and 200 then 'kind: give a name of 1 to 200 characters'
        when queue is null or length(queue) not between 1 and 100 then 'queue: give a name of 1 to 100 characters'
        when jsonb_typeof(args) is distinct from 'object'
            then format('args must be a JSON object, got a JSON %s', coalesce(jsonb_typeof(args), 'nothing'))
        when priority is null or priority not between 0 and 9
            then format('priority is %s: give a whole number from 0 to 9', priority)
        when max_attempts is null or max_attempts not between 1 and 10000
            then format('max_attempts is %s: give a whole number from 1 to 10000', max_attempts)
        when timeout is null or timeout not between interval '1 millisecond' and interval '3650 days'
            then format('timeout is %s: it must lie between 1 millisecond and ten years', timeout)
        when run_at is not null and delay is not null then 'delay: give either run_at or delay'
        when not isfinite(run_at) then format('run_at is %s: give a moment that comes', run_at)
        when extract(year from run_at at time zone 'UTC') not between 1 and 9999
            then format('run_at is %s: it lies outside the years 1 to 9999 in UTC', run_at)
        when delay not between interval '0' and interval '3650 days'
            then format('delay is %s: it must lie between 0 seconds and ten years', delay)
        when retry is not null and coalesce(retry ->> 'kind', '') not in ('exponential', 'linear', 'constant')
            then 'retry: give a JSON object whose kind is exponential, linear or constant'
        when length(unique_key) not between 1 and 500 then 'unique_key: give 1 to 500 characters'
        when unique_policy is null or unique_policy not in ('keep', 'replace', 'reject')
            then format('unique_policy is %s: use keep, replace or reject', unique_policy)
        when length(concurrency_key) not between 1 and 500 then 'concurrency_key: give 1 to 500 characters'
        when tags is null or array_position(tags, null) is not null then 'tags: give an array without nulls'
        when jsonb_typeof(meta) is distinct from 'object' then 'meta must be a JSON object'
    end;
begin
    if problem is not null then
        raise exception '%', problem using errcode = 'invalid_parameter_value';
    end if;
    return (
        select e.job_id from holdfast.enqueue_jobs(
            array[kind], array[queue], array[args], array[priority]::smallint[], array[max_attempts],
            array[extract(epoch from timeout)]::double precision[], array[run_at],
            array[extract(epoch from delay)]::double precision[], array[retry], array[unique_key],
            array[unique_policy], array[concurrency_key], array[tags::text], array[meta],
            array[parent_id], array[trace]
        ) e
    );
end
$$;
