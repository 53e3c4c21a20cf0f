-- Bundles: a worker that claims many fresh jobs at once takes them out of the line, into one row for all of one queue, kind and
-- priority.  A job in a bundle has no row in live_jobs.  It leaves the bundle once: when its end is written, or when
-- somebody wants more of it than that, be it its own worker, an operator or a rescue: then it gets a row in live_jobs
-- again, and all goes on there as if it had never been gone.

-- The first *running* of job_ids went to free slots, the others to the buffer; those behind the first *foremost*, if it is not null, wait
-- there for their key's turn.  Inside each of these parts they are in order.  clock is when, by the database, its worker's clock stood at
-- zero, as late as it may have been by the latest of its ends: all that followed each other are told by it.  Each has a bit in gone,
-- which is set when the job leaves; a row whose bits are all set is deleted at once.  So the bits are the fence: whoever
-- ends a job of a bundle, or takes it out, sets its bit in the same statement, and writes nothing where it was set before.
-- All are first attempts without failures.  keys are their concurrency keys, null where none has one.  Ids and keys are kept
-- apart from the row, which is written anew each time.
create table holdfast.bundles (
    id         bigint generated always as identity primary key,
    worker_id  bigint not null,
    queue      text not null,
    kind       text not null,
    priority   smallint not null,
    claimed_at timestamptz not null,
    running    integer not null,
    foremost   integer,
    clock      timestamptz,
    job_ids    bigint[] not null,
    keys       text[],
    gone       bit varying not null,
    check (length(gone) = cardinality(job_ids))
) with (
    fillfactor = 50,
    toast_tuple_target = 256,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_scale_factor = 0
);
alter table holdfast.bundles alter column job_ids set storage external, alter column keys set storage external;
create index bundles_queue on holdfast.bundles (queue);

-- The jobs that are in bundles now, as live_jobs would have them; run_at of those is in jobs only, as created_at.  `b.id > 0`
-- lets the bundles be read by index, which skips what is dead for all.
create view holdfast.bundled_jobs as
select u.job_id, u.job_id as place, b.queue, b.kind, b.priority,
       case when u.nth <= b.running then 'running' else 'claimed' end as state, 1 as attempt, 0 as failures,
       null::timestamptz as run_at, b.worker_id, b.claimed_at, case when u.nth <= b.running then b.claimed_at end as started_at,
       null::timestamptz as cancel_requested_at, null::real as progress, null::text as progress_note, null::text as unique_key,
       u.key as concurrency_key, 0 as revision, false as suspect, null::bigint as parent_id, null::bigint as family_id,
       null::integer as route_id, false as ahead, coalesce(u.nth > b.foremost, false) as in_turn
from holdfast.bundles b cross join lateral unnest(b.job_ids, b.keys) with ordinality as u (job_id, key, nth)
where b.id > 0 and get_bit(b.gone, u.nth::integer - 1) = 0;

-- Every job that has not ended, wherever it stands: for whoever only looks.
create view holdfast.unfinished_jobs as
select job_id, place, queue, kind, priority, state, attempt, failures, run_at, worker_id, claimed_at, started_at,
       cancel_requested_at, progress, progress_note, unique_key, concurrency_key, revision, suspect, parent_id, family_id,
       route_id, ahead, in_turn
from holdfast.live_jobs
union all
select * from holdfast.bundled_jobs;

-- Takes jobs out of these bundles, those of *wanted* or, where that is null, all; answers who has a row in live_jobs now.
-- Locks the bundles in order of id, so it waits for ends that are being written, and for whoever takes jobs out as well.
create function holdfast.untie(bundle_ids bigint[], wanted bigint[]) returns setof bigint
language sql
as $$
    with held as materialized (
        select b.id, b.worker_id, b.queue, b.kind, b.priority, b.claimed_at, b.running, b.foremost, b.job_ids, b.keys,
               b.gone
        from holdfast.bundles b where b.id = any (bundle_ids)
        order by b.id for update
    ), members as materialized (
        -- Met by hash, never member by member: a bundle may have thousands, and all of them may part.
        select h.id, u.job_id, u.key, u.nth, get_bit(h.gone, u.nth::integer - 1) as gone,
               get_bit(h.gone, u.nth::integer - 1) = 0 and (wanted is null or u.job_id in (select unnest(wanted))) as parts
        from held h cross join lateral unnest(h.job_ids, h.keys) with ordinality as u (job_id, key, nth)
    ), left_with as materialized (
        select m.id, string_agg(case when m.parts then '1' else m.gone::text end, '' order by m.nth)::varbit as gone
        from members m
        group by m.id
        having bool_or(m.parts)
    ), emptied as (
        delete from holdfast.bundles b using left_with w where b.id = w.id and bit_count(w.gone) = length(w.gone)
    ), shrunk as (
        update holdfast.bundles b set gone = w.gone from left_with w where b.id = w.id and bit_count(w.gone) < length(w.gone)
    )
    insert into holdfast.live_jobs (job_id, place, queue, kind, priority, state, attempt, run_at, worker_id, claimed_at, started_at,
                                    concurrency_key, in_turn)
    select p.job_id, p.job_id, h.queue, h.kind, h.priority, case when p.nth <= h.running then 'running' else 'claimed' end, 1,
           j.created_at, h.worker_id, h.claimed_at, case when p.nth <= h.running then h.claimed_at end, p.key,
           coalesce(p.nth > h.foremost, false)
    from members p join held h on h.id = p.id join holdfast.jobs j on j.id = any (array[p.job_id])
    where p.parts
    returning job_id
