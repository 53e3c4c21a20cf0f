-- Claims from queues with limits, in one call: what is counted must be counted after the lock is held, and a statement
-- sees no more than was there when it began.

-- The present moment, where now() is when the statement began.
create function holdfast.moment() returns timestamptz
language sql volatile
as $$ select holdfast.now() + (clock_timestamp() - statement_timestamp()) $$;

-- True for a job that a worker has claimed ahead of a permit of its limited queue: while it is in state claimed it takes up no
-- room of the fleet's limit, and must not begin before its worker has a permit for it.
alter table holdfast.live_jobs add column ahead boolean not null default false;

-- True for a job that was claimed behind another of its key: its worker begins it when that one has ended.
alter table holdfast.live_jobs add column in_turn boolean not null default false;

-- Jobs with a concurrency key in the order in which they are due.  num_nulls() says what `is not null` says, but the planner
-- does not know: so a question in order can be answered by this index alone, and one by key by the other alone.
create index live_jobs_keyed_in_order on holdfast.live_jobs (queue, priority, place)
    where state = 'available' and num_nulls(concurrency_key) = 0 and route_id is null;

-- Locks and returns up to *wanted* available jobs with a concurrency key, the best first, as many of each key as its limit
-- leaves; skips rows that others have locked.  Only under the lock of the queue's limits.  Up to place *until* was read, null where
-- that part of the line has less than two jobs for each of these keys.
-- It reads the front of the line: a quarter more places than *wanted*, then sixteen times *wanted*, then more where many slots are
-- *free*, if that is more.  Where keys come in turn, the first read brings half of *wanted*, and *free*, which is enough; where many jobs of a key
-- stand together, the second brings *free* as a rule, and is always enough for what is to wait in a buffer.  Where the front is
-- taken up by keys without room, or by locked rows, so that no read brings *free*, all keys are walked by index, and at most *free*
-- jobs come back: so the cost goes with keys and not with jobs.
-- Where up to *in_a_row* of a key are claimed at once, fewer keys are enough for the first read.
-- Where keys are scarcer than what is wanted, no worker buffers more than its share of them, for others may have free slots.
create function holdfast.keyed_heads(
    queue text, kinds text[], key_limit integer, free integer, wanted integer, in_a_row integer,
    out heads bigint[], out until bigint
)
language plpgsql
as $$
#variable_conflict use_variable
declare
    busy jsonb;
    full_keys text[];
    fronts integer[] := array[5 * wanted / 4 + 50, 16 * wanted + 50, 40 * free + 500];
    front integer;
    seen integer := 0;
    fitting bigint[];
    their_keys text[];
    taken integer;
