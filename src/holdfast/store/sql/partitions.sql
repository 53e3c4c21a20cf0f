-- name: missing_partitions
-- The daily partitions from today (UTC) to $1 days ahead that do not exist yet.  Zero rows: all are there.
select wanted.parent, (holdfast.now() at time zone 'UTC')::date + ahead.days
from unnest(array['finished_completed', 'finished_unhappy', 'job_logs', 'log_chunks']) as wanted (parent)
cross join generate_series(0, $1::integer) as ahead (days)
where to_regclass('holdfast.' || wanted.parent
                  || to_char((holdfast.now() at time zone 'UTC')::date + ahead.days, '_YYYYMMDD')) is null
order by 2, 1;

-- name: make_partition
-- Makes the partition of table $2 for day $3 and answers what it came to; see the function.
-- Only for the leader of term $1; zero rows: somebody else leads.  Locks the default partition, for 200 ms at most
-- while it waits.
select holdfast.make_partition($2::text, $3::date)
where exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now());

-- name: expired_partitions
-- The daily partitions that lie wholly before the retention, in seconds: $1 of completed jobs, $2 of failed and
-- cancelled ones, $3 of logs.  Zero rows: nothing is that old.
select child.relname::text
from (values ('finished_completed', $1::double precision), ('finished_unhappy', $2::double precision),
             ('job_logs', $3::double precision), ('log_chunks', $3::double precision)) as kept (parent, seconds)
join pg_inherits i on i.inhparent = to_regclass('holdfast.' || kept.parent)
join pg_class child on child.oid = i.inhrelid
where child.relname ~ '_[0-9]{8}$'
  and to_date(right(child.relname, 8), 'YYYYMMDD')
      < ((holdfast.now() - make_interval(secs => kept.seconds)) at time zone 'UTC')::date
order by 1;

-- name: drop_partition
-- Drops the daily partition named $2 and answers what it came to; see the function.
-- Only for the leader of term $1; zero rows: somebody else leads.  Locks the parent exclusively, for 200 ms at most
-- while it waits.
select holdfast.drop_partition($2::text)
where exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now());
