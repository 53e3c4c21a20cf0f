-- name: queue_limits
-- What a claim must know of these queues before it chooses its way in.
select q.name, q.paused, q.max_running is not null or q.keyed
from holdfast.queues q where q.name = any ($1::text[]);
