-- How jobs come to runners: which routes have something, who has room, which jobs go to whom.

-- name: open_routes
-- The routes of these queues that have an available job, with whether their queue needs the exact way: it has a limit, or
-- concurrency keys.  Paused queues are left out.  Locks nothing.  `order by … limit 1` and not `exists`, which may be
-- planned as a scan of everything.
select r.id, r.queue, r.kind, r.labels, r.runner, coalesce(q.max_running is not null or q.keyed, false)
from holdfast.routes r left join holdfast.queues q on q.name = r.queue
where r.queue = any ($1::text[]) and not coalesce(q.paused, false)
  and coalesce(
      (select c.job_id from holdfast.live_jobs c
       where c.route_id = r.id and c.state = 'available' and c.concurrency_key is null
       order by c.priority, c.place limit 1),
      (select c.job_id from holdfast.live_jobs c
       where c.route_id = r.id and c.state = 'available' and c.concurrency_key is not null
       order by c.concurrency_key, c.priority, c.place limit 1)
  ) is not null;

-- name: lock_runners
-- Locks workers' rows in id order until the transaction ends, of those that are online and have a token, so that two servers
-- do not fill the same slot.
select w.id from holdfast.workers w
where w.id = any ($1::bigint[]) and w.state = 'online' and w.expires_at > holdfast.now() and w.token_id is not null
order by w.id for no key update;

-- name: runners_room
-- What runners have left: their term, slots, and by queue what they hold.  Only after lock_runners in the same transaction,
-- and in a statement of its own: one that waited for the lock would not see what was given meanwhile.
select w.id, w.term, w.slots,
       (select coalesce(jsonb_object_agg(h.queue, h.n), '{}')::text
        from (select l.queue, count(*) as n from holdfast.live_jobs l where l.worker_id = any (array[w.id]) group by l.queue) h)
from holdfast.workers w where w.id = any ($1::bigint[]);

-- name: queue_room
-- How many jobs of a limited queue may still be taken, and what its keys may: only after lock_limits in the same
-- transaction.  Null room: no limit for the queue as a whole.
select (select q.max_running from holdfast.queues q where q.name = $1::text)
       - (select count(*) from holdfast.live_jobs r
          where r.worker_id is not null and r.queue = $1::text and not (r.ahead and r.state = 'claimed'))
       - holdfast.bundled_in($1::text),
       coalesce((select q.key_limit from holdfast.queues q where q.name = $1::text), 1);

-- name: lock_heads
-- Up to $2 available jobs of each of these routes, by priority, then oldest first, those without a concurrency key.
-- Locks live_jobs rows, skipping those that others hold.
select head.job_id, head.queue, head.kind, head.priority::integer, head.place, r.labels, r.runner, null::text, null::bigint
from holdfast.routes r
cross join lateral (
    select c.job_id, c.queue, c.kind, c.priority, c.place from holdfast.live_jobs c
    where c.route_id = r.id and c.state = 'available' and c.concurrency_key is null
    order by c.priority, c.place
    limit $2::integer
    for update skip locked
) head
where r.id = any ($1::integer[]);

-- name: lock_keyed_heads
-- The same for jobs with a concurrency key, of each key as many as $3, its limit, leaves, and how many that are, for other
-- routes may have jobs of the same key: only after lock_limits in the same transaction.  Walks the distinct keys by index, so that its cost goes with keys, not with jobs.
with recursive keys as (
    select r.id, r.queue, (select c.concurrency_key from holdfast.live_jobs c
                  where c.route_id = r.id and c.state = 'available' and c.concurrency_key is not null
                  order by c.concurrency_key limit 1) as key
    from holdfast.routes r where r.id = any ($1::integer[])
    union all
    select k.id, k.queue, (select c.concurrency_key from holdfast.live_jobs c
                  where c.route_id = k.id and c.state = 'available' and c.concurrency_key > k.key
                  order by c.concurrency_key limit 1)
    from keys k where k.key is not null
)
select head.job_id, head.queue, head.kind, head.priority::integer, head.place, r.labels, r.runner, k.key, busy.room
from keys k
join holdfast.routes r on r.id = k.id
cross join lateral (
    select greatest(0, $3::integer - count(*)) as room from holdfast.held_keys(k.queue) b where b.key = k.key
) busy
cross join lateral (
    select c.job_id, c.queue, c.kind, c.priority, c.place from holdfast.live_jobs c
    where c.route_id = k.id and c.state = 'available' and c.concurrency_key = k.key
    order by c.priority, c.place
    limit least($2::integer, busy.room)
    for update skip locked
) head
where k.key is not null;

