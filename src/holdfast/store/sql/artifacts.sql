-- Files that runners leave.

-- name: lock_artifacts
-- Lets the files of one job come one at a time until the transaction ends.
select pg_advisory_xact_lock(hashtext('holdfast.artifacts'), hashtext($1::bigint::text));

-- name: store_artifact
-- Keeps a file of a held assignment; the first bytes under a name stay.  Beside it there may be less than $6 files of the
-- attempt, with so many bytes that all together are at most $7.  Answers the hash that is kept, null where there is no
-- room, and whether it is new.  Zero rows: the lease was lost.  Locks the live_jobs row, so that nobody takes the job
-- meanwhile.  Only after lock_artifacts in the same transaction: what is counted here cannot grow meanwhile.
with held as (
    select l.job_id, l.attempt from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.worker_id = $3::bigint and l.state in ('claimed', 'running')
    for share
), others as (
    select count(*) as files, coalesce(sum(f.size), 0) as bytes from holdfast.artifacts f
    where f.job_id = $1::bigint and f.attempt = $2::integer and f.name <> $4::text
), stored as (
    insert into holdfast.artifacts (job_id, attempt, name, size, sha256, data, created_at)
    select h.job_id, h.attempt, $4::text, octet_length($5::bytea), encode(sha256($5::bytea), 'hex'), $5::bytea, holdfast.now()
    from held h, others o where o.files < $6::integer and o.bytes + octet_length($5::bytea) <= $7::bigint
    on conflict do nothing
    returning sha256
)
select coalesce((select s.sha256 from stored s),
                (select f.sha256 from holdfast.artifacts f where f.job_id = h.job_id and f.attempt = h.attempt and f.name = $4::text)),
       exists (select from stored)
from held h;

-- name: list_artifacts
-- The files that attempts of a job left, without their bytes, those of later attempts last.  One row of nulls: it has none.
-- Zero rows: there is no such job.
select f.attempt, f.name, f.size, f.sha256, f.created_at
from holdfast.jobs j left join holdfast.artifacts f on f.job_id = j.id
where j.id = $1::bigint
order by f.attempt, f.name;

-- name: read_artifact
-- The bytes of a file of a job.  Zero rows: there is none.
select f.data from holdfast.artifacts f where f.job_id = $1::bigint and f.attempt = $2::integer and f.name = $3::text;
