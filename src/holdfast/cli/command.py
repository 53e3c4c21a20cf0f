"""`holdfast command`: runs a program on a runner, and follows it as if it ran here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.app.command import command as command_request
from holdfast.cli.context import DONE, FAILED, invocation
from holdfast.cli.enqueue import put_in, say_handle
from holdfast.cli.job_options import with_job_options
from holdfast.cli.operating import AnyOperator, operate
from holdfast.cli.output import JsonOption, tell
from holdfast.client.intake import Intake, JobText
from holdfast.errors import HoldfastError, OptionInvalid
from holdfast.model.assignment import RunnerStory
from holdfast.model.job import JobRecord, JobState
from holdfast.model.placement import COMMAND
from holdfast.store.logs import LogLine

OUTPUT = "stdout"
# After so many seconds whoever follows is told why nothing happens.
LONG_WAIT = 3.0


@with_job_options
def command(
    context: typer.Context,
    argv: Annotated[
        list[str] | None, typer.Argument(help="The program and its arguments.", metavar="ARGV...")
    ] = None,
    *,
    given: dict[str, Any],
    script: Annotated[
        Path | None, typer.Option(help="Run this script instead of a program; - is stdin.", metavar="FILE")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="A variable for it; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="A variable of this process, passed on and masked in the log.", metavar="NAME"),
    ] = None,
    cwd: Annotated[str | None, typer.Option(help="A folder below its own.", metavar="FOLDER")] = None,
    artifact: Annotated[
        list[str] | None, typer.Option(help="Files to keep; may be repeated.", metavar="GLOB")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print its output as it comes, and exit as it does.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Have a runner run a program: holdfast command --label gpu --follow -- make test.

    Options of Holdfast stand before the program. It is tried once, unless --max-attempts says otherwise.
    With --follow the output goes where it went there, stdout or stderr, and the exit code is the program's;
    1 where it has none, because the job was cancelled or its runner lost. An interrupt here does not
    end the program: `holdfast jobs cancel ID` does.
    """
    call = invocation(context)
    request = command_request(
        *(argv or ()),
        script=None if script is None else _script(script),
        env=_variables(env or ()) | _secrets(secret or ()),
        cwd=cwd,
        artifacts=artifact or (),
        secrets=secret or (),
    )
    text = JobText(kind=COMMAND, args=msgspec.json.decode(request.args))
    handle = put_in(call, Intake(None, {"max_attempts": 1} | given), text)
    if not follow:
        say_handle(handle, as_json)
        return
    tell(f"job {handle.id}", err=True)
    raise typer.Exit(operate(context, lambda operator: _followed(operator, handle.id)))


def _script(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionInvalid("--script", str(path), f"it cannot be read: {error}") from None


def _variables(given: Sequence[str]) -> dict[str, str]:
    for one in given:
        if "=" not in one:
            raise OptionInvalid("--env", one, "give NAME=VALUE")
    return dict(one.split("=", 1) for one in given)


def _secrets(names: Sequence[str]) -> dict[str, str]:
    # Their values never stand on a command line, which everybody on the machine can read.
    for name in names:
        if name not in os.environ:
            raise OptionInvalid("--secret", name, "set the variable of that name first")
    return {name: os.environ[name] for name in names}


async def _followed(operator: AnyOperator, job_id: int) -> int:
    """Print what the program writes until it has ended; answers its exit code."""
    telling = asyncio.create_task(_tell_why(operator, job_id))
    try:
        async for line in operator.jobs.logs(job_id, follow=True):
            _print_line(line)
    finally:
        telling.cancel()
    record = await operator.jobs.show(job_id)
    code = _exit_code(record, await operator.jobs.on_runners(job_id))
    if record.state is not JobState.COMPLETED:
        tell(f"job {job_id} {record.state}: {record.reason or record.error or 'no reason'}", err=True)
    return code


async def _tell_why(operator: AnyOperator, job_id: int) -> None:
    """Say once why the job waits, where no runner has taken it for a while."""
    await asyncio.sleep(LONG_WAIT)
    # It is told besides: whatever keeps it from being told keeps nobody from following.
    with suppress(HoldfastError):
        why = await operator.jobs.why(job_id)
        if why is not None:
            tell(f"job {job_id} waits: {why}", err=True)


def _print_line(line: LogLine) -> None:
    stream = sys.stdout if line.level == OUTPUT else sys.stderr
    stream.write(f"{line.line}\n")
    stream.flush()


def _exit_code(record: JobRecord, story: RunnerStory | None) -> int:
    """Return the code of the program, or what the end of its job comes to."""
    if record.state is JobState.COMPLETED:
        return DONE
    last = None if story is None or not story.assignments else story.assignments[-1].report
    result = None if last is None or record.state is JobState.CANCELLED else last.get("result")
    code = result.get("exit_code") if isinstance(result, dict) else None
    return code if isinstance(code, int) and 0 < code < 256 else FAILED
