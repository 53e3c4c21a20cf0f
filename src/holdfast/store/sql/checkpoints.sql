-- name: save_checkpoint
-- Saves the state of a held attempt, replacing the former one.  Locks the live_jobs row, so that nobody takes the job
-- meanwhile.  Zero rows: the lease was lost, nothing was saved.
with held as (
    select l.job_id, l.attempt from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for share
)
insert into holdfast.checkpoints as c (job_id, attempt, version, data, saved_at)
select h.job_id, h.attempt, $3::integer, $4::jsonb, holdfast.now() from held h
on conflict (job_id) do update
set attempt = excluded.attempt, version = excluded.version, data = excluded.data, saved_at = excluded.saved_at
returning c.job_id;

-- name: load_checkpoint
-- The saved state of a job, whoever asks.  Zero rows: nothing was saved.
select c.version, c.data::text, c.attempt, c.saved_at from holdfast.checkpoints c where c.job_id = $1::bigint;

-- name: delete_checkpoint
-- Forgets the state of a held attempt, whose live_jobs row it locks.  Zero rows: the lease was lost; false: there was nothing to forget.
with held as (
    select l.job_id from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running')
    for share
), gone as (
    delete from holdfast.checkpoints c using held h where c.job_id = h.job_id returning c.job_id
)
select exists (select from gone) from held;
