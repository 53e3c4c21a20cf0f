-- Jobs for runners as people see them.

-- name: runner_story
-- What a job asks of runners, what they were given of it, oldest first, and what they left, as JSON.  Locks nothing.
-- Zero rows: the job is not for runners.
select jsonb_build_object(
    'labels', p.labels, 'runner', p.runner, 'pinned_until', p.pinned_until, 'on_loss', p.on_loss,
    'stall_limit', extract(epoch from p.stall_limit), 'spec_sha256', p.spec_sha256
)::text, (
    select coalesce(jsonb_agg(jsonb_build_object(
        'attempt', a.attempt, 'worker_id', a.worker_id, 'runner', w.name, 'term', a.term, 'offered_at', a.offered_at,
        'accepted_at', a.accepted_at, 'started_at', t.started_at, 'progressed_at', a.progressed_at,
        'ended_at', t.ended_at, 'outcome', a.outcome, 'rungs', a.rungs, 'cancel_reason', a.cancel_reason,
        'report', a.report, 'evidence', a.evidence
    ) order by a.attempt), '[]')::text
    from holdfast.assignments a
    left join holdfast.workers w on w.id = a.worker_id
    left join lateral (
        select r.started_at, r.ended_at from holdfast.attempts r where r.job_id = a.job_id and r.attempt = a.attempt
        union all
        select f.started_at, f.finished_at from holdfast.finished_jobs f
        where f.job_id = a.job_id and f.attempt = a.attempt
        union all
        select l.started_at, null from holdfast.live_jobs l
        where l.job_id = a.job_id and a.attempt = l.attempt and l.worker_id is not null
        limit 1
    ) t on true
    where a.job_id = p.job_id
), (
    select coalesce(jsonb_agg(jsonb_build_object(
        'attempt', f.attempt, 'name', f.name, 'size', f.size, 'sha256', f.sha256, 'created_at', f.created_at
    ) order by f.attempt, f.name), '[]')::text
    from holdfast.artifacts f where f.job_id = p.job_id
)
from holdfast.placements p where p.job_id = $1::bigint;
