"""`holdfast jobs`: list, show, wait, logs; what is done to jobs is in `cli.acts`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.cli.configs import database_config
from holdfast.cli.context import Invocation, invocation
from holdfast.cli.filters import filtered
from holdfast.cli.ids import id_argument
from holdfast.cli.listing import BeforeOption, LimitOption, Listing, show_page
from holdfast.cli.moments import ago, clock, seconds
from holdfast.cli.operating import AnyOperator, group, operate, served
from holdfast.cli.output import JsonOption, print_json, print_json_line, tell
from holdfast.cli.runner_story import print_runner_story
from holdfast.cli.story import print_story
from holdfast.client.asynchronous import Client
from holdfast.errors import JobCancelled, JobFailed, OptionInvalid, WaitTimeout
from holdfast.model.job import JobRecord, JobState, JobSummary
from holdfast.model.log import BEGINNING
from holdfast.model.selection import JobFilter
from holdfast.store.logs import LogLine

app = group("See jobs and act on them.")

JobId = Annotated[int, id_argument("The id of the job.")]
COLUMNS = ("id", "state", "kind", "queue", "attempt", "enqueued", "since", "worker", "reason")


@app.command("list")
@filtered
def list_jobs(
    context: typer.Context,
    *,
    chosen: JobFilter,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first; arguments are shown by `show` alone."""
    show_page(
        context,
        lambda operator: operator.jobs.find(chosen, limit=limit, before=before),
        Listing(COLUMNS, _row, nothing="no job fits"),
        limit=limit,
        as_json=as_json,
    )


def _row(job: JobSummary, now: datetime) -> tuple[object, ...]:
    since = job.finished_at or job.started_at or job.claimed_at or job.run_at
    attempt = f"{job.attempt} ({job.failures} of {job.max_attempts} failed)" if job.failures else job.attempt
    told = job.reason if job.progress is None else f"{job.progress:.0%} {job.progress_note or ''}".strip()
    return (
        job.id,
        job.state,
        job.kind,
        job.queue,
        attempt,
        ago(job.created_at, now),
        ago(since, now),
        job.worker_id,
        None if told is None else told.splitlines()[0][:80],
    )


@app.command()
def show(context: typer.Context, job_id: JobId, *, as_json: JsonOption = False) -> None:
    """Show everything about a job: arguments, every attempt, its end, why it waits, what operators did."""

    async def work(operator: AnyOperator) -> None:
        record = await operator.jobs.show(job_id)
        why = await operator.jobs.why(job_id)
        audit = await operator.audit(subject=f"job {job_id}")
        runners = await operator.jobs.on_runners(job_id)
        if as_json:
            print_json({"job": record, "why": why, "audit": audit, "runners": runners})
            return
        print_story(record, why, audit, await operator.now())
        if runners is not None:
            print_runner_story(runners)
        if await operator.runs.is_run(job_id):
            tell(f"\nIt is a run: its steps and children are in `holdfast runs show {job_id}`")

    operate(context, work)


@app.command()
def wait(
    context: typer.Context,
    job_id: JobId,
    *,
    timeout: Annotated[str | None, typer.Option(help="Give up after so long, such as 30s.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print an object that says how it ended, with the result in it.")
    ] = False,
) -> None:
    """Wait for a job and print its result as JSON; exit 1 if it failed, was cancelled or takes too long."""
    try:
        result = _awaited(invocation(context), job_id, seconds("--timeout", timeout))
    except WaitTimeout as late:
        why = operate(context, lambda operator: operator.jobs.why(job_id))
        raise WaitTimeout(job_id, late.seconds, state=late.state, why=why) from None
    except JobFailed as failed:
        _print_end(job_id, JobState.FAILED, as_json, reason=failed.error)
        raise
    except JobCancelled as cancelled:
        _print_end(job_id, JobState.CANCELLED, as_json, reason=cancelled.reason)
        raise
    if as_json:
        _print_end(job_id, JobState.COMPLETED, as_json, result=result)
    else:
        print_json(result)


def _print_end(
    job_id: int, state: JobState, as_json: bool, *, result: Any = None, reason: str | None = None
) -> None:
    if as_json:
        print_json({"id": job_id, "state": state, "result": result, "reason": reason})


def _awaited(call: Invocation, job_id: int, patience: float | None) -> Any:
    if call.settings().server is not None:
        return served(call, lambda operator: operator.jobs.wait(job_id, timeout=patience))
    config = database_config(call.settings())

    async def work() -> Any:
        async with Client(config.dsn, schema=config.schema, pgbouncer=config.pgbouncer) as client:
            return await client.wait(job_id, timeout=patience)

    return asyncio.run(work())


@app.command()
def logs(
    context: typer.Context,
    job_id: JobId,
    *,
    attempt: Annotated[int | None, typer.Option(help="Of this attempt alone.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, max=100_000, help="Only the last so many lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print what a job has logged."""

    async def work(operator: AnyOperator) -> None:
        if attempt is not None and not follow:
            _check_attempt(await operator.jobs.show(job_id), attempt)
        mark = BEGINNING
        if tail is not None:
            last = await operator.jobs.last_logs(job_id, attempt=attempt, limit=tail)
            for line in last.lines:
                _print_line(line, as_json)
            if not follow:
                return
            mark = last.mark
        async for line in operator.jobs.logs(job_id, attempt=attempt, after=mark, follow=follow):
            _print_line(line, as_json)

    operate(context, work)


def _check_attempt(job: JobRecord, attempt: int) -> None:
    if 1 <= attempt <= job.attempt:
        return
    had = {0: "no attempt yet", 1: "attempt 1 alone"}.get(job.attempt, f"attempts 1 to {job.attempt}")
    raise OptionInvalid("--attempt", attempt, f"job {job.id} has {had}")


def _print_line(line: LogLine, as_json: bool) -> None:
    if as_json:
        print_json_line(
            {
                "attempt": line.fence.attempt,
                "byte_offset": line.byte_offset,
                "at": line.at,
                "level": line.level,
                "line": line.line,
            }
        )
    else:
        # As it was written, colours and all: it is what was asked for.
        typer.echo(f"{clock(line.at)}  #{line.fence.attempt}  {line.level:<8} {line.line}")
