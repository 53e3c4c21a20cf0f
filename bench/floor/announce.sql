-- One job per transaction, of which whoever listens is told with its commit; its number is in its payload.
with stored as (
    insert into jobs (kind, queue, args)
    values ('job', 'default', jsonb_build_object('number', $1::bigint, 'pad', $2::text))
    returning id, queue, kind, priority
), waiting as (
    insert into live_jobs (job_id, queue, kind, priority, state)
    select id, queue, kind, priority, 'available' from stored
)
select pg_notify('jobs', id::text) from stored;
