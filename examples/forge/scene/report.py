"""What happened: the figures that the demo ends with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples.forge.database import Connection
from examples.forge.scene.check import Finding
from examples.forge.scene.clients import Ledger
from examples.forge.scene.fleet import Death

_JOBS = """
select kind, string_agg(format('%s %s', n, outcome), ', ' order by n desc) filter (where is_end),
       string_agg(format('%s %s', n, outcome), ', ' order by n desc) filter (where not is_end)
from (
    select j.kind, j.state as outcome, true as is_end, count(*) as n
    from holdfast.job_overview j group by 1, 2
    union all
    select j.kind, a.outcome, false, count(*)
    from holdfast.attempts a join holdfast.jobs j on j.id = a.job_id group by 1, 2
) one
group by kind order by kind
"""
_LATENCY = """
select case when spooled then 'through the spool' else 'straight' end, count(*),
       percentile_cont(array[0.5, 0.95, 1])
       within group (order by extract(epoch from processed_at - pushed_at))
from forge.push_events where processed_at is not null group by spooled order by spooled
"""
_THROUGHPUT = """
select extract(epoch from max(finished_at) - min(created_at)), count(*)
from holdfast.job_overview where finished_at is not null
"""
_RESCUE = """
select j.id, j.kind, a.outcome, extract(epoch from a.ended_at - %(killed)s),
       extract(epoch from j.finished_at - %(killed)s), j.attempt
from unnest(%(jobs)s::bigint[], %(attempts)s::int[]) as held (job_id, attempt)
join holdfast.job_overview j on j.id = held.job_id
left join holdfast.attempts a on a.job_id = held.job_id and a.attempt = held.attempt
order by j.id
"""
_IMPORTS = "select status, count(*) from forge.import_repositories group by status order by status"


def show(
    console: Console, connection: Connection, ledger: Ledger, death: Death | None, *, seconds: float
) -> None:
    """Print what happened; the clients pushed for *seconds*."""
    refs = ledger.refs()
    pushes = len(ledger.accepted)
    pace = f"{pushes / seconds:.1f} a second"
    console.print(f"\n[bold]{pushes} pushes[/] with {len(refs)} refs in {seconds:.1f} s: {pace}")
    [(span, jobs)] = connection.execute(_THROUGHPUT).fetchall()
    console.print(f"[bold]{jobs} jobs[/] ended in {span:.1f} s: {jobs / float(span):.1f} a second")
    imported = ", ".join(f"{count} {status}" for status, count in connection.execute(_IMPORTS))
    console.print(f"[bold]repositories of the import:[/] {imported or 'none'}")
    columns = ("kind", "jobs", "attempts that did not end theirs")
    table(console, "What became of the jobs", columns, connection.execute(_JOBS))
    latencies = [
        (way, count, *(f"{value:.2f} s" for value in values))
        for way, count, values in connection.execute(_LATENCY)
    ]
    table(console, "From push to processed", ("way", "events", "p50", "p95", "slowest"), latencies)
    if death is not None:
        _show_rescue(console, connection, death)


def _show_rescue(console: Console, connection: Connection, death: Death) -> None:
    parameters = {
        "killed": death.at,
        "jobs": [job.job_id for job in death.held],
        "attempts": [job.attempt for job in death.held],
    }
    rows = [
        (job_id, kind, outcome, _seconds(rescued), _seconds(done), attempt)
        for job_id, kind, outcome, rescued, done, attempt in connection.execute(_RESCUE, parameters)
    ]
    columns = ("job", "kind", "its attempt", "rescued after", "done after", "attempts")
    title = f"What {death.worker} held when it was killed (SIGKILL; its lease lasted {death.ttl:g} s)"
    table(console, title, columns, rows)


def _seconds(value: Any) -> str:
    return "-" if value is None else f"{value:.2f} s"


def table(console: Console, title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table."""
    drawn = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        drawn.add_column(column, no_wrap=column == "kind")
    for row in rows:
        drawn.add_row(*("" if value is None else str(value) for value in row))
    console.print()
    console.print(drawn)


def judge(console: Console, findings: list[Finding], question: str) -> bool:
    """Print a check's answers; True if nothing speaks against any claim."""
    console.print(f"\n[bold]{question}[/]")
    for finding in findings:
        console.print(f"  {'[red]no [/]' if finding.against else '[green]yes[/]'}  {finding.claim}")
        for problem in finding.against[:5]:
            console.print(f"         {problem}", markup=False)
        if len(finding.against) > 5:
            console.print(f"         … and {len(finding.against) - 5} more")
    return not any(finding.against for finding in findings)
