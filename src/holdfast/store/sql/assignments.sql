-- What becomes of assignments: life, ends, and what comes too late.

-- name: held_assignments
-- Everything that these runners hold.  Locks nothing.
select l.worker_id, l.job_id, l.attempt, l.state, a.accepted_at is not null,
       case when a.term = w.term then coalesce(a.accepted_by, 0) else 0 end, l.cancel_requested_at,
       a.rungs ? 'delivered', a.cancel_reason
from holdfast.live_jobs l
join holdfast.workers w on w.id = any (array[l.worker_id])
join holdfast.assignments a on a.job_id = any (array[l.job_id]) and a.attempt = any (array[l.attempt])
where l.worker_id = any ($1::bigint[]);

-- name: note_life
-- What a runner says of assignments that it holds, one array per column: job, attempt, runner, term, number of the request,
-- whether it runs, progress (null: nothing new), note, whether it shows life, rung of its cancel (null: none).
-- To be heard of at all is to accept.  Locks live_jobs rows in id order.  Answers state, when its cancel was requested,
-- whether that was delivered, and why; an assignment that is missing from the answer is not the runner's any more.
with said as (
    select * from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::integer[], $5::bigint[], $6::boolean[], $7::real[],
                         $8::text[], $9::boolean[], $10::text[])
        as s (job_id, attempt, worker_id, term, number, running, progress, note, alive, rung)
), held as materialized (
    select l.job_id, l.attempt, l.state, l.cancel_requested_at, s.worker_id, s.term, s.number,
           s.running and l.state = 'claimed' as begins, s.progress, s.note,
           s.alive or s.progress is distinct from l.progress and s.progress is not null
           or s.note is distinct from l.progress_note and s.note is not null as lives,
           s.rung, a.accepted_at is null as is_new, a.rungs, a.cancel_reason
    from said s
    join holdfast.live_jobs l on l.job_id = any (array[s.job_id]) and l.attempt = any (array[s.attempt])
    join holdfast.assignments a on a.job_id = any (array[s.job_id]) and a.attempt = any (array[s.attempt])
    where a.worker_id = s.worker_id and l.state in ('claimed', 'running')
    order by s.job_id
    for no key update of l
), moved as (
    update holdfast.live_jobs l
    set state = case when h.begins then 'running' else l.state end,
        started_at = case when h.begins then holdfast.now() else l.started_at end,
        progress = coalesce(h.progress, l.progress), progress_note = coalesce(h.note, l.progress_note)
    from held h
    where l.job_id = any (array[h.job_id]) and l.attempt = h.attempt and (h.begins or h.lives and (h.progress is not null or h.note is not null))
), noted as (
    update holdfast.assignments a
    set accepted_at = coalesce(a.accepted_at, holdfast.now()),
        accepted_by = case when h.is_new then h.number else a.accepted_by end,
        -- A token of one assignment is of no term: then that of the offer stays.
        term = case when h.is_new and h.term > 0 then h.term else a.term end,
        progressed_at = case when h.begins or h.lives or h.is_new then holdfast.now() else a.progressed_at end,
        rungs = holdfast.with_rung(a.rungs, h.rung)
    from held h
    where a.job_id = h.job_id and a.attempt = h.attempt
      and (h.is_new or h.begins or h.lives or h.rung is not null and not h.rungs ? h.rung)
)
select h.job_id, h.attempt, case when h.begins then 'running' else h.state end, h.cancel_requested_at,
       h.rungs ? 'delivered' or h.rung is not null, h.cancel_reason
from held h;

-- name: note_delivered
-- Remembers that answers with a cancel went out, one array per column.  An order that was remembered already is left.
update holdfast.assignments a set rungs = a.rungs || jsonb_build_object('delivered', holdfast.now())
from unnest($1::bigint[], $2::integer[]) as d (job_id, attempt)
where a.job_id = d.job_id and a.attempt = d.attempt and not a.rungs ? 'delivered'
returning a.job_id;

-- name: take_missing
-- Takes assignments away that a runner had accepted and holds no more, one array per column.  Locks live_jobs rows
-- in id order; see holdfast.take_away for what becomes of them.  Those that were ended meanwhile are left.  A runner that was
-- cut off for too long has ended them by itself.
with missing as materialized (
    select l.job_id, 'runner ' || w.name || ' does not hold it any more and has reported no end'
                     || case when a.term = w.term and w.contact_at > a.accepted_at
                             then ': it was out of contact until ' || to_char(w.contact_at at time zone 'UTC', 'HH24:MI:SS') || ' UTC'
                             else '' end as reason
    from unnest($1::bigint[], $2::integer[], $3::bigint[]) as m (job_id, attempt, worker_id)
    join holdfast.live_jobs l on l.job_id = any (array[m.job_id]) and l.attempt = any (array[m.attempt])
    join holdfast.assignments a on a.job_id = m.job_id and a.attempt = m.attempt
    join holdfast.workers w on w.id = any (array[m.worker_id])
    where l.worker_id = m.worker_id and l.state in ('claimed', 'running')
    order by m.job_id for update of l
)
select t.job_id, t.kind, t.fate
from (select array_agg(m.job_id) as job_ids, array_agg(m.reason) as reasons from missing m having count(*) > 0) m,
     holdfast.take_away(m.job_ids, m.reasons) t;