$$;

-- The concurrency keys of a queue that workers hold jobs of, one for each such job, who does, and whether it was claimed behind another.
create function holdfast.held_keys(queue text) returns table (key text, worker_id bigint, in_turn boolean)
language sql stable
as $$
    select r.concurrency_key, r.worker_id, r.in_turn from holdfast.live_jobs r
    where r.queue = $1 and r.concurrency_key is not null and r.worker_id is not null
    union all
    select u.key, b.worker_id, coalesce(u.nth > b.foremost, false)
    from holdfast.bundles b cross join lateral unnest(b.keys) with ordinality as u (key, nth)
    where b.queue = $1 and b.keys is not null and u.key is not null and get_bit(b.gone, u.nth::integer - 1) = 0
$$;

-- Locks and returns the best job of each of the keys *mine* if it is more urgent than *than* says of that key; skips keys of which others
-- than *taker* hold one, rows that others have locked, and those of *chosen*.  Only under the lock of the queue's limits, for one who
-- begins one after the other.
create function holdfast.keyed_urgent(queue text, kinds text[], taker bigint, mine text[], than integer[], chosen bigint[]) returns bigint[]
language sql
as $$
    select array(
        select urgent.job_id
        from unnest($4, $5) as own (key, priority)
        cross join lateral (
            select c.job_id from holdfast.live_jobs c
            where c.queue = $1 and c.state = 'available' and c.concurrency_key = own.key and c.route_id is null
              and c.priority < own.priority and c.kind = any ($2) and c.job_id <> all ($6)
            order by c.priority, c.place
            limit 1
            for update skip locked
        ) urgent
        where own.key not in (select h.key from holdfast.held_keys($1) h where h.worker_id <> $3)
    )
    where exists (
        select from holdfast.live_jobs c
        where c.queue = $1 and c.state = 'available' and num_nulls(c.concurrency_key) = 0 and c.route_id is null
          and c.priority < (select max(p) from unnest($5) p)
    )
$$;

-- How many jobs of a queue are in bundles.
create function holdfast.bundled_in(asked_queue text) returns bigint
language sql stable
as $$
    select coalesce(sum(cardinality(b.job_ids) - bit_count(b.gone)), 0)::bigint from holdfast.bundles b where b.queue = asked_queue
$$;

-- For people: what is known of a job, joined.
create view holdfast.job_overview as
select j.id, j.kind, j.queue, coalesce(l.state, f.outcome) as state, j.priority,
       coalesce(l.attempt, f.attempt) as attempt, coalesce(l.failures, f.failures) as failures,
       j.max_attempts, j.timeout, j.args, j.meta, j.tags, j.unique_key, j.concurrency_key, j.parent_id,
       j.created_at, case when l.job_id is not null then nullif(coalesce(l.run_at, j.created_at), 'infinity') end as run_at,
       coalesce(l.claimed_at, f.claimed_at) as claimed_at,
       coalesce(l.started_at, f.started_at) as started_at, f.finished_at,
       coalesce(l.worker_id, f.worker_id) as worker_id, l.cancel_requested_at,
       l.progress, l.progress_note, f.reason, f.error, f.result
from holdfast.jobs j
left join holdfast.unfinished_jobs l on l.job_id = j.id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true;

-- Claims the jobs *ids* for worker *taker*, those of *starting* as running, those of *early* ahead of permits or, with *in_turn*, of
-- their key's turn, so that it is told of keys; who is in *held* has that attempt already.  What is fresh and of one of the kinds
-- *bundling* goes from live_jobs into bundles, one for each queue, kind, priority, limit of attempts and timeout; whatever has a past, a
-- unique key or a parent, or is to run as of an earlier time, is claimed where it is.  A bundle is one row of the answer: a row for each
-- of its jobs would cost a microsecond more for each.
-- Part of a claim, which has locked the rows, the worker's own, and the limits of queues that have some.
create function holdfast.take_jobs(
    taker bigint, ids bigint[], starting bigint[], early bigint[], held bigint[], bundling text[], present timestamptz,
    in_turn boolean
)
returns setof holdfast.claimed_job
language plpgsql
as $$
declare
    taken integer := 0;
    bundle holdfast.claimed_job;
