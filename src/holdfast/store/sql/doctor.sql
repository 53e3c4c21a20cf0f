-- name: server_facts
-- What the server says of itself: version, its clock now, how safely it writes, and how full it is.
-- Reads only settings and statistics, so it works before the first migration.
select current_setting('server_version_num')::integer / 10000,
       current_setting('server_version'),
       extract(epoch from clock_timestamp())::double precision,
       pg_is_in_recovery(),
       array(
           select s.name::text from pg_settings s
           where s.name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum') and s.setting = 'off'
           order by s.name
       ),
       (select count(*) from pg_stat_activity a where a.backend_type = 'client backend')::integer,
       current_setting('max_connections')::integer;

-- name: lock_waits
-- Sessions of this database that have waited longer than $1 seconds for a lock, with those that block them.
-- Reads only statistics.  Zero rows: nobody waits that long.
select a.pid, coalesce(a.application_name, ''), pg_blocking_pids(a.pid),
       extract(epoch from clock_timestamp() - coalesce(a.state_change, a.query_start))::double precision
from pg_stat_activity a
where a.datname = current_database() and a.wait_event_type = 'Lock'
  and clock_timestamp() - coalesce(a.state_change, a.query_start) > make_interval(secs => $1::double precision)
order by 4 desc;

-- name: horizon_holders
-- Who keeps vacuum from removing dead rows, the oldest first: running transactions, prepared transactions and
-- replication slots.  Seconds are null where a slot does not tell or this role may not see them.
select h.source, h.name, h.detail, h.seconds
from (
    select 'transaction' as source, a.pid::text as name,
           concat_ws(', ', nullif(a.application_name, ''), a.state) as detail,
           extract(epoch from clock_timestamp() - a.xact_start)::double precision as seconds,
           age(coalesce(a.backend_xmin, a.backend_xid)) as age
    from pg_stat_activity a
    where coalesce(a.backend_xmin, a.backend_xid) is not null and a.pid <> pg_backend_pid()
      and a.datname = current_database() and a.backend_type = 'client backend'
    union all
    select 'prepared transaction', p.gid, p.owner::text,
           extract(epoch from clock_timestamp() - p.prepared)::double precision, age(p.transaction)
    from pg_prepared_xacts p where p.database = current_database()
    union all
    select 'replication slot', s.slot_name::text, s.slot_type || case when s.active then ', active' else ', inactive' end,
           null, age(coalesce(s.xmin, s.catalog_xmin))
    from pg_replication_slots s where s.xmin is not null or (s.catalog_xmin is not null and not s.active)
) h
order by h.age desc nulls last
limit 5;

-- name: dead_rows
-- Live and dead rows of live_jobs as the statistics have them, and how many seconds ago it was last vacuumed.
-- Zero rows: there is no such table.
select t.n_live_tup, t.n_dead_tup,
       extract(epoch from clock_timestamp() - greatest(t.last_vacuum, t.last_autovacuum))::double precision
from pg_stat_user_tables t where t.schemaname = 'holdfast' and t.relname = 'live_jobs';

-- name: queue_health
-- Every queue that has jobs for workers to claim: whether somebody works on it, and which of its kinds no online worker
-- knows, judged by its 1000 best jobs, and as many with a key.  Walks the queues by index instead of counting jobs.
-- Zero rows: nothing is available.
with recursive heads as (
    (select l.queue from holdfast.live_jobs l
     where l.state = 'available' and l.concurrency_key is null and l.route_id is null order by l.queue limit 1)
    union all
    select (select l.queue from holdfast.live_jobs l
            where l.state = 'available' and l.concurrency_key is null and l.route_id is null and l.queue > h.queue
            order by l.queue limit 1)
    from heads h where h.queue is not null
), keyed_heads as (
    (select l.queue from holdfast.live_jobs l
     where l.state = 'available' and num_nulls(l.concurrency_key) = 0 and l.route_id is null order by l.queue limit 1)
    union all
    select (select l.queue from holdfast.live_jobs l
            where l.state = 'available' and num_nulls(l.concurrency_key) = 0 and l.route_id is null and l.queue > h.queue
            order by l.queue limit 1)
    from keyed_heads h where h.queue is not null
), online as materialized (
    select w.queues, w.kinds from holdfast.workers w
    where w.term is null and w.state = 'online' and w.expires_at > holdfast.now()
), named as (
    select queue from heads where queue is not null union select queue from keyed_heads where queue is not null
), best as materialized (
    select n.queue, one.kind, one.run_at
    from named n
    cross join lateral (
        (select l.kind, l.run_at from holdfast.live_jobs l
         where l.queue = n.queue and l.state = 'available' and l.concurrency_key is null and l.route_id is null
         order by l.priority, l.place limit 1000)
        union all
        (select l.kind, l.run_at from holdfast.live_jobs l
         where l.queue = n.queue and l.state = 'available' and num_nulls(l.concurrency_key) = 0 and l.route_id is null
         order by l.priority, l.place limit 1000)
    ) one
)
select n.queue, coalesce(q.paused, false), q.max_running,
       (select count(*) from online o where n.queue = any (o.queues))::integer,
       array(
           select distinct b.kind from best b
           where b.queue = n.queue
             and not exists (select from online o where n.queue = any (o.queues) and b.kind = any (o.kinds))
           order by 1
       ),
       coalesce((select extract(epoch from holdfast.now() - min(b.run_at)) from best b where b.queue = n.queue), 0)::double precision
