"""How log lines look: for people on a terminal, JSON otherwise.

Everything that uses the standard logging module comes out in the same shape: Holdfast, the
application's handlers, libraries.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from holdfast.runtime.logbook import FIELDS


def log_to(stream: TextIO, *, shape: str = "auto", level: str = "info") -> logging.Handler:
    """Send all log lines of this process to *stream*; answers the handler, for tests.

    *shape* is auto, human or json; *level* is the least that is shown.
    """
    human = stream.isatty() if shape == "auto" else shape == "human"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(human=human, colours=human and stream.isatty()))
    handler.setLevel(level.upper())
    root = logging.getLogger()
    root.addHandler(handler)
    # What a handler logs at info is kept with its attempt, however little is shown here.
    root.setLevel(min(handler.level, logging.INFO))
    return handler


def _formatter(*, human: bool, colours: bool) -> logging.Formatter:
    last: Any = (
        structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, pad_level=False)
        if human
        else structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    )
    errors = [] if human else [structlog.processors.format_exc_info]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
            _unfold_people if human else _unfold,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *errors, last],
    )


def _unfold(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name where the line comes from, and put an event's fields beside its sentence."""
    record: logging.LogRecord = line["_record"]
    line["message"] = line.pop("event")
    if not hasattr(record, FIELDS):
        return {**line, "logger": record.name}
    event, facts = getattr(record, FIELDS)
    return {**facts, **line, "event": event}


def _unfold_people(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name where the line comes from; the sentence holds the fields already."""
    record: logging.LogRecord = line["_record"]
    return line if hasattr(record, FIELDS) else {**line, "logger": record.name}
