-- name: queue_limits
-- What a claim must know of these queues before it chooses its way in.
select q.name, q.paused, q.max_running is not null or q.keyed
from holdfast.queues q where q.name = any ($1::text[]);

-- name: list_queues
-- Every queue with its switches and its counts as the leader last rolled them up; nothing is counted here.
select q.name, q.paused, q.max_running, q.key_limit, q.keyed, q.retention, q.available, q.scheduled, q.running,
       q.waiting, q.oldest_available_at, q.counted_at
from holdfast.queues q order by q.name;
