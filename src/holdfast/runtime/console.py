"""How log lines look: for people on a terminal, JSON otherwise.

Everything that uses the standard logging module comes out in the same shape: Holdfast, the
application's handlers, libraries.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from holdfast.rules.telling import shown
from holdfast.runtime.logbook import FIELDS


def log_to(stream: TextIO, *, shape: str = "auto", level: str = "info") -> logging.Handler:
    """Send all log lines of this process to *stream*; answers the handler, for tests.

    *shape* is auto, human or json; *level* is the least that is shown.
    """
    human = stream.isatty() if shape == "auto" else shape == "human"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines_for_people(colours=stream.isatty()) if human else JsonLines())
    handler.setLevel(level.upper())
    root = logging.getLogger()
    root.addHandler(handler)
    # What a handler logs at info is kept with its attempt, however little is shown here.
    root.setLevel(min(handler.level, logging.INFO))
    return handler


class JsonLines(logging.Formatter):
    """One JSON object a line: timestamp, level, message; an event adds its name and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of *record*."""
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if hasattr(record, FIELDS):
            event, facts = getattr(record, FIELDS)
            line = {**line, "event": event, **{name: facts[name] for name in facts if name not in line}}
        else:
            line |= {"logger": record.name, **_job_of(record)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        told = {name: _unicode(value) for name, value in line.items()}
        return msgspec.json.encode(told, enc_hook=str).decode()


def _unicode(value: Any) -> Any:
    """Return a text with escapes for what is no valid Unicode, such as a byte of a file's name."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def lines_for_people(*, colours: bool) -> logging.Formatter:
    """Return a formatter for a terminal: time, level, sentence."""
    # Imported only where somebody watches: it would be a tenth of an idle worker's memory.
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            _name_the_logger,
            _escape,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.dev.ConsoleRenderer(
                colors=colours,
                pad_event_to=0,
                pad_level=False,
                # Where rich is installed the default one prints what is in every frame's variables.
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ],
    )


def _name_the_logger(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Say whose line it is; the sentence of an event says enough."""
    record: logging.LogRecord = line["_record"]
    return line if hasattr(record, FIELDS) else {**line, "logger": record.name, **_job_of(record)}


def _escape(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Let nothing that a job or a server says reach the terminal as a command; an application may colour."""
    if hasattr(line["_record"], FIELDS):
        line["event"] = shown(line["event"])
    return line


def _job_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what `Job.log` says of the job whose handler wrote *record*."""
    return {name: getattr(record, name) for name in ("job_id", "kind", "attempt") if hasattr(record, name)}
