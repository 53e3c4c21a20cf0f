-- What the leader needs: daily partitions of history, and the judgement that nobody knows a kind.

-- Makes the partition of one UTC day of finished_completed, finished_unhappy or a table of logs.  Rows of that day
-- which lie in the default partition move into it.  Answers made, there (it exists), busy (a lock was not had
-- within 200 ms), crowded (too many rows to move; they stay where they are and are pruned there) or refused
-- (this role does not own the tables).
-- Only the attachment locks the default partition; CREATE ... PARTITION OF would lock the parent.
create function holdfast.make_partition(parent text, day date) returns text
language plpgsql
set lock_timeout = '200ms' set timezone = 'UTC' set datestyle = 'ISO'
as $$
declare
    child text := parent || to_char(day, '_YYYYMMDD');
    rest text := parent || '_rest';
    moment text := case when parent like 'finished%' then 'finished_at' else 'at' end;
    opening timestamptz := day::timestamp at time zone 'UTC';
    closing timestamptz := (day + 1)::timestamp at time zone 'UTC';
    most integer := 100000;
    move text := format(
        'with moved as (delete from %I.%I r where r.%I >= %L and r.%I < %L returning r.*)
         insert into %I.%I select * from moved',
        'holdfast', rest, moment, opening, moment, closing, 'holdfast', child);
    found_rows bigint;
begin
    perform pg_advisory_xact_lock(hashtext('holdfast partitions'), hashtext('holdfast'));
    if to_regclass(format('%I.%I', 'holdfast', child)) is not null then
        return 'there';
    end if;
    execute format('select count(*) from (select from %I.%I r where r.%I >= %L and r.%I < %L limit %s) few',
                   'holdfast', rest, moment, opening, moment, closing, most + 1) into found_rows;
    if found_rows > most then
        return 'crowded';
    end if;
    execute format('create table %I.%I (like %I.%I including defaults including constraints)',
                   'holdfast', child, 'holdfast', parent);
    -- Most rows move without a lock, the last few under it.
    execute move;
    execute format('lock table %I.%I in access exclusive mode', 'holdfast', rest);
    execute move;
    execute format('alter table %I.%I attach partition %I.%I for values from (%L) to (%L)',
                   'holdfast', parent, 'holdfast', child, opening, closing);
    return 'made';
exception
    when lock_not_available then return 'busy';
    when insufficient_privilege then return 'refused';
end
$$;

-- Drops a daily partition.  Answers dropped, gone (there is none), busy, refused, or filled: ended jobs in it
-- still have rows elsewhere, and have to be pruned first.
-- Nobody writes to a day that is past, so looking before locking is enough.
create function holdfast.drop_partition(child text) returns text
language plpgsql
set lock_timeout = '200ms'
as $$
declare
    is_filled boolean := false;
begin
    if to_regclass(format('%I.%I', 'holdfast', child)) is null then
        return 'gone';
    end if;
    if child like 'finished%' then
        execute format('select exists (select from %I.%I)', 'holdfast', child) into is_filled;
    end if;
    if is_filled then
        return 'filled';
    end if;
    execute format('drop table %I.%I', 'holdfast', child);
    return 'dropped';
exception
    when lock_not_available then return 'busy';
    when insufficient_privilege then return 'refused';
end
$$;

-- Whether nobody knows a kind: throughout the grace somebody has worked on its queue, and nobody who did so,
-- then or now, had a handler for it.  A queue that is paused or that nobody works on says nothing about its kinds.
create function holdfast.is_unknown(asked_queue text, asked_kind text, grace interval) returns boolean
language sql stable
as $$
    select exists (
        select from holdfast.workers w
        where w.state = 'online' and w.expires_at > holdfast.now() and asked_queue = any (w.queues)
          and w.started_at < holdfast.now() - grace
    ) and not exists (
        select from holdfast.workers w
        where asked_queue = any (w.queues) and asked_kind = any (w.kinds)
          and coalesce(w.ended_at, holdfast.now()) >= holdfast.now() - grace
    ) and not exists (
        select from holdfast.queues q where q.name = asked_queue and q.paused
    )
$$;

-- For rows written by hand: the leader finds the first tick itself, and no interval and no tick is beyond reading.
alter table holdfast.schedules
    alter column next_tick_at set default holdfast.now(),
    add check (every > 0 and every <= 1000000000),
    add check (next_tick_at between '0002-01-01 00:00Z' and '9998-12-31 00:00Z');

-- Today and three days more are there from the start, as the leader will have them: a partition that is attached under
-- the first jobs to end would make their statements begin again.
select holdfast.make_partition(parent, (holdfast.now() at time zone 'UTC')::date + n)
from unnest(array['finished_completed', 'finished_unhappy', 'job_logs']) parent, generate_series(0, 3) n;

-- Deletes up to *at_most* shapes that no living job has, where there are more than *kept*; answers how many.  First locks
-- them, passing over those that somebody is about to use, then looks again who uses them.
create function holdfast.prune_routes(kept integer, at_most integer) returns integer
language plpgsql
as $$
declare
    idle integer[];
    deleted integer;
begin
    if (select count(*) from holdfast.routes) <= kept then
        return 0;
    end if;
    idle := array(
        select r.id from holdfast.routes r
        where r.id not in (select l.route_id from holdfast.live_jobs l where l.route_id is not null)
        order by r.id limit at_most for update skip locked
    );
    delete from holdfast.routes r
    where r.id = any (idle) and r.id not in (select l.route_id from holdfast.live_jobs l where l.route_id is not null);
    get diagnostics deleted = row_count;
    return deleted;
end
$$;
