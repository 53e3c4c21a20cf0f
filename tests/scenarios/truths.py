"""What must be true of a schema in which all has come to rest: each question finds what belies it."""

from holdfast.testing import ThrowawayDatabase


def differing(these: str, those: str) -> str:
    """Return the question what is found by only one of two questions, or by one more often."""
    return f"(({these}) except all ({those})) union all (({those}) except all ({these}))"


# How every attempt ended; and how long handlers worked under the fence, by what they noted themselves.
VIEWS = [
    """
    create view holdfast.ends as
    select job_id, attempt, outcome, claimed_at, started_at, ended_at from holdfast.attempts
    union all
    select job_id, attempt, outcome, claimed_at, started_at, finished_at from holdfast.finished_jobs
    """,
    """
    create view holdfast.spells as
    select e.job_id, e.attempt, j.queue, j.concurrency_key as key,
           d.began_at, least(e.ended_at, d.ended_at) as ended_at
    from holdfast.ends e
    join holdfast.jobs j on j.id = e.job_id
    join (
        select job_id, attempt, min(at) as began_at, max(at) filter (where what <> 'begun') as ended_at
        from holdfast.diary where attempt > 0 group by 1, 2
    ) d on d.job_id = e.job_id and d.attempt = e.attempt
    where e.claimed_at is not null and d.began_at < e.ended_at
    """,
    # A run whose worker dies as it makes up for things, after all its attempts, is left to a person.
    """
    create view holdfast.vows as
    select d.job_id, substr(d.what, 5) as vow,
           case when f.outcome = 'completed' then false
                when f.reason like 'worker %' then exists (
                    select from holdfast.diary u
                    where u.job_id = d.job_id and u.what = 'undo ' || substr(d.what, 5)
                )
                else true end as is_due
    from holdfast.diary d left join holdfast.finished_jobs f on f.job_id = d.job_id
    where d.what like 'vow %'
    """,
    # An end that somebody's retry took back is an attempt like others, and may have been told.
    """
    create view holdfast.tellable as
    select e.job_id, e.attempt, 'job.' || e.outcome as event, e.finished_at as at, false as is_undone
    from holdfast.finished_jobs e where e.kind <> 'holdfast:deliver'
    union all
    select e.job_id, e.attempt, case when e.outcome in ('completed', 'failed', 'cancelled') then 'job.'
                                     else 'attempt.' end || e.outcome,
           e.ended_at, e.outcome in ('completed', 'failed', 'cancelled')
    from holdfast.attempts e join holdfast.jobs j on j.id = e.job_id and j.kind <> 'holdfast:deliver'
    """,
]
AT_ONCE = """
    select s.job_id, s.attempt, s.queue, s.key, count(*) from holdfast.spells s
    join holdfast.queues q on q.name = s.queue
    join holdfast.spells o on o.queue = s.queue and o.began_at <= s.began_at and s.began_at < o.ended_at
"""
TRUTHS = {
    "what was enqueued is there, and nothing that was taken back": """
        select d.job_id, d.what from holdfast.diary d left join holdfast.jobs j on j.id = d.job_id
        where d.what = 'enqueued' and j.id is null or d.what = 'taken back' and j.id is not null
    """,
    "every job has ended, and once": differing(
        "select id from holdfast.jobs", "select job_id from holdfast.finished_jobs"
    ),
    "nothing is left behind": """
        select 'live', job_id from holdfast.unfinished_jobs
        union all select 'assigned', job_id from holdfast.assignments where outcome is null
        union all select 'suspended', run_id from holdfast.suspensions where not paused
        union all select 'ended', job_id from holdfast.ends where job_id not in (select id from holdfast.jobs)
    """,
    "attempts are numbered from 1 without a gap, and each has one end": """
        select job_id, array_agg(attempt || ' ' || outcome order by attempt) from holdfast.ends
        group by job_id having array(select generate_series(1, max(attempt)))
            <> coalesce(array_agg(attempt order by attempt) filter (where claimed_at is not null), '{}')
    """,
    "an attempt begins once": """
        select job_id, attempt from holdfast.diary where what = 'begun' group by 1, 2 having count(*) > 1
    """,
    "an attempt is claimed when the last one has ended, then begins and ends": """
        select a.* from holdfast.ends a
        left join holdfast.ends b on b.job_id = a.job_id and b.attempt = a.attempt - 1
            and b.claimed_at is not null
        where b.ended_at > a.claimed_at or a.claimed_at > a.started_at or a.started_at > a.ended_at
    """,
    "what its handler brought to an end, had a handler that ended": """
        select e.* from holdfast.ends e
        join holdfast.jobs j on j.id = e.job_id and j.kind in ('task', 'command')
        where e.outcome in ('completed', 'retried', 'snoozed') and not exists (
            select from holdfast.diary d
            where d.job_id = e.job_id and d.attempt = e.attempt and d.what = 'ended' and d.at <= e.ended_at
        )
    """,
    "no program runs beside another one of its job": """
        select job_id, attempt from holdfast.diary where what = 'beside-another'
    """,
    "an effect is there exactly where its job completed": differing(
        "select job_id, attempt from holdfast.diary where what = 'done'",
        """
        select f.job_id, f.attempt from holdfast.finished_jobs f join holdfast.jobs j on j.id = f.job_id
        where f.outcome = 'completed' and j.args ->> 'does' <> 'return'
        """,
    ),
    "no more work at once than their queue allows": f"""
        {AT_ONCE} group by 1, 2, 3, 4, q.max_running having count(*) > q.max_running
    """,
    "no more work at once than their key allows": f"""
        {AT_ONCE} where o.key = s.key group by 1, 2, 3, 4, q.key_limit having count(*) > q.key_limit
    """,
    "a unique key belongs to one live job": """
        select a.id, b.id, a.unique_key from holdfast.jobs a
        join holdfast.jobs b on b.unique_key = a.unique_key and b.id > a.id
        join holdfast.finished_jobs f on f.job_id = a.id
        where f.finished_at > b.created_at + interval '1 s' and a.id not in (
            select job_id from holdfast.attempts where outcome in ('failed', 'cancelled')
        )
    """,
    # A replace and a retry by a client begin to count anew.
    "failures are counted, and nothing else is": """
        select f.job_id, f.failures, f.outcome from holdfast.finished_jobs f
        join holdfast.jobs j on j.id = f.job_id and j.revision = 0
        left join holdfast.attempts a on a.job_id = f.job_id and a.outcome not in ('released', 'snoozed')
        where f.kind in ('task', 'command') and f.outcome <> 'cancelled'
        group by f.job_id, f.failures, f.outcome having bool_and(a.outcome in ('retried', 'lost'))
            and f.failures <> count(a.*) + (f.outcome = 'failed')::integer
    """,
    "a job ends in a way to which it may come": """
        select f.job_id, f.outcome, f.failures, f.reason, j.args from holdfast.finished_jobs f
        join holdfast.jobs j on j.id = f.job_id
        where case f.outcome
            when 'completed' then j.args ->> 'does' in ('fail', 'spoil', 'give up')
            when 'failed' then f.failures < j.max_attempts and j.args::text not similar to '%(spoil|fall)%'
            else j.args ->> 'does' is distinct from 'give up'
                and 'job ' || j.id not in (select subject from holdfast.audit_log where action = 'job.cancel')
                and coalesce(j.parent_id, 0) not in (
                    select job_id from holdfast.ends where outcome in ('failed', 'cancelled')
                )
        end
    """,
    "a step is remembered exactly where it was written": differing(
        "select job_id, attempt, what from holdfast.diary where what ~ '^(leg|vow|undo)'",
        "select run_id, attempt, name from holdfast.steps where kind = 'step' and state = 'completed'",
    ),
    "what a run had vowed to undo is undone where it fell, and nowhere else": differing(
        "select job_id, substr(what, 6) from holdfast.diary where what like 'undo %'",
        "select job_id, vow from holdfast.vows where is_due",
    ),
    "the last thing is undone first": """
        select job_id, nth from (
            select job_id, nth, lag(nth) over (partition by job_id order by at) as later from (
                select job_id, substring(what from '[0-9]+$')::integer as nth, at
                from holdfast.diary where what ~ '^undo leg[.][0-9]+$'
            ) undone
        ) undone where nth > later
    """,
    "a run that completed has ended its steps": """
        select s.run_id, s.branch, s.place, s.name, s.state from holdfast.steps s
        join holdfast.finished_jobs f on f.job_id = s.run_id and f.outcome = 'completed'
        where s.kind <> 'sleep' and s.state not in ('completed', 'failed')
    """,
    "a signal is taken by one place, and a place takes one signal": """
        select run_id, branch, place from holdfast.signals where consumed_at is not null
        group by 1, 2, 3 having count(*) > 1 or place is null
    """,
    "children end before a parent that completed, and do nothing after one that fell": """
        select f.job_id, f.outcome, p.job_id, p.outcome from holdfast.finished_jobs f
        join holdfast.finished_jobs p on p.job_id = f.parent_id
        join holdfast.steps s on s.run_id = f.parent_id and s.child_id = f.family_id
        where case p.outcome when 'completed' then f.finished_at > p.finished_at else
            s.detail ->> 'policy' = 'cancel' and f.outcome <> 'cancelled'
            and f.claimed_at > p.finished_at + interval '1 s' end
    """,
    "every end is told": """
        select t.job_id, t.attempt, t.event from holdfast.tellable t
        left join holdfast.deliveries d on d.job_id = t.job_id and d.event = t.event and d.at = t.at
        where d.id is null and not t.is_undone
    """,
    "nothing is told that was no end": """
        select d.job_id, d.event, d.at from holdfast.deliveries d
        left join holdfast.tellable t on t.job_id = d.job_id and t.event = d.event and t.at = d.at
        where t.job_id is null
    """,
    "what is told arrives, and nothing else": differing(
        "select id, event, (body::jsonb -> 'job' ->> 'id')::bigint from holdfast.deliveries",
        "select delivery_id, event, job_id from holdfast.arrivals group by 1, 2, 3",
    ),
    "a delivery that arrived is known to have": """
        select id, status, problem from holdfast.deliveries where delivered_at is null
    """,
    "the counts of the queues are right": """
        select name, available, scheduled, running, waiting from holdfast.queues
        where available + scheduled + running + waiting <> 0
    """,
}


async def untruths(db: ThrowawayDatabase) -> list[str]:
    """Return every sentence that is not true, and the first of what belies it."""
    found = {sentence: await db.fetch(question) for sentence, question in TRUTHS.items()}
    return [f"untrue: {sentence}: {len(rows)}, {rows[:3]}" for sentence, rows in found.items() if rows]
