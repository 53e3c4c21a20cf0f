"""Turns events into log lines.  All wording of the log lives here.

Whoever emits an event only gives facts; this subscriber knows how loud each is and how it reads.  A
line goes to the standard logging module with the event's name and its fields beside the sentence, see
`runtime.console` for how it looks.  An event without a line here is logged by its bare name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model.outcome import Complete, Fail, PutBack, Stop, Suspend, Transition
from holdfast.runtime.outage import Outage

LOGGER = "holdfast.events"
FIELDS = "holdfast_fields"

_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

# What nearly all attempts come to.
_PLAIN_END = _DEBUG, "has ended"


@dataclass(frozen=True, slots=True)
class Line:
    """How loud an event is and how it reads; the sentence may use the event's fields."""

    level: int
    sentence: str


LINES: Mapping[str, Line] = {
    # The worker
    "worker.registered": Line(_INFO, "worker {worker_id} ({name}) is online"),
    "queues.unused": Line(
        _WARNING, "no kind of the application belongs to {queues}: is that the right queue?"
    ),
    "worker.draining": Line(_INFO, "worker {worker_id} takes nothing new and finishes what it has"),
    "worker.stopping": Line(_DEBUG, "worker {worker_id} waits up to {grace:g} s for what it has"),
    "worker.left_behind": Line(
        _WARNING, "worker {worker_id} leaves {held} attempts behind: a rescue gives their jobs back"
    ),
    "worker.stopped": Line(_INFO, "worker {worker_id} has stopped"),
    "worker.lost": Line(_WARNING, "worker {worker_id} has not renewed its lease and counts as lost"),
    "stop.requested": Line(_INFO, "{signal}: no new claims; running jobs have {grace:g} s"),
    "stop.hurried": Line(_WARNING, "{signal} again: running jobs are handed back now"),
    "lease.renewed": Line(_DEBUG, "the lease of worker {worker_id} is renewed"),
    "lease.delayed": Line(_WARNING, "the lease of worker {worker_id} could not be renewed: {error}"),
    "lease.abandoned": Line(
        _ERROR,
        "the event loop has stood still for {seconds:.0f} s: worker {worker_id} does not renew its lease",
    ),
    "lease.lost": Line(
        _ERROR, "worker {worker_id} was declared lost: its {held} attempts are stopped, it begins anew"
    ),
    # Jobs
    "attempt.started": Line(_DEBUG, "job {job_id} ({kind}) begins attempt {attempt}"),
    "attempts.reported": Line(_DEBUG, "{accepted} outcomes are recorded"),
    "attempts.stale": Line(
        _WARNING, "the outcomes of {fences} came too late: another attempt owns the job now"
    ),
    "report.delayed": Line(
        _WARNING, "{attempts} outcomes could not be recorded, next try in {retry_in:.1f} s: {error}"
    ),
    "report.failed": Line(
        _ERROR,
        "outcomes could not be recorded for a reason nobody foresaw, next try in {retry_in:.1f} s: {error}",
    ),
    "steps.delayed": Line(
        _WARNING, "what {runs} runs did could not be recorded, next try in {retry_in:.1f} s: {error}"
    ),
    "steps.refused": Line(_ERROR, "what {runs} runs did could not be recorded, their attempts end: {error}"),
    "jobs.claimed": Line(_DEBUG, "{count} jobs are claimed"),
    "cancel.delivered": Line(_INFO, "attempt {fence} is asked to stop: its job was cancelled"),
    "slots.stuck": Line(
        _WARNING, "{count} handlers do not let themselves be cancelled: they end with the process"
    ),
    "slot.failed": Line(
        _ERROR, "a slot failed for a reason nobody foresaw, and another one takes its place: {error}"
    ),
    "log.lost": Line(_WARNING, "{lines} lines of jobs' logs are lost: {error}"),
    # Runners
    "runner.registered": Line(_INFO, "runner {runner} (worker {worker_id}) is registered, term {term}"),
    "runner.left": Line(_INFO, "runner {runner} (worker {worker_id}) has left"),
    "assignments.offered": Line(_DEBUG, "{count} jobs are offered to runners"),
    "assignments.ended": Line(_DEBUG, "{count} assignments have ended: {outcomes}"),
    # The leader
    "leader.changed": Line(_INFO, "this process {leads} (term {term})"),
    "jobs.staged": Line(_DEBUG, "{count} due jobs are available now"),
    "jobs.rescued": Line(_WARNING, "{rescued} jobs are rescued from lost workers"),
    "assignments.taken": Line(_WARNING, "{count} jobs are taken from their runners: {fates}"),
    "jobs.pruned": Line(_INFO, "{count} ended jobs are past their retention and deleted"),
    "jobs.unknown": Line(_ERROR, "{count} jobs of {kind} in {queue} have failed: no worker knows their kind"),
    "leader.not_resigned": Line(
        _WARNING, "term {term} could not be resigned, it runs out by itself: {error}"
    ),
    "partition.tended": Line(_DEBUG, "partition {partition}: {fate}"),
    "queues.counted": Line(_DEBUG, "all jobs are counted, in {seconds:.3f} s"),
    "schedule.fired": Line(_INFO, "schedule {schedule} made jobs {job_ids} ({skipped} ticks skipped)"),
    "schedule.invalid": Line(_ERROR, "schedule {schedule} does not fire: {error}"),
    "deliveries.held": Line(
        _WARNING, "for {seconds:.0f} s no endpoint is told anything: {writers} may write an end of then"
    ),
    "deliveries.made": Line(_DEBUG, "{count} jobs carry deliveries out"),
    "notes.dropped": Line(_WARNING, "{count} notes of an engine are lost: {error}"),
    "schedule.stored": Line(_INFO, "schedule {schedule} is stored"),
    # A runner
    "runner.drained": Line(_INFO, "an operator drains this runner: it gets nothing new"),
    "runner.undrained": Line(_INFO, "this runner is not drained any more"),
    "runner.refused": Line(_ERROR, "this runner is not wanted: {error}"),
    "runner.rests": Line(_WARNING, "this runner begins nothing for {seconds:g} s: {error}"),
    "runner.stopped": Line(_INFO, "runner {runner} has stopped"),
    "server.unreachable": Line(
        _WARNING, "the server does not answer ({failures} times so far): work goes on, {error}"
    ),
    "server.reached": Line(_INFO, "the server answers again after {seconds:.1f} s"),
    "sync.refused": Line(_WARNING, "the server does not want an assignment held: {truth}"),
    "sync.shortened": Line(_WARNING, "no sync carries these {count} ends, each is told by itself: {error}"),
    "assignment.begun": Line(_INFO, "assignment {fence} ({kind}) begins"),
    "program.ended": Line(_DEBUG, "the program of {fence} ended with {code} and left {orphans} running"),
    "assignment.ended": Line(_INFO, "assignment {fence} ({kind}) has ended: {outcome}"),
    "assignment.stopping": Line(_INFO, "assignment {fence} is being stopped: {rung}"),
    "assignment.lost": Line(_WARNING, "assignment {fence} is not this runner's any more: it is stopped"),
    "assignment.broken": Line(_ERROR, "assignment {fence} failed for a reason nobody foresaw: {error}"),
    "cancel.heard": Line(_INFO, "assignment {fence} is cancelled: {reason}"),
    "logs.delayed": Line(_DEBUG, "output of {fence} waits on disk, next try in {retry_in:.1f} s: {error}"),
    "logs.dropped": Line(_WARNING, "{bytes} bytes of {stream} of {fence} are lost: too much waited"),
    "logs.refused": Line(_WARNING, "output of {fence} is not wanted: {error}"),
    "logs.shipped": Line(_DEBUG, "{bytes} bytes of {stream} are with the server"),
    "report.postponed": Line(
        _WARNING, "the end of {fence} could not be reported, next try in {retry_in:.1f} s: {error}"
    ),
    "report.unkept": Line(
        _WARNING, "the end of {fence} is told, but could not be kept on disk before: {error}"
    ),
    "report.refused": Line(_WARNING, "the end of {fence} is not wanted: {error}"),
    # The process
    "service.failed": Line(_WARNING, "{service} failed and tries again in {retry_in:.1f} s: {error}"),
    "listen.connected": Line(_DEBUG, "notifications are heard"),
    "listen.lost": Line(_WARNING, "the connection for notifications is lost: polling until it is back"),
    "database.awaited": Line(_WARNING, "waiting for the database, next try in {retry_in:.1f} s: {error}"),
    "metrics.served": Line(_INFO, "metrics are on {address}"),
    "web.served": Line(_INFO, "the service is on {address}"),
    "request.ended": Line(_DEBUG, "{method} {route}: {status} after {seconds:.3f} s"),
    "request.failed": Line(_ERROR, "a request for {path} failed: {error}"),
    "process.started": Line(_INFO, "process {number} started as pid {pid}"),
    "process.died": Line(
        _ERROR, "process {number} (pid {pid}) {end}: it is started again in {retry_in:.1f} s"
    ),
    "process.unstarted": Line(
        _ERROR, "process {number} could not be started, next try in {retry_in:.1f} s: {error}"
    ),
    "process.ended": Line(_INFO, "process {number} (pid {pid}) {end}"),
    "process.killed": Line(_WARNING, "process {number} (pid {pid}) did not stop in time and is killed"),
}


