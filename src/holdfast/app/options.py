"""Checks the options of an enqueue and makes the row that goes into the database."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.app.handler import JobRequest, Policy
from holdfast.app.keywords import EnqueueOptions, check_names
from holdfast.app.signature import json_text, within
from holdfast.errors import InputInvalid, OptionInvalid
from holdfast.model.job import NewJob, UniquePolicy
from holdfast.model.placement import OnLoss, Placement
from holdfast.rules.backoff import Backoff

LARGEST_ID = 2**63 - 1
LONGEST_KIND = 200
LONGEST_SECONDS = 10 * 365 * 24 * 3600.0
MAX_META_BYTES = 64 * 1024
MAX_TAGS = 50


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one job is to be run; what is None comes from its kind's policy.

    *delay* and *timeout* are timedeltas or seconds; *delay* counts from the database's now.  With any of
    the last five only runners may take the job: see `holdfast.model.placement.Placement`.
    """

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: timedelta | float | None = None
    run_at: datetime | None = None
    delay: timedelta | float | None = None
    retry: Backoff | None = None
    unique_key: str | None = None
    unique_policy: str = "keep"
    concurrency_key: str | None = None
    tags: Sequence[str] = ()
    meta: dict[str, Any] | None = None
    parent_id: int | None = None
    trace: str | None = None
    labels: Sequence[str] | None = None
    runner: str | None = None
    pin_for: timedelta | float | None = None
    on_loss: str | None = None
    stall_limit: timedelta | float | None = None


NOTHING = Options()


def chosen(keywords: Mapping[str, Any], known: Collection[str] = EnqueueOptions.__annotations__) -> Options:
    """Return the keywords of a call as options; raises `OptionInvalid` for a name that is none of *known*."""
    check_names(keywords, known)
    return Options(**keywords) if keywords else NOTHING


def resolved(request: JobRequest, options: Options = NOTHING) -> NewJob:
    """Return the row for *request* under *options* and its own, which come first.

    Raises `OptionInvalid` naming what is wrong.
    """
    if not isinstance(request, JobRequest):
        raise OptionInvalid("request", request, "give what the handler's .job(...) returns")
    policy = request.policy
    if request.own is not None:
        options = _merged(options, request.own)
    elif options is NOTHING:
        return _plain(request, policy)
    if options.run_at is not None and options.delay is not None:
        raise OptionInvalid("delay", options.delay, "give either run_at or delay")
    return NewJob(
        kind=request.kind,
        args=request.args,
        queue=checked_text("queue", policy.queue if options.queue is None else options.queue, most=100),
        priority=_priority(policy.priority if options.priority is None else options.priority),
        max_attempts=_max_attempts(
            policy.max_attempts if options.max_attempts is None else options.max_attempts
        ),
        timeout=seconds_from(
            "timeout", policy.timeout if options.timeout is None else options.timeout, least=0.001
        ),
        run_at=_aware("run_at", options.run_at),
        delay=None if options.delay is None else seconds_from("delay", options.delay),
        retry=None if options.retry is None else _stored(checked_backoff(options.retry)),
        unique_key=_optional("unique_key", options.unique_key),
        unique_policy=_unique_policy(options.unique_policy),
        concurrency_key=_optional("concurrency_key", options.concurrency_key),
        tags=_tags(options.tags),
        meta=_meta(options.meta),
        parent_id=None if options.parent_id is None else whole_number("parent_id", options.parent_id),
        trace=_optional("trace", options.trace),
        placement=_placement(request, options),
    )


def resolved_each(requests: Iterable[JobRequest], options: Options = NOTHING) -> Iterator[NewJob]:
    """Give the rows for many requests under *options*; what neighbours share is checked once."""
    last: tuple[JobRequest, NewJob] | None = None
    for request in requests:
        if (
            last is not None
            and type(request) is JobRequest
            and request.policy is last[0].policy
            and request.kind == last[0].kind
            and request.own is last[0].own
        ):
            job = msgspec.structs.replace(last[1], args=request.args)
        else:
            job = resolved(request, options)
        yield job
        last = request, job


def several(requests: Iterable[JobRequest]) -> Iterable[JobRequest]:
    """Return *requests* if there may be several; raises `InputInvalid` for one that stands alone."""
    if isinstance(requests, Iterable):
        return requests
    found = type(requests).__name__
    msg = f"enqueue_many takes a list of requests, not one {found}: write [request], or call enqueue"
    raise InputInvalid(msg)


def _merged(options: Options, own: Mapping[str, Any]) -> Options:
    # A job has one moment: its own delay takes the place of a run_at for all.
    moment = {"run_at": None, "delay": None} if own.keys() & {"run_at", "delay"} else {}
    return msgspec.structs.replace(options, **{**moment, **own})


def _plain(request: JobRequest, policy: Policy) -> NewJob:
    return NewJob(
        kind=request.kind,
        args=request.args,
        queue=checked_text("queue", policy.queue, most=100),
        priority=_priority(policy.priority),
        max_attempts=_max_attempts(policy.max_attempts),
        timeout=policy.timeout.total_seconds(),
    )


