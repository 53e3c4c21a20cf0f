"""Reads jobs as JSON, the way they come from a command line or a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.app.handler import JobRequest
from holdfast.app.options import LONGEST_KIND, Options, checked_text, resolved
from holdfast.app.registry import App
from holdfast.app.signature import json_text, within
from holdfast.errors import ArgumentsInvalid, InputInvalid, OptionInvalid
from holdfast.model.job import NewJob
from holdfast.model.placement import COMMAND
from holdfast.rules.backoff import backoff_from_json


class JobText(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A job as JSON: its kind, its arguments by name, and the options of an enqueue.

    *timeout* and *delay* are seconds, *run_at* is a time with its zone, *retry* is an object such as
    ``{"kind": "constant", "delay": 30}``.
    """

    kind: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    run_at: datetime | None = None
    delay: float | None = None
    retry: dict[str, Any] | None = None
    unique_key: str | None = None
    unique_policy: str | None = None
    concurrency_key: str | None = None
    tags: list[str] | None = None
    meta: dict[str, Any] | None = None
    parent_id: int | None = None
    trace: str | None = None
    labels: list[str] | None = None
    runner: str | None = None
    pin_for: float | None = None
    on_loss: str | None = None
    stall_limit: float | None = None


def job_text(job: NewJob) -> JobText:
    """Return *job* as JSON with every option said, so that it is read as the same job wherever that is."""
    placement = {} if job.placement is None else msgspec.json.decode(job.placement, type=dict[str, Any])
    return JobText(
        kind=job.kind,
        args=msgspec.json.decode(job.args),
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        run_at=job.run_at,
        delay=job.delay,
        retry=None if job.retry is None else msgspec.json.decode(job.retry),
        unique_key=job.unique_key,
        unique_policy=job.unique_policy if job.unique_key is not None else None,
        concurrency_key=job.concurrency_key,
        tags=job.tags or None,
        meta=msgspec.json.decode(job.meta) or None,
        parent_id=job.parent_id,
        trace=job.trace,
        **placement,
    )


OPTION_NAMES = Options.__struct_fields__


@dataclass(frozen=True, slots=True)
class Intake:
    """Turns JSON into jobs.

    With an *app*, arguments are checked against signatures and kinds have to be known.
    *defaults* are options that hold for what a job does not say itself.
    """

    app: App | None
    defaults: dict[str, Any]

    def read(self, line: bytes) -> NewJob:
        """Return the job that is one JSON object; raises `InputInvalid`, `UnknownKind`."""
        try:
            text = msgspec.json.decode(line, type=JobText)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputInvalid(str(error)) from None
        return self.job(text)

    def job(self, text: JobText) -> NewJob:
        """Return the job that *text* asks for; raises `InputInvalid`, `UnknownKind`."""
        given = {name: value for name in OPTION_NAMES if (value := getattr(text, name)) is not None}
        chosen = self.defaults | given
        # A time of its own overrules the default of the other sort.
        if "run_at" in given and "delay" not in given:
            chosen.pop("delay", None)
        if "delay" in given and "run_at" not in given:
            chosen.pop("run_at", None)
        if isinstance(chosen.get("retry"), dict):
            chosen["retry"] = backoff_from_json(chosen["retry"])
        return resolved(self._request(text), Options(**chosen))

    def _request(self, text: JobText) -> JobRequest:
        # A command is for runners: no application has to know it.
        if self.app is not None and (text.kind != COMMAND or COMMAND in self.app.handlers):
            return self.app.request(text.kind, text.args)
        return unchecked_request(text.kind, text.args)


def unchecked_request(kind: str, args: Mapping[str, Any]) -> JobRequest:
    """Return a request for a kind whose handler is not known here; raises `InputInvalid`."""
    checked_text("kind", kind, most=LONGEST_KIND)
    text = json_text(args, lambda problem: ArgumentsInvalid(kind, problem))
    return JobRequest(kind, within(text, f"arguments of {kind!r}"))


def json_object(option: str, text: str | None) -> dict[str, Any] | None:
    """Return what was given as a JSON object, or None for nothing; raises `OptionInvalid`."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = f"""give a JSON object such as '{{"id": 1}}' ({error})"""
        raise OptionInvalid(option, text, problem) from None
