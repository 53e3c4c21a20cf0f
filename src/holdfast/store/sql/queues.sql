-- name: queue_limits
-- What a claim must know of these queues before it chooses its way in.
select q.name, q.paused, q.max_running is not null or q.keyed, q.max_running, q.key_limit
from holdfast.queues q where q.name = any ($1::text[]);

-- name: list_queues
-- Every queue with its switches and its counts as the leader last rolled them up; nothing is counted here.
select q.name, q.paused, q.max_running, q.key_limit, q.keyed, q.retention, q.available, q.scheduled, q.running,
       q.waiting, q.oldest_available_at, q.counted_at
from holdfast.queues q order by q.name;

-- name: change_queue
-- Changes what is given: paused $5, the fleet-wide limit $7 where $6 says so (null is none), the limit of each key $8, the
-- retention of $11 seconds where $10 says so (null is none of its own); tells the workers, and notes it for actor $2
-- with reason $3 as action $4.  A queue without a row must have a live job, or be wanted anyway by $9.  Locks the queue's row.  Zero rows: there is no such queue.
with former as materialized (
    select q.paused, q.max_running, q.key_limit, q.retention from holdfast.queues q where q.name = $1::text for update
), known as (
    select where $9::boolean or exists (select from former)
        or exists (select from holdfast.live_jobs l where l.queue = $1::text)
), changed as (
    insert into holdfast.queues as q (name, paused, max_running, key_limit, retention)
    select $1::text, coalesce($5::boolean, false), case when $6::boolean then $7::integer end, coalesce($8::integer, 1),
           case when $10::boolean then make_interval(secs => $11::double precision) end
    from known
    on conflict (name) do update
    set paused = coalesce($5::boolean, q.paused),
        max_running = case when $6::boolean then $7::integer else q.max_running end,
        key_limit = coalesce($8::integer, q.key_limit),
        retention = case when $10::boolean then make_interval(secs => $11::double precision) else q.retention end
    returning q.*
), audited as (
    insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
    select holdfast.now(), $2::text, $4::text, 'queue ' || c.name, $3::text, jsonb_build_object(
        'before', (select to_jsonb(f) from former f),
        'after', jsonb_build_object('paused', c.paused, 'max_running', c.max_running, 'key_limit', c.key_limit,
                                    'retention', c.retention))
    from changed c
), told as (
    select pg_notify('holdfast', 'queues') from changed
)
select q.name, q.paused, q.max_running, q.key_limit, q.keyed, q.retention, q.available, q.scheduled, q.running,
       q.waiting, q.oldest_available_at, q.counted_at
from changed q, (select count(*) from told) n;