class Logbook:
    """A subscriber that writes every event to the standard logging module."""

    def __init__(
        self, logger: logging.Logger | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger or logging.getLogger(LOGGER)
        self._renewals = Outage(clock)
        self._special = {
            "attempt.ended": self._attempt_ended,
            "lease.renewed": self._lease_renewed,
            "lease.delayed": self._lease_delayed,
        }

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        write = self._special.get(event, self._write)
        write(event, fields)

    def _write(self, event: str, fields: dict[str, Any], ending: str = "") -> None:
        line = LINES.get(event)
        level = _INFO if line is None else line.level
        if self._logger.isEnabledFor(level):
            facts = plain(fields)
            sentence = event if line is None else line.sentence.format_map(facts)
            self._logger.log(level, "%s", sentence + ending, extra={FIELDS: (event, facts)})

    def _lease_renewed(self, event: str, fields: dict[str, Any]) -> None:
        self._renewals.ended()
        self._write(event, fields)

    def _lease_delayed(self, event: str, fields: dict[str, Any]) -> None:
        # Tried again every second: an outage of an hour would be a log of its own.
        failures = self._renewals.failed()
        if failures is not None:
            so_far = f" ({failures} failures so far)" if failures > 1 else ""
            self._write(event, fields | {"failures": failures}, so_far)

    def _attempt_ended(self, event: str, fields: dict[str, Any]) -> None:
        decision = fields["decision"]
        level, end = _PLAIN_END if decision is None or type(decision) is Complete else _ending(decision)
        if self._logger.isEnabledFor(level):
            facts = plain(fields)
            sentence = f"job {facts['job_id']} ({facts['kind']}) {end} in attempt {facts['attempt']}"
            self._logger.log(level, "%s", sentence, extra={FIELDS: (event, facts)})


def _ending(decision: Transition) -> tuple[int, str]:
    match decision:
        case Fail(_, reason):
            return _ERROR, f"has failed ({reason})"
        case Stop(reason):
            return _INFO, f"is cancelled ({reason})"
        case PutBack(outcome, delay, True, reason):
            return _WARNING, f"is {outcome} in {delay:.1f} s ({reason})"
        case PutBack(outcome, _, _, reason):
            return _DEBUG, f"is {outcome} ({reason})"
        case Suspend(reason, paused=True):
            return _WARNING, f"waits until somebody resumes it ({reason})"
        case Suspend(reason):
            return _DEBUG, f"is suspended ({reason})"
    return _PLAIN_END


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as values that a log line can hold."""
    facts: dict[str, Any] = {}
    for name, value in fields.items():
        match name:
            case "running":
                claimed = value.claimed
                facts |= {"job_id": claimed.id, "kind": claimed.kind, "attempt": claimed.attempt}
                facts["seconds"] = round(value.seconds, 6)
            case "decision" | "batch" | "stale":
                continue
            case "rescued":
                facts |= {"rescued": len(value), "jobs": [one.job_id for one in value[:20]]}
            case "fences":
                facts["fences"] = ", ".join(_fence(fence) for fence in value[:20])
            case "fence":
                facts["fence"] = _fence(value)
            case "leads":
                facts["leads"] = "leads now" if value else "does not lead any more"
            case _:
                facts[name] = _plain_value(value)
    return facts


def _fence(fence: Any) -> str:
    return f"{fence.job_id}/{fence.attempt}"


def _plain_value(value: Any) -> Any:
    if isinstance(value, BaseException):
        return " ".join(f"{type(value).__name__}: {value}".split())[:500]
    if value is None or isinstance(value, (str, int, float, list, tuple)):
        return value
    return str(value)
