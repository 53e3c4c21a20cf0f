"""What happened: the figures that the demo ends with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.forge.database import Connection
from examples.forge.scene.check import Finding
from examples.forge.scene.clients import Ledger
from examples.forge.scene.fleet import Death

_JOBS = """
select j.kind, count(*) filter (where j.state = 'completed'), count(*) filter (where j.state = 'failed'),
       count(*) filter (where j.state = 'cancelled'),
       sum(t.retried), sum(t.snoozed), sum(t.lost), sum(t.released)
from holdfast.job_overview j
left join lateral (
    select count(*) filter (where a.outcome = 'retried') as retried,
           count(*) filter (where a.outcome = 'snoozed') as snoozed,
           count(*) filter (where a.outcome = 'lost') as lost,
           count(*) filter (where a.outcome = 'released') as released
    from holdfast.attempts a where a.job_id = j.id
) t on true
group by j.kind order by j.kind
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
    columns = ("kind", "completed", "failed", "cancelled", "retried", "snoozed", "lost", "released")
    _table(
        console,
        "Jobs by outcome, and attempts that did not end their job",
        columns,
        connection.execute(_JOBS),
    )
    latencies = [
        (way, count, *(f"{value:.2f} s" for value in values))
        for way, count, values in connection.execute(_LATENCY)
    ]
    _table(console, "From push to processed", ("way", "events", "p50", "p95", "slowest"), latencies)
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
    columns = ("job", "kind", "former attempt", "kill to rescue", "kill to done", "attempts")
    _table(console, f"{death.worker} was killed (SIGKILL) with these jobs in hand", columns, rows)


def _seconds(value: Any) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _table(console: Console, title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print()
    console.print(table)


def judge(console: Console, findings: list[Finding], exit_codes: dict[str, int]) -> bool:
    """Print the check's answers and how the workers ended; True if nothing speaks against any claim."""
    console.print("\n[bold]Was every push processed exactly once?[/]")
    for finding in findings:
        console.print(f"  {'[red]no [/]' if finding.against else '[green]yes[/]'}  {finding.claim}")
        for problem in finding.against[:5]:
            console.print(f"         {problem}", markup=False)
        if len(finding.against) > 5:
            console.print(f"         … and {len(finding.against) - 5} more")
    ends = ", ".join(f"{name} with {code}" for name, code in sorted(exit_codes.items()))
    console.print(f"\nWorkers ended: {ends}")
    return not any(finding.against for finding in findings)
