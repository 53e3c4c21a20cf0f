-- Runners: workers that have only HTTPS.  What a job asks of them (routes, placements), what they were given
-- (assignments), what they gave back (artifacts), and who hears them (servers).

-- A runner is a row of workers whose term is set: it grows with every registration under its name, and token_id is of the
-- one token that speaks for it in this term, null once that was revoked.  capacity limits single queues;
-- drain_requested_at outlives registrations; contact_at is since when it has been heard without a gap.  No enqueue looks at it.
alter table holdfast.workers
    add column term               integer,
    add column token_id           bigint,
    add column protocol           integer,
    add column capacity           jsonb not null default '{}',
    add column drain_requested_at timestamptz,
    add column contact_at         timestamptz;
create index workers_told on holdfast.workers (id) where state = 'online' and term is null;
create unique index workers_runner on holdfast.workers (name) where term is not null;

-- A shape that jobs for runners have: a queue, a kind, the labels a runner must have, perhaps a runner by name.
-- There are few shapes and many jobs, so a claim looks at shapes first and never walks over jobs it cannot take.
create table holdfast.routes (
    id     integer generated always as identity primary key,
    queue  text not null,
    kind   text not null,
    labels text[] not null,
    runner text,
    unique nulls not distinct (queue, kind, labels, runner)
);

-- The runners that are there and have all that a route asks, one row for each pair; those that drain take no new jobs of it.
create view holdfast.fitting_runners as
select r.id as route_id, w.id, w.state, w.slots, w.capacity
from holdfast.routes r
join holdfast.workers w on w.term is not null and w.state in ('online', 'draining') and w.expires_at > holdfast.now()
    and r.queue = any (w.queues) and r.kind = any (w.kinds) and r.labels <@ w.labels
    and (r.runner is null or r.runner = w.name);

-- What a job for runners asks beside what every job asks.  pinned_until is set while only runner may take it and
-- somebody else may later; spec_sha256 is the hash of holdfast.job_spec as it was when the job was enqueued.
create table holdfast.placements (
    job_id       bigint primary key,
    labels       text[] not null default '{}',
    runner       text,
    pinned_until timestamptz,
    on_loss      text not null default 'retry' check (on_loss in ('retry', 'fail', 'hold')),
    stall_limit  interval,
    spec_sha256  text not null
);
create index placements_pinned on holdfast.placements (pinned_until) where pinned_until is not null;
create index placements_stalling on holdfast.placements (job_id) where stall_limit is not null;

-- An attempt as its runner sees it.  The numbers of requests order what the network did not: see the protocol.
-- rungs are the moments of a cancel, cancel_reason is what its runner is told of it; report is the end as it was accepted, evidence what came too late.
create table holdfast.assignments (
    job_id        bigint not null,
    attempt       integer not null,
    worker_id     bigint not null,
    term          integer not null,
    offered_at    timestamptz not null,
    accepted_at   timestamptz,
    accepted_by   bigint,
    progressed_at timestamptz not null,
    rungs         jsonb not null default '{}',
    cancel_reason text,
    report        jsonb,
    outcome       text,
    evidence      jsonb not null default '[]',
    primary key (job_id, attempt)
) with (fillfactor = 80);
create index assignments_offered on holdfast.assignments (offered_at) where accepted_at is null and outcome is null;

-- The rungs of an assignment that are known once its runner has told of one (null: of none).  Each keeps the time it had
-- first; those that were taken between two requests are told by the last of them, and nobody who acts has not heard.
create function holdfast.with_rung(rungs jsonb, rung text) returns jsonb
language sql stable as $$
    select case when rung is null or rungs ? rung then rungs
                else jsonb_strip_nulls(jsonb_build_object(
                    'delivered', case when rungs ? 'requested' then holdfast.now() end,
                    'acknowledged', case when rungs ? 'requested' then holdfast.now() end,
                    'interrupted', case when rung in ('interrupted', 'killed') then holdfast.now() end,
                    'killed', case when rung = 'killed' then holdfast.now() end)) || rungs end
$$;

create table holdfast.artifacts (
    job_id     bigint not null,
    attempt    integer not null,
    name       text not null,
    size       bigint not null,
    sha256     text not null,
    data       bytea not null,
    created_at timestamptz not null,
    primary key (job_id, attempt, name)
);
alter table holdfast.artifacts alter column data set storage external;

-- Processes that hear runners.  A runner cannot be lost for a silence in which nobody could have heard it.
create table holdfast.servers (
    id         bigint generated always as identity primary key,
    name       text not null,
    started_at timestamptz not null,
    renewed_at timestamptz not null
);

-- ---------------------------------------------------------------------------------------------
-- Jobs that only runners may take: those with a route.  All others stay as they were.

