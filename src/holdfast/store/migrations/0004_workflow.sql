-- Durable runs.  A run is a job; what is here is what it remembers (steps), what it is sent (signals), what it
-- waits for (suspensions), what it did (activities) and what is too large for a step (blobs).

-- A child's parent, and the family in which it was enqueued: the id of the first child of the same step.
alter table holdfast.live_jobs add column parent_id bigint, add column family_id bigint;
alter table holdfast.finished_jobs add column parent_id bigint, add column family_id bigint;
create index live_jobs_family on holdfast.live_jobs (family_id, job_id) where family_id is not null;
create index live_jobs_parent on holdfast.live_jobs (parent_id) where parent_id is not null;
create index live_jobs_waiting on holdfast.live_jobs (run_at, job_id) where state = 'waiting';
create index finished_jobs_family on holdfast.finished_jobs (family_id, job_id) where family_id is not null;

-- What a run remembers, one row for each place in each of its branches; the progress of its steps as well.  Results
-- and errors are json and not jsonb: a replay must meet the very text, keys in their order, that the first time gave.
create table holdfast.steps (
    run_id      bigint not null,
    branch      text not null,
    place       integer not null,
    name        text not null,
    kind        text not null,
    state       text not null check (state in ('running', 'retrying', 'completed', 'failed')),
    attempt     integer not null,
    tries       integer not null default 0,
    started_at  timestamptz,
    finished_at timestamptz,
    wake_at     timestamptz,
    child_id    bigint,
    result      json,
    error       json,
    detail      jsonb,
    primary key (run_id, branch, place)
) with (fillfactor = 90);

-- Whether nothing has followed a place: in its branch, or in those above it.
create function holdfast.is_last(step holdfast.steps) returns boolean
language sql stable
as $$
    select not exists (
        select from holdfast.steps n
        where n.run_id = step.run_id
          and ((n.branch = step.branch and n.place > step.place)
               or (n.kind <> 'cancel' and starts_with(step.branch, n.branch || '/') and n.finished_at > step.finished_at))
    )
$$;

-- Whether the children of a place are its run's own: a fork remembers those of the run that it was made from.
create function holdfast.has_own_children(step holdfast.steps) returns boolean
language sql stable
as $$
    select exists (select from holdfast.jobs j where j.id = step.child_id and j.parent_id = step.run_id)
$$;

-- Messages to runs: first in, first out for each run and name, consumed once, by the place that waited for it.
create table holdfast.signals (
    id          bigint generated always as identity primary key,
    run_id      bigint not null,
    name        text not null check (length(name) between 1 and 200),
    payload     json,
    key         text,
    sent_at     timestamptz not null,
    consumed_at timestamptz,
    branch      text,
    place       integer
);
create index signals_run on holdfast.signals (run_id);
create index signals_unread on holdfast.signals (run_id, name, id) where consumed_at is null;
create unique index signals_key on holdfast.signals (run_id, name, key) where key is not null;

-- Kinds whose jobs are runs, as workers have said; they are kept when the worker is forgotten.  makes_up says that such
-- a run gets one attempt more than it may have, to make up for what it did.
create table holdfast.workflows (kind text primary key, makes_up boolean not null default false);

-- Whether the jobs of a kind are runs; null where no worker that is remembered has known it.
create function holdfast.is_run(kind text) returns boolean
language sql stable
as $$
    select case when exists (select from holdfast.workflows f where f.kind = $1) then true
                when exists (select from holdfast.workers w where $1 = any (w.kinds)) then false end
$$;

-- What a suspended run waits for: any of these.  Gone once it wakes.  paused holds it back whatever comes, and
-- pause_reason says who wants that; on a run that is not suspended it asks for a pause.  stopping says that the run
-- knows of its cancel and makes up for things.
create table holdfast.suspensions (
    run_id       bigint primary key,
    signals      text[] not null default '{}',
    families     bigint[] not null default '{}',
    wake_at      timestamptz,
    paused       boolean not null default false,
    pause_reason text,
    stopping     boolean not null default false,
    reason       text not null,
    since        timestamptz not null
);

-- Every call of a step, as it went.  Append-only.
create table holdfast.activities (
    id         bigint generated always as identity primary key,
    run_id     bigint not null,
    attempt    integer not null,
    branch     text not null,
    place      integer not null,
    step       text not null,
    try        integer not null,
    parameters json,
    result     json,
    error      json,
    started_at timestamptz not null,
    seconds    double precision not null
);
create index activities_run on holdfast.activities (run_id, id);
create index activities_time on holdfast.activities using brin (started_at);