from named n left join holdfast.queues q on q.name = n.queue
order by n.queue;

-- name: route_health
-- What jobs for runners that can be claimed ask of one, shape by shape: how many runners that are online fit it, how many
-- that drain, and for how long the first of its jobs has waited, in seconds.  Zero rows: nothing is available for runners.
select r.queue, r.kind, r.labels, r.runner, coalesce(q.paused, false), q.max_running,
       count(w.id) filter (where w.state = 'online'), count(w.id) filter (where w.state = 'draining'),
       extract(epoch from holdfast.now() - head.run_at)::double precision
from holdfast.routes r
cross join lateral (
    select min(due.run_at) as run_at
    from (
        (select l.run_at from holdfast.live_jobs l
         where l.route_id = r.id and l.state = 'available' and l.concurrency_key is null and l.route_id is not null
         order by l.priority, l.place limit 1)
        union all
        (select l.run_at from holdfast.live_jobs l
         where l.route_id = r.id and l.state = 'available' and l.concurrency_key is not null and l.route_id is not null
         order by l.concurrency_key, l.priority, l.place limit 1)
    ) due
) head
left join holdfast.queues q on q.name = r.queue
left join holdfast.fitting_runners w on w.route_id = r.id
where head.run_at is not null
group by r.id, q.name, head.run_at
order by r.queue, r.id;

-- name: leader_health
-- Whether somebody leads, in which term, and what waits for it, in seconds: the most overdue scheduled job, the
-- most overdue tick, what endpoints are to be told; and by how much the clock was set back since a leader was last heard.
-- Null: nothing is.
select d.expires_at > holdfast.now(), d.term,
       (select extract(epoch from holdfast.now() - l.run_at) from holdfast.live_jobs l
        where l.state = 'scheduled' and l.run_at < holdfast.now() order by l.run_at limit 1)::double precision,
       (select extract(epoch from holdfast.now() - min(s.next_tick_at)) from holdfast.schedules s
        where not s.paused and s.next_tick_at < holdfast.now())::double precision,
       (select extract(epoch from holdfast.now() - min(p.moment)) from holdfast.delivery_places p
        where exists (select from holdfast.endpoints))::double precision,
       (select extract(epoch from d.heard_at - holdfast.now())
        where d.heard_at > holdfast.now() + interval '1 second')::double precision
from holdfast.leader d;

-- name: filled_rests
-- The default partitions that hold rows: each row there was written on a day without a partition of its own.
-- Zero rows: all are empty.
select rest.name
from (values
    ('finished_completed_rest', exists (select from holdfast.finished_completed_rest)),
    ('finished_unhappy_rest', exists (select from holdfast.finished_unhappy_rest)),
    ('job_logs_rest', exists (select from holdfast.job_logs_rest))
) as rest (name, filled)
where rest.filled
order by 1;

-- name: held_for_people
-- Jobs that wait until somebody resumes them, and that nobody has paused: runs whose code does not fit, and jobs that their
-- runner lost.  At most 1,000 of them, the oldest first.
select s.run_id from holdfast.suspensions s
where s.paused and (s.pause_reason is null or s.pause_reason like 'held for a person: %')
order by s.run_id limit 1000;

-- name: lost_workers
-- The workers declared lost within the last $1 seconds, the latest first.
select w.id, w.name, extract(epoch from holdfast.now() - w.ended_at)::double precision
from holdfast.workers w
where w.state = 'lost' and w.ended_at > holdfast.now() - make_interval(secs => $1::double precision)
order by w.ended_at desc
limit 20;
