"""Makes jobs that run a program on a runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.app.handler import JobRequest
from holdfast.app.signature import json_text, within
from holdfast.errors import ArgumentsInvalid
from holdfast.model.command import CommandArgs
from holdfast.model.placement import COMMAND


def command(
    *argv: str,
    script: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: str | None = None,
    artifacts: Sequence[str] = (),
    secrets: Sequence[str] = (),
) -> JobRequest:
    """Return a request to run a program: its words, or a *script* for ``/bin/sh`` (or its own ``#!`` line).

    *env* adds to the runner's minimal environment; *cwd* is a folder below the assignment's own; *artifacts*
    are globs of files to keep; *secrets* name the variables of *env* whose values are masked in the log.
    Raises `ArgumentsInvalid` and `PayloadTooLarge`.
    """
    given = {
        "argv": list(argv) or None,
        "script": script,
        "env": dict(env or {}),
        "cwd": cwd,
        "stdin": stdin,
        # A text is a sequence of texts too, but nobody means its letters.
        "artifacts": artifacts if isinstance(artifacts, str) else list(artifacts),
        "secrets": secrets if isinstance(secrets, str) else list(secrets),
    }
    kept = {name: value for name, value in given.items() if value not in (None, {}, [])}
    try:
        msgspec.convert(kept, CommandArgs)
    except msgspec.ValidationError as error:
        raise ArgumentsInvalid(COMMAND, str(error)) from None
    text = json_text(kept, lambda problem: ArgumentsInvalid(COMMAND, problem))
    return JobRequest(COMMAND, within(text, f"arguments of {COMMAND!r}"))
