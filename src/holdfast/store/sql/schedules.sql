-- name: read_clock
-- The moment that all statements agree on.
select holdfast.now();

-- name: list_schedules
-- All schedules in order of name.
select s.name, s.kind, s.args::text, s.queue, s.cron, s.every, s.timezone, s.missed, s.max_missed, s.overlap,
       s.priority::integer, s.options::text, s.paused, s.next_tick_at, s.last_tick_at, s.last_job_id
from holdfast.schedules s order by s.name;

-- name: put_schedule
-- Stores a schedule of the application.  The next tick $12 counts for a new one and for one whose rule changed; else
-- the stored one stays, and so does an operator's pause.  Zero rows: nothing has changed.
with put as (
    insert into holdfast.schedules as s
        (name, kind, args, queue, cron, every, timezone, missed, max_missed, overlap, priority, next_tick_at, options)
    values ($1::text, $2::text, $3::jsonb, $4::text, $5::text, $6::double precision, $7::text, $8::text, $9::integer,
            $10::text, $11::smallint, $12::timestamptz, $13::jsonb)
    on conflict (name) do update
    set kind = excluded.kind, args = excluded.args, queue = excluded.queue, cron = excluded.cron, every = excluded.every,
        timezone = excluded.timezone, missed = excluded.missed, max_missed = excluded.max_missed,
        overlap = excluded.overlap, priority = excluded.priority, options = excluded.options,
        next_tick_at = case
            when (s.cron, s.every, s.timezone) is distinct from (excluded.cron, excluded.every, excluded.timezone)
            then excluded.next_tick_at else s.next_tick_at end
    where (s.kind, s.args, s.queue, s.cron, s.every, s.timezone, s.missed, s.max_missed, s.overlap, s.priority, s.options)
        is distinct from (excluded.kind, excluded.args, excluded.queue, excluded.cron, excluded.every, excluded.timezone,
                          excluded.missed, excluded.max_missed, excluded.overlap, excluded.priority, excluded.options)
    returning s.name
)
select p.name, pg_notify('holdfast', 'schedules') from put p;

-- name: move_schedule
-- Moves a schedule with the rule $5, $6, $7 from tick $3 on to tick $4, as the first step of firing it.  Answers whether
-- the job of its former tick still lives.  Zero rows: it was moved, paused or deleted meanwhile, or got another rule, be it
-- with the same tick, or somebody else leads.
-- Only for the leader of term $1.  Locks the schedule's row until the transaction ends, so nobody else fires it.
update holdfast.schedules s set next_tick_at = $4::timestamptz
where s.name = $2::text and s.next_tick_at = $3::timestamptz and not s.paused
  and (s.cron, s.timezone) is not distinct from ($5::text, $7::text)
  and coalesce(abs(s.every - $6::double precision) < 0.001, true)
  and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
returning exists (select from holdfast.unfinished_jobs l where l.job_id = s.last_job_id);

-- name: enqueue_ticks
-- Enqueues one job for each tick of $2, in order, after move_schedule in the same transaction.  A tick whose job still
-- lives is not fired again, even if somebody turns the schedule back by hand.
with made as (
    select t.nth, s.options -> 'placement' as placement, holdfast.enqueue(
        s.kind, s.args, s.queue, s.priority, max_attempts => coalesce((s.options ->> 'max_attempts')::integer, 5),
        timeout => make_interval(secs => coalesce((s.options ->> 'timeout')::double precision, 300)),
        unique_key => 'schedule:' || s.name || ':' || to_char(t.tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        meta => jsonb_build_object(
            'schedule', s.name, 'tick', to_char(t.tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))) as id
    from unnest($2::text[]::timestamptz[]) with ordinality as t (tick, nth)
    join holdfast.schedules s on s.name = $1::text
    order by t.nth
), placed as (
    select holdfast.place_job(m.id, m.placement) from made m
    where m.placement is not null and not exists (select from holdfast.placements p where p.job_id = m.id)
)
select m.id from made m, (select count(*) from placed) n order by m.nth;

-- name: note_fired
-- Remembers the last tick that was fired, and its job; after enqueue_ticks in the same transaction.
update holdfast.schedules s set last_tick_at = $2::timestamptz, last_job_id = $3::bigint
where s.name = $1::text
returning s.name;

-- name: pause_schedule
-- Stops or resumes a schedule.  What falls due during a pause is not missed: a resumed one goes on from now.
-- Locks its row; answers how it stood before and after.  Zero rows: there is no such schedule.
with former as materialized (
    select s.name, s.paused from holdfast.schedules s where s.name = $1::text for no key update
), put as (
    update holdfast.schedules s
    set paused = $2::boolean,
        next_tick_at = case when s.paused and not $2::boolean then holdfast.now() else s.next_tick_at end
    from former f where s.name = f.name
    returning s.paused
)
select jsonb_build_object('before', jsonb_build_object('paused', f.paused),
                          'after', jsonb_build_object('paused', p.paused))::text, pg_notify('holdfast', 'schedules')
from put p, former f;

-- name: delete_schedule
-- Forgets a schedule; jobs that it made stay.  Answers what it was, without its arguments.  Zero rows: there is none.
with gone as (
    delete from holdfast.schedules s where s.name = $1::text
    returning s.name, to_jsonb(s) - 'args' as former
)
select g.former::text, pg_notify('holdfast', 'schedules') from gone g;

-- name: run_schedule
-- Enqueues a job of a schedule now, beside its ticks, paused or not.  Zero rows: there is no such schedule.
with made as (
    select s.options -> 'placement' as placement, holdfast.enqueue(
        s.kind, s.args, s.queue, s.priority, max_attempts => coalesce((s.options ->> 'max_attempts')::integer, 5),
        timeout => make_interval(secs => coalesce((s.options ->> 'timeout')::double precision, 300)),
        meta => jsonb_build_object('schedule', s.name)) as id
    from holdfast.schedules s where s.name = $1::text
), placed as (
    select holdfast.place_job(m.id, m.placement) from made m where m.placement is not null
)
select m.id from made m, (select count(*) from placed) n;