-- A fork has copies of its own under the same ids: what it remembers names them, and the other run may be pruned.
create table holdfast.blobs (
    id         bigint generated always as identity,
    run_id     bigint not null,
    data       bytea not null,
    created_at timestamptz not null,
    primary key (id, run_id)
);
alter table holdfast.blobs alter column data set storage external;
create index blobs_run on holdfast.blobs (run_id);

-- ---------------------------------------------------------------------------------------------
-- Waiting and waking.  Whoever wakes a run, and the run that falls asleep, first lock its row in live_jobs and
-- look afterwards, in a statement of its own: whoever comes second sees what the first one did.

-- Whether all children of one of these families have ended.  A family is looked at from its youngest child, for the
-- oldest end first and leave dead rows behind.
create function holdfast.has_ended(families bigint[]) returns boolean
language sql stable
as $$
    select exists (
        select from unnest(families) as f (id)
        where (select l.job_id from holdfast.live_jobs l where l.family_id = f.id
               order by l.family_id desc, l.job_id desc limit 1) is null
    )
$$;

-- Until when the ends of children do not wake a suspended run: a millisecond for each family that it waits for; null
-- where those are a hundred or less.  Its code is replayed with all their branches, so once for all that end meanwhile.
create function holdfast.calm_until(asked holdfast.suspensions) returns timestamptz
language sql stable
as $$
    select asked.since + make_interval(secs => cardinality(asked.families) / 1000.0)
    where cardinality(asked.families) > 100
$$;

-- Whether what a suspended run waits for has come.  One that waits for nothing goes on.
create function holdfast.may_go_on(asked holdfast.suspensions) returns boolean
language sql stable
as $$
    select not asked.paused and (
        coalesce(asked.wake_at <= holdfast.now(), asked.signals = '{}' and asked.families = '{}')
        or exists (
            select from holdfast.signals g
            where g.run_id = asked.run_id and g.name = any (asked.signals) and g.consumed_at is null
        )
        or (coalesce(holdfast.calm_until(asked) <= holdfast.now(), true) and holdfast.has_ended(asked.families))
    )
$$;

-- Locks these runs until the transaction ends.  Claims pass over what is locked, so workers are told once more of runs that were
-- there to be claimed already: they hear of it at the commit, when the lock goes.
create function holdfast.lock_runs(run_ids bigint[]) returns void
language plpgsql
as $$
declare
    passed_over text[];
    best smallint;
begin
    select array_agg(distinct r.queue) filter (where r.state = 'available'),
           min(r.priority) filter (where r.state = 'available')
    into passed_over, best
    from (
        select l.queue, l.state, l.priority from holdfast.live_jobs l where l.job_id = any (run_ids) order by l.job_id for update
    ) r;
    if passed_over is not null then
        perform holdfast.wake(passed_over, best);
    end if;
end
$$;

-- Makes those of these runs available that may go on, and those whose cancel they do not know of yet.  One that is paused
-- was paused after its cancel, which forgets what was asked before: it stays.
-- One that its children are not to wake yet is left to the stager.  A transaction that is not read committed looks at what was
-- there when it began: the sibling that ended meanwhile lives on for it, and nobody would look again.  So it lets the run go on
-- in any case: that one sleeps again where it has nothing to do.
create function holdfast.revive_runs(run_ids bigint[]) returns void
language plpgsql
as $$
declare
    revived bigint;
    ready text[];
    best smallint;
    due timestamptz;
begin
    perform holdfast.lock_runs(run_ids);
    with moved as (
        update holdfast.live_jobs l set state = 'available', run_at = holdfast.now()
        from holdfast.suspensions s
        where l.job_id = any (run_ids) and l.state = 'waiting' and s.run_id = l.job_id
          and ((l.cancel_requested_at is not null and not s.stopping and not s.paused) or holdfast.may_go_on(s)
               or (not s.paused and current_setting('transaction_isolation') <> 'read committed'))
        returning l.job_id, l.queue, l.priority
    ), gone as (
        delete from holdfast.suspensions s using moved m where s.run_id = m.job_id
    )
    select count(*), array_agg(distinct m.queue), min(m.priority) into revived, ready, best from moved m;
    if revived > 0 then
        perform holdfast.wake(ready, best);
    end if;
    if revived < cardinality(run_ids) then
        with calm as (
            update holdfast.live_jobs l set run_at = holdfast.calm_until(s)
            from holdfast.suspensions s
            where l.job_id = any (run_ids) and l.state = 'waiting' and s.run_id = l.job_id and not s.paused
              and l.run_at > holdfast.calm_until(s) and holdfast.has_ended(s.families)
            returning l.run_at
        )
        select min(c.run_at) into due from calm c;
        if due is not null then
            perform holdfast.wake_stager(due);
        end if;
    end if;