begin
    if cardinality(bundling) > 0 then
        for bundle in with taken as (
            delete from holdfast.live_jobs l using holdfast.jobs j
            where l.job_id = any (ids)
              and j.id >= l.job_id and j.id <= l.job_id and j.revision = 0 and j.created_at = l.run_at
              and l.place = l.job_id and (l.attempt, l.revision) = (0, 0) and l.kind = any (bundling)
              and num_nulls(l.unique_key, l.parent_id, l.family_id, l.cancel_requested_at) = 4
            returning l.job_id, l.kind, l.queue, l.priority, l.concurrency_key, j.max_attempts, j.timeout, j.args, j.retry, j.meta,
                      j.tags, j.trace, j.created_at, l.job_id = any (starting) as is_started
        ), alike as materialized (
            select t.queue, t.kind, t.priority, t.max_attempts, t.timeout, count(*) filter (where t.is_started) as running,
                   case when cardinality(early) > 0 then count(*) filter (where not t.is_early) end as foremost,
                   array_agg(t.job_id) as job_ids,
                   case when count(t.concurrency_key) > 0 then array_agg(t.concurrency_key) end as keys,
                   array_agg(t.args::text) as every_args, array_agg(date_part('epoch', t.created_at)) as every_enqueued,
                   case when count(t.extra) > 0 then array_agg(t.extra) end as every_extra
            from (
                -- What they are sorted by comes first, and of that what has a width: each comparison looks for it in two rows.
                select f.priority, f.max_attempts, f.timeout, f.job_id in (select unnest(early)) as is_early, f.is_started, f.job_id,
                       f.queue, f.kind, f.concurrency_key, f.args, f.created_at,
                       case when num_nulls(f.retry, f.trace) < 2 or f.meta <> '{}' or f.tags <> '{}' then
                           json_build_array(f.retry::text, f.meta::text, nullif(f.tags, '{}'), f.trace)::text
                       end as extra
                from taken f
                -- By all that they are grouped by, and in the same order, or PostgreSQL 16 may sort them once more and forget the rest:
                -- so there is no plan that puts the jobs of a bundle in another order.
                order by f.priority, f.max_attempts, f.timeout, f.queue, f.kind, is_early, f.is_started desc, f.job_id
            ) t
            group by t.priority, t.max_attempts, t.timeout, t.queue, t.kind
        ), bundled as (
            insert into holdfast.bundles (worker_id, queue, kind, priority, claimed_at, running, foremost, job_ids, keys, gone)
            select taker, a.queue, a.kind, a.priority, present, a.running, a.foremost, a.job_ids, a.keys,
                   repeat('0', cardinality(a.job_ids))::varbit
            from alike a
            returning id, job_ids[1] as first
        )
        select null, 1, 0, a.kind, a.queue, a.priority::integer, a.max_attempts, a.timeout, null, null, '{}', null, null, null,
               date_part('epoch', present), null, null, false, false, false, b.id, null, a.running::integer,
               a.foremost::integer, a.job_ids::text, a.every_args, a.every_enqueued::text, a.every_extra,
               case when take_jobs.in_turn then a.keys end
        from alike a join bundled b on b.first = a.job_ids[1]
        loop
            taken := taken + cardinality(bundle.every_args);
            return next bundle;
        end loop;
    end if;
    if taken < cardinality(ids) then
        return query update holdfast.live_jobs l
        set state = case when l.job_id = any (starting) then 'running' else 'claimed' end,
            started_at = case when l.job_id = any (starting) then present end,
            attempt = l.attempt + case when l.job_id = any (held) then 0 else 1 end, worker_id = taker, claimed_at = present,
            progress = null, progress_note = null, ahead = not take_jobs.in_turn and l.job_id in (select unnest(early)),
            in_turn = take_jobs.in_turn and l.job_id in (select unnest(early))
        from holdfast.jobs j
        where l.job_id = any (ids) and j.id >= l.job_id and j.id <= l.job_id and j.revision >= l.revision
        returning l.job_id, l.attempt, l.failures, l.kind, l.queue, l.priority::integer, j.max_attempts, j.timeout, j.args::text,
                  j.retry::text, j.meta::text, nullif(j.tags, '{}'), j.trace, date_part('epoch', j.created_at),
                  date_part('epoch', l.claimed_at), l.state = 'running', l.place, l.suspect, l.ahead or l.in_turn, l.job_id = any (held),
                  null::bigint, case when take_jobs.in_turn then l.concurrency_key end, null::integer, null::integer, null::text, null::text[],
                  null::text, null::text[], null::text[];
    end if;
end
$$;