begin
    select coalesce(jsonb_object_agg(h.concurrency_key, h.running) filter (where key_limit > 1), '{}'),
           coalesce(array_agg(h.concurrency_key) filter (where h.running >= key_limit), '{}')
    into busy, full_keys
    from (
        select k.key as concurrency_key, count(*) as running from holdfast.held_keys(queue) k group by k.key
    ) h;
    foreach front in array fronts loop
        continue when front <= seen;
        with line as materialized (
            select c.job_id, c.concurrency_key as key, c.priority, c.place
            from holdfast.live_jobs c
            where c.queue = queue and c.state = 'available' and num_nulls(c.concurrency_key) = 0 and c.route_id is null
              and c.kind = any (kinds)
            order by c.priority, c.place
            limit front
        ), heads as (
            -- Full keys are left out by hash: to look each job's key up costs more than the job.  Where each key has room for
            -- one, so does a rank among its others.
            (select distinct on (l.key) l.* from line l
             where key_limit = 1 and l.key not in (select unnest(full_keys))
             order by l.key, l.priority, l.place)
            union all
            select r.job_id, r.key, r.priority, r.place
            from (
                select l.*, row_number() over (partition by l.key order by l.priority, l.place) as nth from line l
                where key_limit > 1 and l.key not in (select unnest(full_keys))
            ) r
            where r.nth <= key_limit - coalesce((busy ->> r.key)::integer, 0)
        ), best as (
            select h.job_id, h.key from heads h order by h.priority, h.place limit wanted
        )
        select (select count(*) from line), array(select b.job_id from best b), array(select b.key from best b),
               (select case when count(*) >= 2 * (select count(*) from heads) then max(l.place) end
                from line l where l.key not in (select unnest(full_keys)))
        into seen, fitting, their_keys, until;
        continue when front < 16 * wanted + 50 and seen = front
                  and cardinality(fitting) < greatest(free, wanted / 2 / greatest(1, in_a_row));
        taken := wanted;
        if cardinality(fitting) < wanted then
            select greatest(free, cardinality(fitting) / greatest(1, count(*))) into taken from holdfast.workers w
            where w.state = 'online' and w.expires_at > holdfast.moment() and w.term is null and queue = any (w.queues);
        end if;
        heads := array(
            select c.job_id
            from unnest(fitting[:taken], their_keys[:taken]) as chosen (job_id, key)
            join holdfast.live_jobs c on c.job_id = chosen.job_id
            where c.state = 'available' and c.queue = queue and c.concurrency_key = chosen.key
              and c.kind = any (kinds) and num_nulls(c.route_id) = 1
            for update of c skip locked
        );
        if cardinality(heads) >= free or (seen < front and cardinality(heads) = cardinality(fitting)) then
            return;
        end if;
    end loop;
    until := 9223372036854775807;
    heads := array(
        with recursive keys as (
            (select c.concurrency_key as key from holdfast.live_jobs c
             where c.queue = queue and c.state = 'available' and c.concurrency_key is not null and c.route_id is null
             order by c.concurrency_key limit 1)
            union all
            select (select c.concurrency_key from holdfast.live_jobs c
                    where c.queue = queue and c.state = 'available' and c.concurrency_key > k.key and c.route_id is null
                    order by c.concurrency_key limit 1)
            from keys k where k.key is not null
        )
        select head.job_id
        from keys k
        cross join lateral (
            select c.job_id, c.priority, c.place from holdfast.live_jobs c
            where c.queue = queue and c.state = 'available' and c.concurrency_key = k.key and c.route_id is null
              and c.kind = any (kinds)
            order by c.priority, c.place
            limit greatest(0, key_limit - coalesce((busy ->> k.key)::integer, 0))
            for update skip locked
        ) head
        where k.key is not null and k.key not in (select unnest(full_keys))
        order by head.priority, head.place
        limit free
    );
end
$$;

-- Locks and returns the next jobs of the keys that *heads* have, up to *most* of each, in order and of the head's priority; skips
-- rows that others have locked.  It looks at no more than *most* of a key, of whatever kind they are.  Only under the lock of the
-- queue's limits, for one who has locked these heads.
create function holdfast.keyed_followers(queue text, kinds text[], heads bigint[], until bigint, most integer) returns bigint[]
language sql
as $$
    with following as materialized (
        select n.job_id, n.place, head.concurrency_key as key, head.priority
        from unnest($3) as chosen (job_id)
        join holdfast.live_jobs head on head.job_id >= chosen.job_id and head.job_id <= chosen.job_id
        cross join lateral (
            select n.job_id, n.place from holdfast.live_jobs n
            where n.queue = $1 and n.state = 'available' and n.concurrency_key = head.concurrency_key and n.route_id is null
              and n.priority = head.priority and n.place > head.place and n.place <= $4
            order by n.place
            limit greatest(0, $5)
        ) n
        where head.concurrency_key is not null
    )
    select array(
        select c.job_id from holdfast.live_jobs c
        where c.job_id = any (array(select f.job_id from following f))
          -- As it is once it is locked.  Written as num_nulls() no index of what is available can be planned for it; `is true` keeps
          -- the planner from a join, which would compare each with all others.
          and c.state = 'available' and num_nulls(c.route_id) = 1 and c.kind = any ($2) and c.queue = $1
          and ((c.place, c.concurrency_key, c.priority) in (select f.place, f.key, f.priority from following f)) is true
        for update skip locked
    )
$$;