-- name: offer_jobs
-- Gives locked jobs to runners: job, runner and hash of the assignment's token, one array per column; a new attempt of
-- each begins.  Answers the assignments.  After lock_runners and lock_heads in the same transaction.
with pair as (
    select * from unnest($1::bigint[], $2::bigint[], $3::bytea[]) as p (job_id, worker_id, sha256)
), taken as (
    update holdfast.live_jobs l
    set state = 'claimed', attempt = l.attempt + 1, worker_id = p.worker_id, claimed_at = holdfast.now(),
        started_at = null, progress = null, progress_note = null, ahead = false, in_turn = false
    from pair p where l.job_id = any (array[p.job_id]) and l.state = 'available'
    returning l.job_id, l.attempt, l.failures, l.worker_id, p.sha256
), noted as (
    insert into holdfast.assignments (job_id, attempt, worker_id, term, offered_at, progressed_at)
    select t.job_id, t.attempt, t.worker_id, w.term, holdfast.now(), holdfast.now()
    from taken t join holdfast.workers w on w.id = any (array[t.worker_id])
), granted as (
    insert into holdfast.tokens (name, sha256, role, worker_id, job_id, attempt, created_by, created_at, expires_at)
    select 'job ' || t.job_id || ' attempt ' || t.attempt, t.sha256, 'assignment', t.worker_id, t.job_id, t.attempt,
           'runner protocol', holdfast.now(), holdfast.now() + make_interval(secs => j.timeout) + interval '1 day'
    from taken t join holdfast.jobs j on j.id = any (array[t.job_id])
)
select t.worker_id, t.job_id, t.attempt, t.failures, j.kind, j.queue, j.priority::integer, j.max_attempts,
       j.retry::text, j.timeout, j.meta::text, j.tags, j.trace, j.created_at, holdfast.now(), p.spec_sha256, p.on_loss,
       holdfast.job_spec(t.job_id)
from taken t
join holdfast.jobs j on j.id = any (array[t.job_id])
join holdfast.placements p on p.job_id = any (array[t.job_id]);

-- name: show_offers_again
-- Offers that a runner has not accepted, with hashes of further tokens for them, one array per column: they were made before,
-- and their answer was lost.  Only while somebody may speak for the runner.  Locks nothing.
with pair as (
    select * from unnest($1::bigint[], $2::integer[], $3::bytea[]) as p (job_id, attempt, sha256)
), shown as (
    select a.worker_id, a.job_id, a.attempt, a.offered_at, p.sha256, l.failures
    from pair p
    join holdfast.assignments a on a.job_id = p.job_id and a.attempt = p.attempt
    join holdfast.live_jobs l on l.job_id = any (array[p.job_id]) and l.attempt = any (array[p.attempt])
    join holdfast.workers w on w.id = any (array[a.worker_id]) and w.token_id is not null
    where a.accepted_at is null and l.state = 'claimed'
), granted as (
    insert into holdfast.tokens (name, sha256, role, worker_id, job_id, attempt, created_by, created_at, expires_at)
    select 'job ' || s.job_id || ' attempt ' || s.attempt, s.sha256, 'assignment', s.worker_id, s.job_id, s.attempt,
           'runner protocol', holdfast.now(), holdfast.now() + make_interval(secs => j.timeout) + interval '1 day'
    from shown s join holdfast.jobs j on j.id = any (array[s.job_id])
)
select s.worker_id, s.job_id, s.attempt, s.failures, j.kind, j.queue, j.priority::integer, j.max_attempts,
       j.retry::text, j.timeout, j.meta::text, j.tags, j.trace, j.created_at, s.offered_at, p.spec_sha256, p.on_loss,
       holdfast.job_spec(s.job_id)
