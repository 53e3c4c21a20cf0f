-- One job per transaction, committed before the next.
with stored as (
    insert into jobs (kind, queue, args)
    values ('job', 'default', jsonb_build_object('number', 1, 'pad', :pad::text))
    returning id, queue, kind, priority
)
insert into live_jobs (job_id, queue, kind, priority, state)
select id, queue, kind, priority, 'available' from stored;
