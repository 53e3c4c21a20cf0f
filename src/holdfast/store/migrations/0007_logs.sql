-- What runners send of the logs of their attempts: bytes at their offsets, stream by stream.

-- One stream of one attempt.  Bytes before size are here, or known to be missing.  kept counts those that are here,
-- late those that came after the attempt had ended.  cut_at is where the limit of the job cut the stream off.
-- total and sha256 are what the runner says of the whole when it closes the stream, intact whether that was found true.
create table holdfast.log_streams (
    job_id     bigint not null,
    attempt    integer not null,
    stream     text not null check (stream in ('stdout', 'stderr', 'system')),
    size       bigint not null default 0,
    kept       bigint not null default 0,
    late       bigint not null default 0,
    cut_at     bigint,
    opened_at  timestamptz not null,
    written_at timestamptz not null,
    closed_at  timestamptz,
    total      bigint,
    sha256     bytea,
    intact     boolean,
    primary key (job_id, attempt, stream)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- A piece of a stream: length bytes from byte_offset on.  data is null for a gap: bytes that the runner had to drop;
-- one of no length marks where the stream was cut off.  packed says that data is gzip, kept as it came.  Ids of one job grow in the order in which its pieces came.
-- Not compressed by PostgreSQL: a runner compresses what is worth it, and costs the server nothing.
create table holdfast.log_chunks (
    id          bigint generated always as identity,
    job_id      bigint not null,
    attempt     integer not null,
    stream      text not null,
    byte_offset bigint not null,
    length      bigint not null check (length >= 0),
    packed      boolean not null default false,
    at          timestamptz not null,
    data        bytea
) partition by range (at);
alter table holdfast.log_chunks alter column data set storage external;
create table holdfast.log_chunks_rest partition of holdfast.log_chunks default;
create index log_chunks_place on holdfast.log_chunks (job_id, attempt, stream, byte_offset);
create index log_chunks_order on holdfast.log_chunks (job_id, id);

-- Jobs whose logs somebody follows just now: only for those is a notification worth its lock.
create table holdfast.log_watches (
    job_id bigint primary key,
    until  timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);

create type holdfast.log_answer as (verdict text, size bigint, room bigint, cut_at bigint);

-- Appends a piece to a stream; whoever calls it has made sure that the attempt may write.  is_last cuts the stream
-- behind it; late_limit is how many bytes may come after the end, null while the attempt lives.  Answers
--   written   it is there
--   offset    the stream goes on at size, not where this piece begins
--   full      the job may have room bytes more, and this piece is longer
--   cut       the stream was cut: nothing is written any more
--   closed    the stream was closed before
-- The pieces of a job come one at a time, so that its limit is exact and ids grow in their order.
create function holdfast.append_chunk(
    job_id bigint, attempt integer, stream text, byte_offset bigint, length bigint, data bytea, packed boolean,
    is_last boolean, job_limit bigint, late_limit bigint
) returns holdfast.log_answer
language plpgsql
as $$
#variable_conflict use_variable
declare
    s holdfast.log_streams;
    room bigint;
begin
    perform pg_advisory_xact_lock(hashtext('holdfast.logs'), hashtext(job_id::text));
    insert into holdfast.log_streams (job_id, attempt, stream, opened_at, written_at)
    values (job_id, attempt, stream, holdfast.now(), holdfast.now())
    on conflict do nothing;
    select * into s from holdfast.log_streams t
    where t.job_id = job_id and t.attempt = attempt and t.stream = stream;
    if s.cut_at is not null then
        return row('cut', s.size, 0, s.cut_at)::holdfast.log_answer;
    end if;
    if byte_offset <> s.size then
        return row('offset', s.size, 0, null)::holdfast.log_answer;
    end if;
    if s.closed_at is not null then
        return row('closed', s.size, 0, null)::holdfast.log_answer;
    end if;
    select job_limit - sum(t.kept) into room from holdfast.log_streams t where t.job_id = job_id;
    room := greatest(0, least(room, late_limit - s.late));
    if data is not null and length > room then
        return row('full', s.size, room, null)::holdfast.log_answer;
    end if;
    if length > 0 then
        insert into holdfast.log_chunks (job_id, attempt, stream, byte_offset, length, packed, at, data)
        values (job_id, attempt, stream, byte_offset, length, packed, holdfast.now(), data);
    end if;
    if is_last then
        insert into holdfast.log_chunks (job_id, attempt, stream, byte_offset, length, at)
        values (job_id, attempt, stream, byte_offset + length, 0, holdfast.now());
    end if;
    update holdfast.log_streams t
    set size = t.size + length, written_at = holdfast.now(), cut_at = case when is_last then t.size + length end,
        kept = t.kept + case when data is null then 0 else length end,
        late = t.late + case when late_limit is null then 0 else length end
    where t.job_id = job_id and t.attempt = attempt and t.stream = stream;
    perform holdfast.tell_watchers(job_id);
    return row('written', s.size + length, room, case when is_last then s.size + length end)::holdfast.log_answer;
end
$$;

-- Whether this worker ended the attempt itself, no longer than so many seconds ago: then the rest of its log may still
-- come.  An attempt that was taken from it as lost says nothing more.  It is volatile so that it sees what is there when it
-- is asked: whoever has waited for the lock of a job that ended meanwhile asks in a statement that began before.
create function holdfast.ended_by(job_id bigint, attempt integer, worker_id bigint, seconds double precision)
returns boolean
language sql volatile
as $$
    select exists (
        select from holdfast.finished_jobs f
        where f.job_id = $1 and f.attempt = $2 and f.worker_id = $3
          and f.finished_at > holdfast.now() - make_interval(secs => $4)
    ) or exists (
        select from holdfast.attempts a
        where a.job_id = $1 and a.attempt = $2 and a.worker_id = $3 and a.outcome <> 'lost'
          and a.ended_at > holdfast.now() - make_interval(secs => $4)
    )
$$;

-- Tells whoever follows the log of a job that there is more of it.
create function holdfast.tell_watchers(job_id bigint) returns void
language plpgsql
as $$
#variable_conflict use_variable
begin
    if exists (select from holdfast.log_watches w where w.job_id = job_id and w.until > holdfast.now()) then
        perform pg_notify('holdfast', 'log:' || job_id);
    end if;
end
$$;

select holdfast.make_partition('log_chunks', (holdfast.now() at time zone 'UTC')::date + n)
from generate_series(0, 3) n;