alter table holdfast.live_jobs add column route_id integer;

drop index holdfast.live_jobs_available;
drop index holdfast.live_jobs_available_keyed;
create index live_jobs_available on holdfast.live_jobs (queue, priority, place)
    where state = 'available' and concurrency_key is null and route_id is null;
create index live_jobs_available_keyed on holdfast.live_jobs (queue, concurrency_key, priority, place)
    where state = 'available' and concurrency_key is not null and route_id is null;
create index live_jobs_routed on holdfast.live_jobs (route_id, priority, place)
    where state = 'available' and concurrency_key is null and route_id is not null;
create index live_jobs_routed_keyed on holdfast.live_jobs (route_id, concurrency_key, priority, place)
    where state = 'available' and concurrency_key is not null and route_id is not null;

-- Tells the servers that there is something for runners in this queue.
create function holdfast.wake_runners(queue text) returns void
language sql
as $$ select pg_notify('holdfast', 'routed:' || case when octet_length(queue) < 7000 then queue else '*' end) $$;

create or replace function holdfast.take_place() returns trigger
language plpgsql
as $$
begin
    new.place := holdfast.next_place();
    if new.route_id is not null then
        perform holdfast.wake_runners(new.queue);
    end if;
    return new;
end
$$;

-- What a runner gets of a job, as text.  jsonb has one text for one value, so its hash is a fact.
create function holdfast.job_spec(job_id bigint) returns text
language sql stable
as $$
    select jsonb_build_object('kind', j.kind, 'args', j.args, 'timeout', j.timeout)::text
    from holdfast.jobs j where j.id = $1
$$;

-- The route of a shape, made where it is new, and kept until the transaction ends.
create function holdfast.route_for(queue text, kind text, labels text[], runner text) returns integer
language plpgsql
as $$
#variable_conflict use_variable
declare
    found integer;
    sorted text[] := array(select distinct a from unnest(labels) a order by a);
begin
    loop
        select r.id into found from holdfast.routes r
        where r.queue = queue and r.kind = kind and r.labels = sorted and r.runner is not distinct from runner
        for key share;
        if found is not null then
            return found;
        end if;
        insert into holdfast.routes (queue, kind, labels, runner) values (queue, kind, sorted, runner)
        on conflict do nothing;
    end loop;
end
$$;

-- Sends jobs to runners, in the transaction that enqueued them.  A placement is an object: labels, runner, pin_for (seconds
-- from now on; for ever without it), on_loss, stall_limit (seconds).
create function holdfast.place_job(asked bigint, placement jsonb) returns void
language plpgsql
as $$
declare
    wanted text[] := array(select jsonb_array_elements_text(coalesce(placement -> 'labels', '[]')));
    named text := placement ->> 'runner';
    routed text;
begin
    insert into holdfast.placements as p (job_id, labels, runner, pinned_until, on_loss, stall_limit, spec_sha256)
    values (asked, wanted, named,
            holdfast.now() + make_interval(secs => (placement ->> 'pin_for')::double precision),
            coalesce(placement ->> 'on_loss', 'retry'),
            make_interval(secs => (placement ->> 'stall_limit')::double precision),
            encode(sha256(convert_to(holdfast.job_spec(asked), 'UTF8')), 'hex'))
    on conflict (job_id) do update
    set labels = excluded.labels, runner = excluded.runner, pinned_until = excluded.pinned_until,
        on_loss = excluded.on_loss, stall_limit = excluded.stall_limit, spec_sha256 = excluded.spec_sha256;
    update holdfast.live_jobs l set route_id = holdfast.route_for(l.queue, l.kind, wanted, named)
    where l.job_id = asked
    returning case when l.state = 'available' then l.queue end into routed;
    if routed is not null then
        perform holdfast.wake_runners(routed);
    end if;
    -- The leader looks every 5 s by itself.
    if (placement ->> 'pin_for')::double precision < 5 then
        perform pg_notify('holdfast', 'runners');
    end if;
end
$$;

-- Enqueues jobs of which some are for runners: as enqueue_jobs, with a placement for each (null: for any worker).
-- Routes that are new are made in one order by everybody, so that two callers do not deadlock.  Of jobs that replace each other
-- under one unique key the last one's placement counts.
create function holdfast.enqueue_placed(
    kinds text[], queues text[], args jsonb[], priorities smallint[], max_attempts integer[],
    timeouts double precision[], run_ats timestamptz[], delays double precision[], retries jsonb[],
    unique_keys text[], unique_policies text[], concurrency_keys text[], tags text[], metas jsonb[],
    parent_ids bigint[], traces text[], placements jsonb[]
) returns table (place bigint, job_id bigint, status text)
language plpgsql
as $$
declare
    one record;