-- Whether there are available jobs in a queue that a worker of these kinds is not the one to take next: one is of another
-- kind among the first *front* with or without a key, or runners may take some.
create function holdfast.is_for_others(queue text, kinds text[], front integer) returns boolean
language sql stable
as $$
    select exists (
        select from (
            (select c.kind from holdfast.live_jobs c
             where c.queue = $1 and c.state = 'available' and c.concurrency_key is null and c.route_id is null
             order by c.priority, c.place limit $3)
            union all
            (select c.kind from holdfast.live_jobs c
             where c.queue = $1 and c.state = 'available' and num_nulls(c.concurrency_key) = 0 and c.route_id is null
             order by c.priority, c.place limit $3)
        ) head
        where head.kind <> all ($2)
    ) or exists (
        select from holdfast.routes r
        where r.queue = $1
          and (exists (select from holdfast.live_jobs c
                       where c.route_id = r.id and c.state = 'available' and c.concurrency_key is null)
               or exists (select from holdfast.live_jobs c
                          where c.route_id = r.id and c.state = 'available' and c.concurrency_key is not null))
    )
$$;

-- Tells workers that sleep, and servers whose runners wait, of room under the limits of these queues.
create function holdfast.wake_for_room(queues text[]) returns void
language sql
as $$
    select holdfast.wake(queues, 9::smallint);
    select holdfast.wake_runners(q) from unnest(queues) as q
    where exists (select from holdfast.routes r where r.queue = q);
$$;

-- What a claim answers, and in this order; see ClaimedJob.  A row without an id stands for all jobs of a bundle, which is claimed for
-- the first time: what they do not share is in the arrays at the end, where of the first *running* handlers begin, and those behind
-- the first *foremost* are ahead of the turn of their key.  There is a key where it matters: where more than one job of one was claimed.
-- Arrays of numbers come as text: before asyncpg reads the first of such a type on a connection, it asks the server what that is.
create type holdfast.claimed_job as (
    id bigint, attempt integer, failures integer, kind text, queue text, priority integer, max_attempts integer,
    timeout double precision, args text, retry text, meta text, tags text[], trace text, enqueued double precision,
    claimed double precision, started boolean, place bigint, suspect boolean, ahead boolean, is_held boolean, bundle bigint,
    key text, running integer, foremost integer, ids text, every_args text[], every_enqueued text, every_extra text[], every_key text[]
);