end
$$;

-- Puts held runs to sleep; the caller has locked them, in id order.  Whoever has got so far has outlived what went wrong:
-- failures count anew, or a few deaths of workers would end a run of years.  One that parks for a pause, and does not know
-- of its cancel yet, goes on: the cancel came later.  Each wait is an object: signals, families,
-- wake_in (seconds), paused, stopping, reason, and notes, the places to be recorded with it: branch, place, name, kind,
-- state, wake_in, result (the text of its JSON).
create function holdfast.suspend_held(run_ids bigint[], waits jsonb[]) returns void
language plpgsql
as $$
declare
    due timestamptz;
begin
    insert into holdfast.steps as s (run_id, branch, place, name, kind, state, attempt, started_at, finished_at, wake_at,
                                     result)
    select l.job_id, n.branch, n.place, n.name, n.kind, n.state, l.attempt, holdfast.now(),
           case when n.state = 'completed' then holdfast.now() end,
           holdfast.now() + make_interval(secs => n.wake_in), n.result::json
    from unnest(run_ids, waits) as w (run_id, wait)
    join holdfast.live_jobs l on l.job_id = w.run_id
    cross join lateral jsonb_to_recordset(w.wait -> 'notes')
        as n (branch text, place integer, name text, kind text, state text, wake_in double precision, result text)
    on conflict (run_id, branch, place) do update
    set state = excluded.state, attempt = excluded.attempt, finished_at = excluded.finished_at, result = excluded.result
    where s.state = 'running' and excluded.state = 'completed';
    insert into holdfast.attempts (job_id, attempt, outcome, reason, worker_id, claimed_at, started_at, ended_at)
    select l.job_id, l.attempt, 'suspended', w.wait ->> 'reason', l.worker_id, l.claimed_at, l.started_at, holdfast.now()
    from unnest(run_ids, waits) as w (run_id, wait) join holdfast.live_jobs l on l.job_id = w.run_id;
    insert into holdfast.suspensions as s (run_id, signals, families, wake_at, paused, stopping, reason, since)
    select w.run_id, array(select jsonb_array_elements_text(w.wait -> 'signals')),
           array(select jsonb_array_elements_text(w.wait -> 'families')::bigint),
           holdfast.now() + make_interval(secs => (w.wait ->> 'wake_in')::double precision),
           (w.wait ->> 'paused')::boolean and (l.cancel_requested_at is null or (w.wait ->> 'stopping')::boolean),
           (w.wait ->> 'stopping')::boolean, w.wait ->> 'reason', holdfast.now()
    from unnest(run_ids, waits) as w (run_id, wait) join holdfast.live_jobs l on l.job_id = w.run_id
    on conflict (run_id) do update
    set signals = excluded.signals, families = excluded.families, wake_at = excluded.wake_at,
        paused = s.paused or excluded.paused, stopping = excluded.stopping, since = excluded.since,
        reason = excluded.reason;
    update holdfast.live_jobs l
    set state = 'waiting', run_at = case when s.paused then 'infinity' else coalesce(s.wake_at, 'infinity') end,
        failures = 0, worker_id = null, claimed_at = null, started_at = null, progress = null, progress_note = null,
        suspect = false
    from holdfast.suspensions s where l.job_id = any (run_ids) and s.run_id = l.job_id;
    perform holdfast.revive_runs(run_ids);
    select min(l.run_at) into due from holdfast.live_jobs l where l.job_id = any (run_ids) and l.state = 'waiting';
    if due is not null then
        perform holdfast.wake_stager(due);
    end if;
end
$$;

-- Sends a signal to a run that has not ended; it counts once the transaction commits.  Answers its id, or that of the
-- one that was sent with the same key before.  Raises HF002 where the run has ended or never was, HF003 where the
-- job is none.
-- Sessions of others do not pin their plans as ours do: without its settings each signal would be planned anew.
--   select holdfast.send_signal(42, 'approved', '{"by": "ada"}', key => 'mail 7');
create function holdfast.send_signal(
    run_id bigint, name text, payload json default null, key text default null
) returns bigint
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_variable
declare
    sent bigint;
    asked text;