begin
    perform holdfast.route_for(r.queue, r.kind, r.labels, r.runner)
    from (
        select distinct u.queue, u.kind, u.placement ->> 'runner' as runner,
               array(select jsonb_array_elements_text(coalesce(u.placement -> 'labels', '[]'))) as labels
        from unnest(queues, kinds, placements) as u (queue, kind, placement)
        where u.placement is not null
        order by 1, 2, 3, 4
    ) r;
    for one in
        select e.place, e.job_id, e.status,
               lead(e.place) over (partition by e.job_id, e.status = 'kept' order by e.place) is null as is_last
        from holdfast.enqueue_jobs(kinds, queues, args, priorities, max_attempts, timeouts, run_ats, delays, retries,
                                   unique_keys, unique_policies, concurrency_keys, tags, metas, parent_ids, traces) e
        order by e.place
    loop
        if one.status <> 'kept' and one.is_last and placements[one.place] is not null then
            perform holdfast.place_job(one.job_id, placements[one.place]);
        end if;
        place := one.place;
        job_id := one.job_id;
        status := one.status;
        return next;
    end loop;
end
$$;

-- Sends children to runners, with a placement for each in order (null: for any worker); answers their family.
create function holdfast.place_children(family bigint, placements jsonb[]) returns bigint
language plpgsql
as $$
begin
    if array_remove(placements, null) <> '{}' then
        perform holdfast.place_job(c.job_id, placements[c.nth])
        from (
            select b.job_id, b.nth from (
                select a.job_id, row_number() over (order by a.job_id) as nth from (
                    select l.job_id from holdfast.live_jobs l where l.family_id = family
                    union all
                    select f.job_id from holdfast.finished_jobs f where f.family_id = family
                ) a
            ) b
            join holdfast.jobs j on j.id = b.job_id
            where placements[b.nth] is not null
              -- Those that were started before have theirs.
              and not exists (select from holdfast.placements p where p.job_id = b.job_id)
            -- Routes in one order for everybody, as above.
            order by j.queue, j.kind, placements[b.nth]
            offset 0
        ) c;
    end if;
    return family;
end
$$;

-- Whoever enqueues a command, by whatever way, means a runner.
create function holdfast.place_command() returns trigger
language plpgsql
as $$
begin
    if new.kind = 'command' and not exists (
        select from holdfast.live_jobs l where l.job_id = new.job_id and l.route_id is not null
    ) then
        perform holdfast.place_job(new.job_id, '{}');
    end if;
    return null;
end
$$;
-- At the commit: some ways in make the two rows of a job one after the other.
create constraint trigger place_command after insert on holdfast.live_jobs
    deferrable initially deferred
    for each row when (new.kind = 'command' and new.route_id is null) execute function holdfast.place_command();

-- Lets a job that was replaced ask anew: enqueue_unique says so, for a trigger would be paid by each claim.
create function holdfast.unroute(replaced bigint) returns void
language plpgsql
as $$
declare
    is_command boolean;
begin
    select l.kind = 'command' into is_command from holdfast.live_jobs l
    where l.job_id = replaced and (l.kind = 'command' or l.route_id is not null);
    if not found then
        return;
    end if;
    delete from holdfast.placements p where p.job_id = replaced;
    update holdfast.live_jobs l set route_id = null where l.job_id = replaced and l.route_id is not null;
    if is_command then
        perform holdfast.place_job(replaced, '{}');
    end if;
end
$$;

-- ---------------------------------------------------------------------------------------------
-- Loss

-- Takes held jobs away from their workers, for a reason each; the caller has locked them, and ends lock as children_ended does.
-- A job whose handler had begun counts a failure and fails for good at max_attempts, or by its placement at once, or is held for a
-- person; one that had not begun is released unspent, as a suspect: it may have begun a moment ago; one whose cancel was requested is
-- cancelled, unless it is a run with steps to make up for.  Answers what became of each.
create function holdfast.take_away(job_ids bigint[], reasons text[])
returns table (job_id bigint, kind text, fate text)
language plpgsql
as $$
#variable_conflict use_column
declare
    ready text[];
