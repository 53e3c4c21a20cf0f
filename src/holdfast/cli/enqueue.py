"""`holdfast enqueue`: one job from the command line, or many as JSON lines from stdin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.application import application
from holdfast.cli.context import FAILED, Invocation, invocation
from holdfast.cli.job_options import with_job_options
from holdfast.cli.operating import served
from holdfast.cli.output import JsonOption, print_json, tell
from holdfast.cli.pouring import Pouring
from holdfast.client.intake import Intake, JobText, job_text, json_object
from holdfast.errors import InputInvalid, OptionInvalid
from holdfast.model.job import JobHandle
from holdfast.store import jobs
from holdfast.store.database import Database

if TYPE_CHECKING:
    from holdfast.client.remote.operator import RemoteOperator

STDIN = "-"

Kind = Annotated[str | None, typer.Argument(help="The kind of the job, or - for stdin.")]
Args = Annotated[str, typer.Argument(help="The arguments as a JSON object.", metavar="JSON")]
AppOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="Check kinds and arguments against this application, and take its queues, timeouts and retries.",
    ),
]
StdinOption = Annotated[bool, typer.Option("--stdin", help="Read JSON lines from stdin, as - does.")]
SkipOption = Annotated[bool, typer.Option("--skip-bad", help="Go on after a bad line; exit 1 at the end.")]
AtomicOption = Annotated[bool, typer.Option("--atomic", help="All lines or none, in one transaction.")]


@with_job_options
def enqueue(
    context: typer.Context,
    kind: Kind = None,
    args: Args = "{}",
    *,
    given: dict[str, Any],
    app: AppOption = None,
    stdin: StdinOption = False,
    skip_bad: SkipOption = False,
    atomic: AtomicOption = False,
    as_json: JsonOption = False,
) -> None:
    """Enqueue one job, or one for every line of stdin.

    A line is a JSON object: {"kind": "greet", "args": {"name": "Ada"}, "priority": 1}. It may have any of the
    options below, with _ for - in their names, tags as a list and durations in seconds; options given here
    hold for lines that say nothing else. What nobody says comes from the kind where --app knows it, such as
    the queue of a workflow, and is else as for any job: queue default. Lines go in by thousands. A bad line
    is named by its number; what stands before it is enqueued, and nothing after it.
    """
    call = invocation(context)
    intake = _intake(call, app, given)
    reads = stdin or kind == STDIN
    if stdin and kind not in (None, STDIN):
        raise OptionInvalid("KIND", kind, "leave it out where --stdin is given: each line names its own")
    if kind is not None and not reads:
        _refuse_for_one({"--skip-bad": skip_bad, "--atomic": atomic})
        text = JobText(kind=str(kind), args=json_object("JSON", args) or {})
        say_handle(put_in(call, intake, text), as_json)
        return
    if not reads:
        msg = "name a kind, or - for JSON lines from stdin"
        raise InputInvalid(msg)
    if skip_bad and atomic:
        raise OptionInvalid("--atomic", True, "it cannot be had together with --skip-bad")
    pouring = Pouring(intake, skip_bad=skip_bad, atomic=atomic)
    try:
        _pour(call, pouring)
    finally:
        pouring.report(as_json)
    if pouring.bad:
        raise typer.Exit(FAILED)


def _refuse_for_one(options: dict[str, bool]) -> None:
    """Refuse what is about lines where one job is named."""
    for option, is_given in options.items():
        if is_given:
            raise OptionInvalid(option, True, "it is for JSON lines from stdin: give - in place of the kind")


def _intake(call: Invocation, app: str | None, given: dict[str, Any]) -> Intake:
    address = call.settings(app=app).app
    return Intake(None if address is None else application(address), given)


def put_in(call: Invocation, intake: Intake, text: JobText) -> JobHandle:
    """Enqueue one job, on the database or over the service."""
    job = intake.job(text)

    async def remotely(operator: RemoteOperator) -> JobHandle:
        [handle] = await operator.jobs.enqueue([job_text(job)])
        return handle

    async def locally(database: Database) -> JobHandle:
        [handle] = await database.run(jobs.enqueue_jobs([job]))
        return handle

    return served(call, remotely) if call.settings().server is not None else call.run(locally)


def say_handle(handle: JobHandle, as_json: bool) -> None:
    """Print the id of a job, and whether it is new."""
    if as_json:
        print_json(handle)
    else:
        tell(f"job {handle.id}" + ("" if handle.status == "new" else f" ({handle.status})"))


def _pour(call: Invocation, pouring: Pouring) -> None:
    if call.settings().server is None and pouring.atomic:
        # Its one transaction waits for whoever writes the lines, however long that takes.
        call.run(pouring.pour_locally, idle_timeout=0.0)
    elif call.settings().server is None:
        call.run(pouring.pour_locally)
    elif pouring.atomic:
        wanted = "leave it out: over a server each batch is a transaction of its own"
        raise OptionInvalid("--atomic", True, wanted)
    else:
        served(call, pouring.pour_remotely)