-- Claims up to *wanted* jobs from one queue under its limit for the fleet and for each concurrency key.  The first *free*
-- of them are running, the others wait in the worker's buffer.  There a job takes up room of its key, which it is the next
-- to have anyway; a permit of the fleet's limit others may have a better use for, so with such a limit *free* is all there is,
-- and one job where nothing is free.
-- Up to *more* jobs beside them are claimed ahead: without a permit, for a worker that has some and hands them on, from a job
-- that has ended to one of these, by finish_jobs.  None where a permit that goes free should go to others.  Jobs that this
-- worker has claimed ahead come first when it gets permits: they are in the answer again, as *is_held* and with their attempt.
-- Where the fleet has no limit, and keys one of 1, up to *in_a_row* jobs of a key are claimed at once, as long as there is room for
-- *wanted* and *more*: those behind the first are ahead of their key's turn, and the worker begins each when the one before it has
-- ended.  So it may have what is more urgent than *than* says of each of the keys *mine*, of which jobs wait for their turn there.
-- Locks the queue's limits until the transaction ends, so what is counted here cannot grow meanwhile; the worker's own
-- row against being declared lost; then live_jobs rows, skipping those that others hold.  Nothing comes back where
-- there is nothing to do, the queue is paused or full, or the worker may not claim.
-- Where the fleet has no limit, jobs of kinds *bundling* go into bundles.
create function holdfast.claim_limited(
    taker bigint, queue text, kinds text[], free integer, wanted integer, more integer, in_a_row integer, mine text[],
    than integer[], bundling text[]
)
returns setof holdfast.claimed_job
language plpgsql
as $$
#variable_conflict use_variable
declare
    rule record;
    permits integer;
    room integer := wanted + more;
    taken integer;
    own integer := 0;
    waiting integer := 0;
    most integer;
    keyed record;
    held bigint[] := '{}';
    best bigint[];
    starting bigint[];
    early bigint[] := '{}';
    present timestamptz;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a claim under limits needs a transaction that is read committed, not %',
            current_setting('transaction_isolation') using errcode = 'invalid_transaction_state';
    end if;
    perform pg_advisory_xact_lock(hashtext('holdfast.limits'), hashtext(queue));
    perform from holdfast.workers w
    where w.id = taker and w.state = 'online' and w.expires_at > holdfast.moment()
    for key share;
    if not found then
        return;
    end if;
    select coalesce(max(q.key_limit), 1) as key_limit, max(q.max_running) as max_running,
           coalesce(bool_or(q.paused), false) as paused, coalesce(bool_or(q.keyed), false) as keyed
    into rule from holdfast.queues q where q.name = queue;
    permits := wanted;
    if rule.max_running is null then
        more := 0;
    else
        -- What was claimed while there was no limit may be in bundles still, and comes out of them at any moment: both are
        -- counted by one snapshot.
        select count(*) filter (where not h.waits) + holdfast.bundled_in(queue), count(*) filter (where h.is_own and not h.waits),
               count(*) filter (where h.is_own and h.waits)
        into taken, own, waiting
        from (
            select r.worker_id = taker as is_own, r.ahead and r.state = 'claimed' as waits
            from holdfast.live_jobs r where r.worker_id is not null and r.queue = queue
        ) h;
        permits := greatest(0, least(wanted, greatest(free, 1), rule.max_running - taken));
        if more > 0 and (permits + own = 0 or taken > rule.max_running or holdfast.is_for_others(queue, kinds, 1)) then
            more := 0;
        end if;
    end if;
    if rule.paused or permits + more <= 0 then
        return;
    end if;
    if waiting > 0 and permits > 0 then
        -- The youngest of the best priority: while this runs, the worker hands permits on to the oldest.
        held := array(
            select c.job_id from holdfast.live_jobs c
            where c.worker_id = taker and c.queue = queue and c.state = 'claimed' and c.ahead
            order by c.priority, c.place desc
            limit permits
            for update skip locked
        );
    end if;
    most := permits - cardinality(held) + more;
    if rule.keyed then
        select * into keyed from holdfast.keyed_heads(queue, kinds, rule.key_limit, least(free, most), most, in_a_row);
    else
        select '{}'::bigint[] as heads, null::bigint as until into keyed;
    end if;
    -- This statement may have begun, and then waited, before the jobs ended that it found to have ended.
    present := holdfast.moment();
    best := held || array(
        select candidate.job_id from (
            select unkeyed.job_id, unkeyed.priority, unkeyed.place from (
                select c.job_id, c.priority, c.place from holdfast.live_jobs c
                where c.queue = queue and c.state = 'available' and c.concurrency_key is null and c.route_id is null
                  and c.kind = any (kinds)
                order by c.priority, c.place
                limit most
                for update skip locked
            ) unkeyed
            union all
            select c.job_id, c.priority, c.place from holdfast.live_jobs c where c.job_id = any (keyed.heads)
        ) candidate
        order by candidate.priority, candidate.place
        limit most
    );
    starting := best[:least(free, permits)];
    if rule.max_running is not null then
        early := best[permits + 1:];
        bundling := '{}';
    elsif rule.key_limit = 1 and in_a_row > 1 and cardinality(keyed.heads) > 0 and keyed.until is not null then
        early := holdfast.keyed_followers(
            queue, kinds, best, keyed.until, least(in_a_row - 1, (room - cardinality(best)) / cardinality(keyed.heads)));
    end if;
    if rule.max_running is null and rule.key_limit = 1 and cardinality(mine) > 0 then
        early := early || coalesce(holdfast.keyed_urgent(queue, kinds, taker, mine, than, best), '{}');
    end if;
    return query select * from holdfast.take_jobs(
        taker, case when rule.max_running is null then best || early else best end, starting, early, held, bundling, present,
        rule.max_running is null and cardinality(early) > 0);
end
$$;