-- name: take_stalled
-- Takes up to $2 jobs away that have shown no life for their stall limit, while their runner was in contact.
-- Only for the leader of term $1.  Locks live_jobs rows, skipping those that others hold.
with stalled as materialized (
    select l.job_id, 'no progress for ' || extract(epoch from p.stall_limit)::double precision || ' s on runner ' || w.name as reason
    from holdfast.placements p
    join holdfast.live_jobs l on l.job_id = any (array[p.job_id])
    join holdfast.assignments a on a.job_id = any (array[l.job_id]) and a.attempt = any (array[l.attempt])
    join holdfast.workers w on w.id = any (array[l.worker_id])
    where p.stall_limit is not null and l.state = 'running'
      and greatest(a.progressed_at, w.contact_at, (
              select max(s.written_at) from holdfast.log_streams s
              where s.job_id = l.job_id and s.attempt = l.attempt
          )) + p.stall_limit < w.renewed_at
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    order by l.job_id
    limit $2::integer
    for update of l skip locked
)
select t.job_id, t.kind, t.fate
from (select array_agg(s.job_id) as job_ids, array_agg(s.reason) as reasons from stalled s having count(*) > 0) s,
     holdfast.take_away(s.job_ids, s.reasons) t;

-- name: end_facts
-- What decides how a reported assignment ends, one array per column: whether it is still held, failures, attempts, the
-- retry policy, whether a cancel was requested, for how long it ran; and, where it has ended, the report that
-- ended it; whose it is; and the queue that will have room under a limit.  Locks live_jobs rows in id order.  Zero rows for an
-- assignment: it was never the runner's.
with asked as (
    select * from unnest($1::bigint[], $2::integer[], $3::bigint[]) as a (job_id, attempt, worker_id)
), held as materialized (
    select l.job_id, l.attempt, k.worker_id, l.failures, l.started_at, l.cancel_requested_at,
           (select q.name from holdfast.queues q
            where q.name = l.queue and (q.max_running is not null or l.concurrency_key is not null)) as frees
    from asked k join holdfast.live_jobs l on l.job_id = any (array[k.job_id]) and l.attempt = any (array[k.attempt])
    where l.state in ('claimed', 'running')
    order by k.job_id for update of l
)
select a.job_id, a.attempt, h.job_id is not null, coalesce(h.failures, 0), coalesce(j.max_attempts, 1), j.retry::text,
       h.cancel_requested_at is not null,
       coalesce(extract(epoch from holdfast.now() - h.started_at), 0)::double precision, j.kind, a.report::text, a.outcome,
       a.worker_id, h.frees
from asked k
join holdfast.assignments a on a.job_id = k.job_id and a.attempt = k.attempt and a.worker_id = k.worker_id
left join holdfast.jobs j on j.id = any (array[k.job_id])
left join held h on h.job_id = k.job_id and h.attempt = k.attempt and h.worker_id = k.worker_id;

-- name: note_ends
-- Remembers with which report assignments ended, what came of it, and the last rung of a cancel (null: none), one array
-- per column; their tokens die.  Zero rows: no such assignment is remembered.
with ended as (
    select * from unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[])
        as e (job_id, attempt, report, outcome, rung)
), spent as (
    delete from holdfast.tokens k using ended e where k.job_id = e.job_id and k.attempt = e.attempt
)
update holdfast.assignments a
set report = e.report::jsonb, outcome = e.outcome, accepted_at = coalesce(a.accepted_at, holdfast.now()),
    rungs = holdfast.with_rung(a.rungs, e.rung)
from ended e
where a.job_id = e.job_id and a.attempt = e.attempt
returning a.job_id;

-- name: keep_evidence
-- Keeps a report that came too late, or contradicts the one that was accepted; the newest twenty of an assignment.
update holdfast.assignments a
set evidence = (
    select jsonb_agg(e.value order by e.nth) from (
        select v.value, v.nth from jsonb_array_elements(
            a.evidence || jsonb_build_array(jsonb_build_object('at', holdfast.now(), 'report', $4::text::jsonb))
        ) with ordinality as v (value, nth) order by v.nth desc limit 20
    ) e
)
where a.job_id = $1::bigint and a.attempt = $2::integer and a.worker_id = $3::bigint
returning a.job_id;

-- name: find_truth
-- How a job stands, for a runner that believes something else: state, attempt, who holds it, and what became of
-- attempt $2.  Zero rows: there is no such job.
select coalesce(l.state, f.outcome, 'running'), coalesce(l.attempt, f.attempt, 0), w.name, coalesce(
           (select a.outcome from holdfast.assignments a where a.job_id = j.id and a.attempt = $2::integer),
           (select t.outcome from holdfast.attempts t where t.job_id = j.id and t.attempt = $2::integer limit 1),
           case when f.attempt = $2::integer then f.outcome end)
from holdfast.jobs j
left join holdfast.live_jobs l on l.job_id = j.id
left join lateral (select * from holdfast.finished_jobs d where d.job_id = j.id limit 1) f on true
left join holdfast.workers w on w.id = l.worker_id
where j.id = $1::bigint;

-- name: read_spec
-- The spec of a held assignment and the hash it had when the job was enqueued.  Zero rows: the lease was lost.
select holdfast.job_spec(l.job_id), p.spec_sha256
from holdfast.live_jobs l join holdfast.placements p on p.job_id = l.job_id
where l.job_id = $1::bigint and l.attempt = $2::integer and l.state in ('claimed', 'running') and l.worker_id = $3::bigint;
