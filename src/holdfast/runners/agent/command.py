"""Makes a program of the arguments of kind ``command``, and a report of its end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import SpecInvalid
from holdfast.model.command import CommandArgs
from holdfast.runners.agent.config import PASSED_ON
from holdfast.runners.agent.messages import Assignment, Outcome, Report
from holdfast.runners.agent.process import Command, ProgramEnd
from holdfast.runners.agent.work import Work

# Where a program is looked for if the runner itself has no PATH.
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(assignment: Assignment, folder: Path, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: little of the runner's *own*, and whose attempt it is."""
    passed = {name: own[name] for name in PASSED_ON if name in own}
    return {
        "PATH": USUAL_PATH,
        **passed,
        "TMPDIR": str(folder / "tmp"),
        "RUNNER_JOB": str(assignment.job),
        "RUNNER_ATTEMPT": str(assignment.attempt),
        "RUNNER_FOLDER": str(folder / "work"),
    }


def make_folders(folder: Path) -> None:
    """Make the folders of one assignment: one to work in, one for temporary files, one for its logs."""
    for name in ("work", "tmp", "logs"):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)


class CommandWork(Work):
    """Kind ``command``: the program is the job."""

    def __init__(
        self,
        assignment: Assignment,
        args: CommandArgs,
        folder: Path,
        own: Mapping[str, str],
        timeout: float,
    ) -> None:
        super().__init__(command_of(assignment, args, folder, own), timeout)
        self.artifacts = args.artifacts
        self.secrets = [args.env[name].encode() for name in args.secrets]

    def report(self, end: ProgramEnd, tail: str, artifacts: list[str]) -> Report:
        """Return what the end means."""
        return report_of(end, tail, artifacts)


def command_of(assignment: Assignment, args: CommandArgs, folder: Path, own: Mapping[str, str]) -> Command:
    """Return the program to run in *folder*; raises `SpecInvalid` where it would leave the folder."""
    work = folder / "work"
    cwd = (work / (args.cwd or ".")).resolve()
    if not cwd.is_relative_to(work.resolve()):
        raise SpecInvalid("arguments-invalid", f"cwd {args.cwd!r} is outside the assignment's folder")
    cwd.mkdir(parents=True, exist_ok=True)
    argv = args.argv if args.script is None else _script(args.script, folder / "script")
    env = environment(assignment, folder, own) | args.env
    return Command(argv=argv or (), cwd=cwd, env=env, stdin=(args.stdin or "").encode())


def _script(script: str, path: Path) -> list[str]:
    path.write_text(script, "utf-8", newline="")
    os.chmod(path, 0o700)
    return [str(path)] if script.startswith("#!") else ["/bin/sh", str(path)]


def result_of(end: ProgramEnd, artifacts: list[str]) -> dict[str, Any]:
    """Return the result of a command."""
    return {
        "exit_code": None if end.code is None or end.code < 0 else end.code,
        "signal": end.signal_name,
        "usage": msgspec.to_builtins(end.usage),
        "orphans": end.orphans,
        "artifacts": artifacts,
    }


def report_of(end: ProgramEnd, tail: str, artifacts: list[str]) -> Report:
    """Return the report of a command that ended by itself; *tail* is the end of what it complained."""
    result = result_of(end, artifacts)
    if end.code == 0:
        return Report(outcome=Outcome.COMPLETED, result=result)
    if end.abandoned:
        reason = "its runner stood still or was cut off for too long, and another one might have begun it"
    elif end.code is None:
        reason = "its keeper was killed (the kernel does that when memory runs out)"
    elif end.code < 0:
        reason = f"killed by {end.signal_name}"
    else:
        reason = f"exit code {end.code}"
    return Report(outcome=Outcome.FAILED, reason=reason, error=tail or reason, result=result)