begin
    return query
    with orphan as materialized (
        select l.job_id, l.queue, l.priority, l.kind, l.attempt, l.worker_id, l.claimed_at, l.started_at, l.parent_id, l.family_id,
               l.failures + case when l.state = 'running' then 1 else 0 end as failures, a.reason,
               case when l.cancel_requested_at is not null
                          and not exists (select from holdfast.steps s where s.run_id = any (array[l.job_id])) then 'cancelled'
                    when l.state = 'claimed' then 'released'
                    when p.on_loss = 'hold' then 'held'
                    when p.on_loss = 'fail' then 'failed'
                    when l.failures + 1 = j.max_attempts and exists (
                             select from holdfast.workflows f where f.kind = l.kind and f.makes_up) then 'lost'
                    when l.failures + 1 >= j.max_attempts then 'failed'
                    else 'lost' end as fate,
               case p.on_loss when 'fail' then 'its policy is to fail: ' else 'attempts exhausted: ' end as problem
        from unnest(job_ids, reasons) as a (job_id, reason)
        join holdfast.live_jobs l on l.job_id = any (array[a.job_id])
        join holdfast.jobs j on j.id = any (array[a.job_id])
        left join holdfast.placements p on p.job_id = any (array[a.job_id])
    ), gone as (
        delete from holdfast.live_jobs l using orphan o where l.job_id = any (array[o.job_id]) and o.fate in ('cancelled', 'failed')
    ), finished as (
        insert into holdfast.finished_jobs (job_id, queue, kind, outcome, reason, attempt, failures, worker_id, claimed_at,
                                            started_at, finished_at, error, parent_id, family_id)
        select o.job_id, o.queue, o.kind, o.fate, coalesce(c.reason || ' (' || o.reason || ')', o.reason), o.attempt,
               o.failures, o.worker_id, o.claimed_at, o.started_at, holdfast.now(),
               case when o.fate = 'failed' then o.problem || o.reason end, o.parent_id, o.family_id
        from orphan o
        cross join lateral (
            select (select a.cancel_reason from holdfast.assignments a
                    where o.fate = 'cancelled' and a.job_id = o.job_id and a.attempt = o.attempt) as reason
        ) c
        where o.fate in ('cancelled', 'failed')
    ), held as (
        insert into holdfast.suspensions as s (run_id, paused, pause_reason, reason, since)
        select o.job_id, true, 'held for a person: ' || o.reason, 'a person', holdfast.now() from orphan o where o.fate = 'held'
        on conflict (run_id) do update set paused = true, pause_reason = excluded.pause_reason
    ), moved as (
        update holdfast.live_jobs l
        set state = case when o.fate = 'held' then 'waiting' else 'available' end,
            run_at = case when o.fate = 'held' then 'infinity' else holdfast.now() end, failures = o.failures,
            worker_id = null, claimed_at = null, started_at = null, progress = null, progress_note = null,
            suspect = l.suspect or o.fate = 'released'
        from orphan o where l.job_id = any (array[o.job_id]) and o.fate in ('lost', 'released', 'held')
    ), noted as (
        insert into holdfast.attempts (job_id, attempt, outcome, reason, worker_id, claimed_at, started_at, ended_at)
        select o.job_id, o.attempt, case when o.fate = 'held' then 'lost' else o.fate end, o.reason, o.worker_id,
               o.claimed_at, o.started_at, holdfast.now()
        from orphan o where o.fate in ('lost', 'released', 'held')
    ), closed as (
        update holdfast.assignments a set outcome = case when o.fate = 'held' then 'lost' else o.fate end
        from orphan o where a.job_id = o.job_id and a.attempt = o.attempt
    ), spent as (
        delete from holdfast.tokens k using orphan o where k.job_id = o.job_id and k.attempt = o.attempt
    ), woken as (
        -- Where a job has ended there may be room under a limit, for one of no special urgency.
        select holdfast.wake(array_agg(distinct o.queue),
                             coalesce(min(o.priority) filter (where o.fate in ('lost', 'released')), 9::smallint))
        from orphan o having count(*) > 0
    )
    select o.job_id, o.kind, o.fate from orphan o, (select count(*) from woken) n;
end
$$;

-- Whether nobody knows a kind; see 0003.  A runner says nothing about the jobs that workers take.  A kind of runs is
-- known for ever: one that wakes after a deploy waits for its version, however long.  So is what carries deliveries, which
-- is known to services only.
create or replace function holdfast.is_unknown(asked_queue text, asked_kind text, grace interval) returns boolean
language sql stable
as $$
    select exists (
        select from holdfast.workers w
        where w.state = 'online' and w.expires_at > holdfast.now() and asked_queue = any (w.queues)
          and w.term is null and w.started_at < holdfast.now() - grace
    ) and not exists (
        select from holdfast.workers w
        where asked_queue = any (w.queues) and asked_kind = any (w.kinds) and w.term is null
          and coalesce(w.ended_at, holdfast.now()) >= holdfast.now() - grace
    ) and not exists (
        select from holdfast.queues q where q.name = asked_queue and q.paused
    ) and not exists (
        select from holdfast.workflows f where f.kind = asked_kind
    ) and asked_kind <> 'holdfast:deliver'
$$;
