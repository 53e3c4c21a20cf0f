-- Results that are too large for a step.

-- name: save_blob
-- Keeps data of a held run; answers its id.  Locks the live_jobs row.  Zero rows: the lease was lost.
with held as (
    select l.job_id from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for share
)
insert into holdfast.blobs (run_id, data, created_at)
select h.job_id, $3::bytea, holdfast.now() from held h
returning id;

-- name: load_blob
-- The data of a blob, which forks of its run have as well.  Zero rows: there is none, or its runs were pruned.
select b.data from holdfast.blobs b where b.id = $1::bigint limit 1;
