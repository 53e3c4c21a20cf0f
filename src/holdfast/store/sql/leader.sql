-- name: lead
-- Renews the duty for its holder, or takes it where it has run out; taking it begins a new term.  Where nobody has renewed
-- it for more than $4 seconds, nobody may have been able to renew anything, and leaders are heard since now: but once in
-- two minutes, or a process whose loop stands still again and again would keep the dead from being declared lost.
-- Where the duty was renewed in the future, the clock was set back: it counts as run out, or nobody would lead until that
-- time, and leaders are heard since now as well.  Locks the leader's row.  Zero rows: somebody else leads.
update holdfast.leader d
set worker_id = $2::bigint, holder = $1::text, expires_at = holdfast.now() + make_interval(secs => $3::double precision),
    term = d.term + case when d.holder = $1::text and d.expires_at > holdfast.now() then 0 else 1 end,
    heard_at = case when $4::double precision is null then least(d.heard_at, holdfast.now()) else holdfast.now() end,
    heard_since = case when d.heard_at > holdfast.now() + interval '1 second'
                            or isfinite(d.heard_at) and d.heard_at < holdfast.now() - make_interval(secs => $4::double precision)
                            and d.heard_since < holdfast.now() - interval '2 minutes' then holdfast.now()
                       else least(d.heard_since, holdfast.now()) end
where d.holder = $1::text or d.expires_at <= holdfast.now() or d.heard_at > holdfast.now() + interval '1 second'
returning d.term;

-- name: leader_lapse
-- Seconds until the duty runs out: negative where it has.  Zero rows: it was resigned or never taken.  Locks nothing.
select extract(epoch from d.expires_at - holdfast.now())::double precision
from holdfast.leader d where isfinite(d.expires_at);

-- name: resign
-- Gives the duty up at once, so that another takes over without waiting.  Locks the leader's row.  Zero rows: term $2 is
-- not this holder's any more.
update holdfast.leader d set expires_at = '-infinity', holder = ''
where d.holder = $1::text and d.term = $2::bigint
returning d.term, pg_notify('holdfast', 'leader');

-- name: stage_jobs
-- Makes due jobs available, and suspended runs whose time has come, at most $2 at a time, and wakes whoever sleeps on
-- their queues.  Only for the leader of term $1.  Answers how many were moved, and the seconds until the next one falls
-- due, null where nothing else is scheduled.  Locks live_jobs rows, skipping those that others hold.
with due as materialized (
    select l.job_id from holdfast.live_jobs l
    where l.state = 'scheduled' and l.run_at <= holdfast.now()
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by l.run_at, l.job_id
    limit $2::integer
    for update skip locked
), over as materialized (
    select l.job_id from holdfast.live_jobs l
    where l.state = 'waiting' and l.run_at <= holdfast.now()
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by l.run_at, l.job_id
    limit $2::integer - (select count(*) from due)
    for update skip locked
), awake as (
    delete from holdfast.suspensions s where s.run_id = any (array(select o.job_id from over o))
), moved as (
    update holdfast.live_jobs l set state = 'available'
    where l.job_id = any (array(select d.job_id from due d union all select o.job_id from over o))
    returning l.job_id, l.queue, l.priority
), following as (
    select least(
        (select l.run_at from holdfast.live_jobs l
         where l.state = 'scheduled' and l.run_at > holdfast.now() order by l.run_at limit 1),
        (select l.run_at from holdfast.live_jobs l
         where l.state = 'waiting' and l.run_at > holdfast.now() and l.run_at < 'infinity' order by l.run_at limit 1)
    ) as run_at
)
select m.n, case when m.n < $2::integer
                      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
                      and (exists (select from holdfast.live_jobs l
                                   where l.state = 'scheduled' and l.run_at <= holdfast.now() and l.job_id <> all (m.ids))
                           or exists (select from holdfast.live_jobs l
                                      where l.state = 'waiting' and l.run_at <= holdfast.now() and l.job_id <> all (m.ids)))
                 then 0.1
                 else (select extract(epoch from f.run_at - holdfast.now()) from following f) end::double precision,
       case when m.n > 0 then holdfast.wake(m.queues, m.best) end
from (
    select count(*) as n, array_agg(distinct queue) as queues, min(priority) as best, coalesce(array_agg(job_id), '{}') as ids from moved
) m;
