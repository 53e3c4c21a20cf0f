"""What stands for the value of an option in ``--help``, where its type would only say that it is text."""

from __future__ import annotations

from typing import Any

_OPTIONS = {
    "DURATION": (
        "delay",
        "expires",
        "grace",
        "idle_exit",
        "pin_for",
        "poll",
        "stall_limit",
        "timeout",
        "ttl",
    ),
    "N": ("attempt", "depth", "jobs", "limit", "place", "prefetch", "processes", "slots", "tail"),
    "PORT": ("http_port", "metrics_port"),
    "HOST": ("http_host", "metrics_host"),
    "FOLDER": ("folder", "out"),
    "NAME": ("by", "endpoint", "name", "queue", "schema"),
    "NAMES": ("queues",),
    "KIND": ("kind",),
    "LABEL": ("label",),
    "FORMAT": ("log_format",),
    "LEVEL": ("log_level",),
    "QUEUE=N": ("capacity",),
    "TEXT": ("subject",),
    "URL": ("database_url",),
    "MODULE:NAME": ("app",),
}
METAVARS = {option: metavar for metavar, options in _OPTIONS.items() for option in options}


def name_values(command: Any) -> None:
    """Put a metavar at each option of *command*, and of the commands in it, that has none of its own."""
    for option in command.params:
        if option.param_type_name == "option" and not option.is_flag and option.metavar is None:
            option.metavar = METAVARS.get(option.name)
    for below in getattr(command, "commands", {}).values():
        name_values(below)
