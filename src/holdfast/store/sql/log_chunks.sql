-- name: append_chunks
-- Appends pieces to streams of attempts, one array per column: each of so many bytes, at a byte, perhaps the last one before
-- its stream is cut.  Answers by the place of each what it came to, see the function, and whether the job is to be
-- cancelled.  $10 is the limit of a job in bytes.  Whoever ended the attempt himself may append $12 bytes more within
-- $11 seconds.  Locks live_jobs rows in id order, so that nobody takes the jobs meanwhile, then the logs of the jobs
-- in that order.  Zero rows for a piece: the lease was lost.
with piece as materialized (
    select * from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[],
                         $8::boolean[], $9::boolean[]) with ordinality
        as p (job_id, attempt, worker_id, stream, byte_offset, length, data, packed, is_last, nth)
), held as materialized (
    select l.job_id, l.attempt, l.worker_id, l.cancel_requested_at is not null as cancelling
    from (select distinct p.job_id, p.attempt from piece p) a
    join holdfast.live_jobs l on l.job_id = any (array[a.job_id]) and l.attempt = any (array[a.attempt])
    where l.state in ('claimed', 'running')
    order by a.job_id
    for share of l
), allowed as materialized (
    select p.*, null::bigint as late_limit, h.cancelling
    from piece p join held h on h.job_id = p.job_id and h.attempt = p.attempt and h.worker_id = p.worker_id
    union all
    select p.*, $12::bigint, false
    from piece p
    where not exists (select from held h where h.job_id = p.job_id and h.attempt = p.attempt)
      and holdfast.ended_by(p.job_id, p.attempt, p.worker_id, $11::double precision)
)
select w.nth, a.verdict, a.size, a.room, a.cut_at, w.cancelling
from (select * from allowed order by job_id, nth offset 0) w
cross join lateral holdfast.append_chunk(
    w.job_id, w.attempt, w.stream, w.byte_offset, w.length, w.data, w.packed, w.is_last, $10::bigint,
    w.late_limit) a;

-- name: close_stream
-- Closes a stream with what its writer says of the whole, $5 bytes with SHA-256 $6, and whether that was found true.
-- Whoever ended the attempt himself may do so for $8 seconds more.
-- Locks the live_jobs row, so that nobody takes the job meanwhile.  Zero rows: the lease was lost, or nothing was written.
with held as materialized (
    select l.job_id from holdfast.live_jobs l
    where l.job_id = $1::bigint and l.attempt = $2::integer and l.worker_id = $3::bigint
      and l.state in ('claimed', 'running')
    for share
), allowed as materialized (
    select from held
    union all
    select
    where not exists (select from held)
      and holdfast.ended_by($1::bigint, $2::integer, $3::bigint, $8::double precision)
), closed as (
    update holdfast.log_streams s
    set closed_at = coalesce(s.closed_at, holdfast.now()), total = $5::bigint, sha256 = $6::bytea, intact = $7::boolean
    where s.job_id = $1::bigint and s.attempt = $2::integer and s.stream = $4::text and exists (select from allowed)
    returning s.job_id
)
select c.job_id, holdfast.tell_watchers(c.job_id) from closed c;

-- name: job_streams
-- The streams of a job, or of its attempt $2 alone, in order.  Zero rows: no runner has written anything.
select s.attempt, s.stream, s.size, s.kept, s.cut_at, s.opened_at, s.written_at, s.closed_at, s.total, s.sha256, s.intact
from holdfast.log_streams s
where s.job_id = $1::bigint and ($2::integer is null or s.attempt = $2::integer)
order by s.attempt, s.stream;

-- name: read_chunks
-- Pieces of one stream in order, from the one that holds byte $4 on, as many as stay below $5 bytes and 512 pieces, but
-- at least one.  Only the days on which the stream was written are looked at.
select p.id, p.attempt, p.stream, p.byte_offset, p.length, p.packed, p.at, p.data
from (
    select c.*, sum(case when c.data is null then 0 else c.length end) over (order by c.byte_offset) as filled,
           row_number() over (order by c.byte_offset) as nth
    from (
        select * from holdfast.log_chunks c
        where c.job_id = $1::bigint and c.attempt = $2::integer and c.stream = $3::text
          and c.byte_offset + c.length > $4::bigint and c.byte_offset >= $4::bigint - 16777216
          and c.at >= (select s.opened_at from holdfast.log_streams s
                       where s.job_id = $1::bigint and s.attempt = $2::integer and s.stream = $3::text)
        order by c.byte_offset
        limit 512
    ) c
) p
where p.filled <= $5::bigint or p.nth = 1
order by p.byte_offset;

-- name: follow_chunks
-- Pieces of all streams of a job that came after piece $2, in the order in which they came, of attempt $3 alone where it
-- is given; as many as stay below $4 bytes and 512 pieces, but at least one.
select p.id, p.attempt, p.stream, p.byte_offset, p.length, p.packed, p.at, p.data
from (
    select c.*, sum(case when c.data is null then 0 else c.length end) over (order by c.id) as filled,
           row_number() over (order by c.id) as nth
    from (
        select * from holdfast.log_chunks c
        where c.job_id = $1::bigint and c.id > $2::bigint and ($3::integer is null or c.attempt = $3::integer)
          and c.at >= (select min(s.opened_at) from holdfast.log_streams s where s.job_id = $1::bigint)
        order by c.id
        limit 512
    ) c
) p
where p.filled <= $4::bigint or p.nth = 1
order by p.id;

-- name: last_chunks
-- The last pieces of a job, newest first, of attempt $2 alone where it is given, as many as stay below $3 bytes and 512
-- pieces, but at least one.
select p.id, p.attempt, p.stream, p.byte_offset, p.length, p.packed, p.at, p.data
from (
    select c.*, sum(case when c.data is null then 0 else c.length end) over (order by c.id desc) as filled,
           row_number() over (order by c.id desc) as nth
    from (
        select * from holdfast.log_chunks c
        where c.job_id = $1::bigint and ($2::integer is null or c.attempt = $2::integer)
          and c.at >= (select min(s.opened_at) from holdfast.log_streams s where s.job_id = $1::bigint)
        order by c.id desc
        limit 512
    ) c
) p
where p.filled <= $3::bigint or p.nth = 1
order by p.id desc;

-- name: watch_logs
-- Remembers for $2 seconds that somebody follows the logs of these jobs, and forgets who stopped long ago.
-- Locks rows in order of job.  One row for each job that was not followed until now: of what it has logged by the end of this
-- statement nobody may have been notified.
with gone as (
    delete from holdfast.log_watches w where w.until < holdfast.now() - interval '1 minute'
), followed as materialized (
    select w.job_id from holdfast.log_watches w where w.job_id = any ($1::bigint[]) and w.until > holdfast.now()
), watched as (
    insert into holdfast.log_watches as w (job_id, until)
    select j.id, holdfast.now() + make_interval(secs => $2::double precision)
    from unnest($1::bigint[]) as j (id) order by j.id
    on conflict (job_id) do update set until = greatest(w.until, excluded.until)
    returning w.job_id
)
select w.job_id from watched w where not exists (select from followed f where f.job_id = w.job_id);
