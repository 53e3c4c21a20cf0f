-- Bundles: many first attempts of one worker in one row; see migrations/0012_bundles.sql.

-- name: complete_bundled
-- Completes attempts that are in bundles $1, and their jobs: what complete_jobs does for those in live_jobs, at half its price.
-- For each bundle $2 has a bit for each of its jobs, set where it ends, and $3 is the offset in $4 to $6 at which its entries begin:
-- for each that ends its place in the bundle, from 1, how many seconds its handler ran, and its result; $6 is empty where there are none.
-- Where some ran in the order of their key, each as soon as the one before it had ended, $8 is what its worker's clock shows, and $9 and
-- $10 are when by it each of these began and ended, in the order of $4, null for others; else they are null and empty.
-- $7 has the first of these jobs of each bundle, which has to be at its place: a server that lost commits, as an asynchronous standby
-- that took over may have, gives another bundle the same number.
-- Locks the bundles in order of id.  A job that is missing from the answer is not in its bundle any more, for its end is recorded or
-- somebody has taken it out, and nothing of it was written.  Who waited for the turn of its key is told to have been claimed as it began.
with ending as materialized (
    select b.id, b.worker_id, b.queue, b.kind, b.claimed_at, b.foremost, b.job_ids, b.gone, e.mask, e.first + 1 as since,
           e.first + bit_count(e.mask)::integer as until,
           greatest(b.clock, holdfast.now() - make_interval(secs => $8::double precision)) as clock
    from unnest($1::text::bigint[], $2::text[]::varbit[], $3::text::integer[], $7::text::bigint[]) as e (id, mask, first, job_id)
    join holdfast.bundles b on b.id = any (array[e.id])
     and cardinality(b.job_ids) = length(e.mask) and b.job_ids[(select $4::text::integer[])[e.first + 1]] = e.job_id
    order by b.id for update of b
), emptied as (
    delete from holdfast.bundles b using ending e where b.id = any (array[e.id]) and bit_count(e.gone | e.mask) = length(e.gone)
), shrunk as (
    update holdfast.bundles b set gone = e.gone | e.mask, clock = e.clock from ending e
    where b.id = any (array[e.id]) and bit_count(e.gone | e.mask) < length(e.gone)
), ended as (
    insert into holdfast.finished_completed (job_id, queue, kind, outcome, attempt, failures, worker_id, claimed_at,
                                             started_at, finished_at, result)
    select e.job_ids[u.place], e.queue, e.kind, 'completed', 1, 0, e.worker_id,
           case when u.place > e.foremost then t.started_at else e.claimed_at end, t.started_at,
           greatest(e.claimed_at, least(holdfast.now(), e.clock + make_interval(secs => u.ended))), u.result::jsonb
    -- A slice, so that the ids are read from where long values are once for each bundle.
    from (select e.queue, e.kind, e.worker_id, e.claimed_at, e.foremost, e.clock, e.since, e.until, e.job_ids[1:] as job_ids,
                 e.mask & ~e.gone as fresh
          from ending e offset 0) e
    cross join lateral unnest(
        (select $4::text::integer[])[e.since:e.until],
        (select $5::text::double precision[])[e.since:e.until],
        (select $6::text[])[e.since:e.until],
        (select $9::text::double precision[])[e.since:e.until],
        (select $10::text::double precision[])[e.since:e.until]
    ) as u (place, seconds, result, began, ended)
    cross join lateral (select greatest(e.claimed_at, least(holdfast.now(), coalesce(
        e.clock + make_interval(secs => u.began), holdfast.now() - make_interval(secs => u.seconds)))) as started_at) t
    where get_bit(e.fresh, u.place - 1) = 1
    returning job_id
)
select coalesce(json_agg(e.job_id), '[]')::text from ended e;

-- name: untie_jobs
-- Takes the jobs $1 out of whatever bundles they are in; answers them.  Locks as holdfast.untie does.  Zero rows: none is in one.
select * from holdfast.untie(array(select b.id from holdfast.bundles b where b.job_ids && $1::text::bigint[]), $1::text::bigint[]);

-- name: untie_known
-- Takes the jobs $2 out of bundles $1, in which they were; answers them.  Locks as holdfast.untie does.  Zero rows: none is there any more.
select * from holdfast.untie($1::text::bigint[], $2::text::bigint[]);

-- name: untie_unknown
-- Takes the jobs of worker $1 out of its bundles, all but $2; answers them.  Locks as holdfast.untie does.  Zero rows: it has no others.
with strange as materialized (
    select array(
        select b.job_id from holdfast.bundled_jobs b where b.worker_id = $1::bigint
        except select known from unnest($2::text::bigint[]) as known
    ) as ids
)
select untied.* from strange s cross join lateral holdfast.untie(
    array(select b.id from holdfast.bundles b where b.worker_id = $1::bigint and b.job_ids && s.ids), s.ids) untied;

-- name: untie_orphans
-- Takes all jobs out of up to $2 bundles of workers that are lost or, with $3, have left; answers them.  Only for the leader of
-- term $1.  Locks as holdfast.untie does.  Zero rows: there are none.
select * from holdfast.untie(array(
    select b.id from holdfast.bundles b join holdfast.workers w on w.id = b.worker_id
    where (w.state = 'lost' or w.state = 'offline' and $3::boolean)
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by b.id limit $2::integer
), null);