from shown s
join holdfast.jobs j on j.id = any (array[s.job_id])
join holdfast.placements p on p.job_id = any (array[s.job_id]);

-- name: expire_offers
-- Releases up to $3 offers, unspent, that their runners have not accepted although they were in contact for $2 seconds since,
-- and answers them.  What a runner may have begun that is not heard falls to its lease, as all that it has.
-- Only for the leader of term $1.  Locks live_jobs rows and their assignments, skipping those that others hold: an
-- acceptance writes the assignment alone, and one that lands meanwhile must be seen.
with silent as materialized (
    select l.job_id, a.attempt from holdfast.assignments a
    join holdfast.live_jobs l on l.job_id = any (array[a.job_id]) and a.attempt = l.attempt
    join holdfast.workers w on w.id = any (array[l.worker_id])
    where a.accepted_at is null and a.outcome is null and l.state = 'claimed'
      and greatest(a.offered_at, w.contact_at) + make_interval(secs => $2::double precision) < w.renewed_at
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by l.job_id
    limit $3::integer
    for update of l, a skip locked
)
select t.job_id, t.kind, t.fate
from (select array_agg(s.job_id) as job_ids,
             array_agg('the runner did not accept the offer within ' || $2::double precision || ' s') as reasons
      from silent s having count(*) > 0) s,
     holdfast.take_away(s.job_ids, s.reasons) t;

-- name: release_offers
-- Releases what runner $1 was offered and has not accepted, unspent, and answers it.  Locks live_jobs rows and their
-- assignments, skipping those that others hold: an acceptance that lands meanwhile must be seen.
with unaccepted as materialized (
    select l.job_id, 'runner ' || w.name || ' takes nothing new' as reason
    from holdfast.live_jobs l
    join holdfast.assignments a on a.job_id = any (array[l.job_id]) and a.attempt = any (array[l.attempt])
    join holdfast.workers w on w.id = any (array[l.worker_id])
    where l.worker_id = $1::bigint and l.state = 'claimed' and a.accepted_at is null
    order by l.job_id
    for update of l, a skip locked
)
select t.job_id, t.kind, t.fate
from (select array_agg(u.job_id) as job_ids, array_agg(u.reason) as reasons from unaccepted u having count(*) > 0) u,
     holdfast.take_away(u.job_ids, u.reasons) t;

-- name: unpin_jobs
-- Lets others take up to $2 jobs whose runner had its time.  Answers how many, and the seconds until the next falls due, null
-- where there is none.  Only for the leader of term $1.  Locks placements' rows, skipping those that others hold.
with due as materialized (
    select p.job_id from holdfast.placements p
    where p.pinned_until <= holdfast.now()
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by p.pinned_until
    limit $2::integer
    for update skip locked
), unpinned as (
    update holdfast.placements p set pinned_until = null, runner = null
    from due d where p.job_id = any (array[d.job_id])
    returning p.job_id, p.labels
), moved as (
    update holdfast.live_jobs l set route_id = holdfast.route_for(l.queue, l.kind, u.labels, null)
    from unpinned u where l.job_id = any (array[u.job_id]) and l.route_id is not null
    returning case when l.state = 'available' then l.queue end as queue
), woken as (
    select holdfast.wake_runners(q.queue) from (select distinct m.queue from moved m where m.queue is not null) q
)
select (select count(*) from unpinned), (
    select extract(epoch from p.pinned_until - holdfast.now())::double precision from holdfast.placements p
    where p.pinned_until > holdfast.now() order by p.pinned_until limit 1
), (select count(*) from woken);