begin
    -- No run is in a bundle, but a job may be that somebody takes for one.
    select coalesce((select l.kind from holdfast.live_jobs l where l.job_id = run_id),
                    (select b.kind from holdfast.bundled_jobs b where b.job_id = run_id))
    into asked;
    if asked is null then
        raise exception 'run % has ended or does not exist: it takes no signals', run_id
            using errcode = 'HF002', detail = run_id::text;
    end if;
    if not holdfast.is_run(asked) then
        raise exception 'job % of kind % is not a run', run_id, asked
            using errcode = 'HF003', detail = run_id::text, hint = asked;
    end if;
    if octet_length(payload::text) > 1048576 then
        raise exception 'the payload of signal % takes % bytes, allowed are 1048576', name, octet_length(payload::text)
            using errcode = 'program_limit_exceeded';
    end if;
    -- What json lets in and nobody can read: NUL, and halves of surrogate pairs.
    perform payload::jsonb;
    insert into holdfast.signals as g (run_id, name, payload, key, sent_at)
    values (run_id, name, payload, key, holdfast.now())
    on conflict do nothing returning g.id into sent;
    if sent is null then
        select g.id into sent from holdfast.signals g where g.run_id = run_id and g.name = name and g.key = key;
    end if;
    return sent;
end
$$;

create function holdfast.signal_sent() returns trigger
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    perform holdfast.revive_runs(array[new.run_id]);
    return null;
end
$$;

-- At the commit, so that a caller's long transaction holds no run up.
create constraint trigger signal_sent after insert on holdfast.signals
deferrable initially deferred
for each row execute function holdfast.signal_sent();

-- ---------------------------------------------------------------------------------------------
-- What operators do to runs

-- Lets paused runs go on that the caller has locked; one that a worker holds only forgets that it was to pause.
create function holdfast.resume_held(run_ids bigint[]) returns void language plpgsql as $$
declare
    due timestamptz;
begin
    update holdfast.suspensions s set paused = false, pause_reason = null where s.run_id = any (run_ids);
    delete from holdfast.suspensions s using holdfast.live_jobs l
    where s.run_id = any (run_ids) and l.job_id = s.run_id and l.worker_id is not null;
    update holdfast.live_jobs l set run_at = coalesce(s.wake_at, 'infinity')
    from holdfast.suspensions s where l.job_id = any (run_ids) and s.run_id = l.job_id and l.state = 'waiting';
    perform holdfast.revive_runs(run_ids);
    select min(l.run_at) into due from holdfast.live_jobs l where l.job_id = any (run_ids) and l.state = 'waiting';
    if due is not null then
        perform holdfast.wake_stager(due);
    end if;
end
$$;

-- Enqueues a run that remembers what another one had recorded up to the end of a step; answers its id.  Its random
-- values grow from the same seed.  Every branch is taken as it stood at that moment.
create function holdfast.fork_run(
    source bigint, seed text, from_branch text, step text, step_place integer, actor text, reason text
) returns bigint
language plpgsql
as $$
declare
    forked bigint;
    moment timestamptz;
begin
    select s.finished_at into moment from holdfast.steps s
    where s.run_id = source and s.branch = from_branch and s.name = step and s.state in ('completed', 'failed')
      and s.place >= 0 and (step_place is null or s.place = step_place)
    order by s.place desc limit 1;
    select holdfast.enqueue(
        j.kind, j.args, j.queue, j.priority, max_attempts => j.max_attempts,
        timeout => make_interval(secs => j.timeout), retry => j.retry, concurrency_key => j.concurrency_key,
        tags => j.tags, meta => j.meta || jsonb_build_object('forked_from', source), parent_id => null)
    into forked from holdfast.jobs j where j.id = source;
    insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt, tries, started_at, finished_at,
                                child_id, result, error, detail)
    select forked, s.branch, s.place, s.name, s.kind, s.state, 0, s.tries, s.started_at, s.finished_at, s.child_id,
           s.result, s.error, s.detail
    from holdfast.steps s
    where s.run_id = source and s.branch <> 'compensation' and s.place >= 0 and s.state in ('completed', 'failed')
      and s.finished_at <= moment;
    insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt, result)
    select forked, 'main', -1, 'seed', 'seed', 'completed', 0, coalesce(
        (select s.result from holdfast.steps s where s.run_id = source and s.branch = 'main' and s.place = -1),
        to_json(seed));
    insert into holdfast.blobs (id, run_id, data, created_at) overriding system value
    select b.id, forked, b.data, b.created_at from holdfast.blobs b where b.run_id = source and b.created_at <= moment;
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    values (holdfast.now(), actor, 'run.fork', 'job ' || source, reason,
            jsonb_build_object('fork', forked, 'branch', from_branch, 'step', step));
    return forked;
end
$$;