def check_policy(policy: Policy) -> None:
    """Raise `OptionInvalid` for what no job can have, before the first one is enqueued or fails."""
    checked_text("queue", policy.queue, most=100)
    _priority(policy.priority)
    _max_attempts(policy.max_attempts)
    seconds_from("timeout", policy.timeout, least=0.001)
    checked_backoff(policy.retry)


def seconds_from(option: str, value: timedelta | float, *, least: float = 0.0) -> float:
    """Return a duration in seconds; it must be a finite number between *least* and ten years."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    # Not isfinite(): an int may be too large for a float.
    if not is_number or not -math.inf < seconds < math.inf:
        raise OptionInvalid(option, value, "give a timedelta or a number of seconds")
    if not least <= seconds <= LONGEST_SECONDS:
        raise OptionInvalid(option, value, f"it must lie between {least:g} seconds and ten years")
    return float(seconds)


def checked_text(option: str, value: object, *, most: int = 500) -> str:
    """Return *value* if it is a string for PostgreSQL: not empty, at most *most* characters."""
    if not isinstance(value, str) or not value:
        raise OptionInvalid(option, value, "give a string that is not empty")
    if len(value) > most:
        raise OptionInvalid(option, value, f"it has {len(value)} characters and may have {most}")
    if "\x00" in value:
        raise OptionInvalid(option, value, "it holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionInvalid(
            option, ascii(value), "it holds half of a surrogate pair: it is no valid Unicode"
        ) from None
    return value


def _optional(option: str, value: str | None) -> str | None:
    return None if value is None else checked_text(option, value)


def whole_number(option: str, value: object, *, least: int = 1, most: int = LARGEST_ID) -> int:
    """Return *value* if it is a whole number from *least* to *most*."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionInvalid(option, value, f"give a whole number from {least} to {most}")
    return value


def _priority(value: object) -> int:
    return whole_number("priority", value, least=0, most=9)


def _max_attempts(value: object) -> int:
    return whole_number("max_attempts", value, most=10_000)


def _aware(option: str, value: datetime | None) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise OptionInvalid(option, value, "give a datetime with a time zone, such as datetime.now(UTC)")
    return in_utc(option, value)


def in_utc(option: str, value: datetime) -> datetime:
    """Return a time with a zone in UTC; raises `OptionInvalid` where that has none like it."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        wanted = "it lies outside the years 1 to 9999 in UTC"
        raise OptionInvalid(option, value.isoformat(), wanted) from None


def checked_backoff(value: object) -> Backoff:
    """Return *value* if it says how long to rest after a failure."""
    if not isinstance(value, Backoff):
        raise OptionInvalid(
            "retry", value, "give Exponential, Linear or Constant, or Custom for a kind or a step"
        )
    return value


def _stored(retry: Backoff) -> str:
    return msgspec.json.encode(retry.to_json()).decode()


def _unique_policy(value: str) -> UniquePolicy:
    try:
        return UniquePolicy(value)
    except ValueError:
        raise OptionInvalid("unique_policy", value, "use keep, replace or reject") from None


def _placement(request: JobRequest, options: Options) -> str | None:
    """Return what the job asks of runners, as JSON; None where any worker may take it."""
    given = (options.labels, options.runner, options.pin_for, options.on_loss, options.stall_limit)
    if all(one is None for one in given):
        return None
    if request.is_run:
        raise OptionInvalid("labels", options.labels, "a workflow needs the database: no runner can take it")
    if options.pin_for is not None and options.runner is None:
        raise OptionInvalid("pin_for", options.pin_for, "name the runner as well")
    placement = Placement(
        labels=tuple(sorted(set(_names("labels", options.labels or ())))),
        runner=_optional("runner", options.runner),
        pin_for=None if options.pin_for is None else seconds_from("pin_for", options.pin_for),
        on_loss=_on_loss(options.on_loss),
        stall_limit=None
        if options.stall_limit is None
        else seconds_from("stall_limit", options.stall_limit, least=1),
    )
    return msgspec.json.encode(placement).decode()


def _on_loss(value: str | None) -> OnLoss:
    try:
        return OnLoss.RETRY if value is None else OnLoss(value)
    except ValueError:
        raise OptionInvalid("on_loss", value, "use retry, fail or hold") from None


def _tags(tags: Sequence[str]) -> list[str]:
    return _names("tags", tags)


def _names(option: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, (str, bytes)) or not isinstance(names, (Sequence, Set)) or len(names) > MAX_TAGS:
        raise OptionInvalid(option, names, f"give a list of at most {MAX_TAGS} strings")
    return [checked_text(option, name, most=100) for name in names]


def _meta(meta: dict[str, Any] | None) -> str:
    if meta is None:
        return "{}"
    if not isinstance(meta, dict):
        raise OptionInvalid("meta", meta, "give a dictionary")
    text = json_text(meta, lambda problem: OptionInvalid("meta", "…", problem))
    return within(text, "meta", MAX_META_BYTES)
