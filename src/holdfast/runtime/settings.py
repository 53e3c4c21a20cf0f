"""Every setting of Holdfast: where it may come from, what it may be, what it is where nobody sets it.

The sources in rising order: the file ``holdfast.toml`` (in the working folder, or named by ``--config``
or ``HOLDFAST_CONFIG``), the variables ``HOLDFAST_<NAME>`` of the environment, the flags of a command.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.errors import SettingInvalid
from holdfast.runtime.values import (
    Rule,
    duration,
    host,
    matching,
    networks,
    one_of,
    server_address,
    size,
    switch,
    text,
    whole,
    words,
)

DEFAULT_FILE = "holdfast.toml"
PREFIX = "HOLDFAST_"
CONFIG_VARIABLE = "HOLDFAST_CONFIG"
DEFAULT = "default"
DAY = 86_400.0
MIB = 1024 * 1024

_URL = r"(?s)postgres(ql)?://.*"
# What Kubernetes puts into every container for a Service called holdfast or holdfast-...: nobody set these.
_LINK = re.compile(
    r"HOLDFAST_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)"
)
# One of these may be spelled as a setting is, such as HOLDFAST_HTTP_PORT; its value tells them apart.
_LINKED_PORT = re.compile(r"HOLDFAST_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://.*")


def _setting(default: Any, rule: Rule, about: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"rule": rule, "about": about, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings with their values; durations are in seconds."""

    database_url: str | None = _setting(
        None,
        matching(_URL, "an address such as postgresql://user@host/name"),
        "where PostgreSQL is",
        secret=True,
    )
    schema: str = _setting(
        "holdfast",
        matching(
            r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,62}",
            "at most 63 lower-case letters, digits and _, not pg_...",
        ),
        "the schema of this environment; several live side by side in one database",
    )
    pgbouncer: bool = _setting(False, switch(), "the address is that of a pooler, such as PgBouncer")
    app: str | None = _setting(
        None,
        matching(r"[\w.]+:[\w.]+", "module:name of a holdfast.App"),
        "the application whose kinds are run",
    )
    queues: tuple[str, ...] = _setting(
        (), words(), "queues to work on, which take turns; all of the application if unset"
    )
    slots: int = _setting(10, whole(1, 10_000), "handlers that run at once in one worker process")
    processes: int = _setting(1, whole(1, 256), "worker processes under one command")
    name: str | None = _setting(None, text(), "the name of the worker; made of host, pid and chance if unset")
    labels: tuple[str, ...] = _setting((), words(), "labels of the worker")
    ttl: float = _setting(30.0, duration(1), "how long a lease lasts without renewal")
    poll: float = _setting(5.0, duration(0.05), "how often a worker looks for jobs that nobody told it of")
    grace: float = _setting(30.0, duration(0), "how long running jobs may go on after a stop is asked for")
    prefetch: int = _setting(4000, whole(0, 100_000), "the most jobs claimed beyond the slots")
    listen: bool = _setting(True, switch(), "wake up by LISTEN; never through a pooler")
    metrics_port: int | None = _setting(
        None, whole(1, 65_535), "serve metrics on this port; nothing if unset"
    )
    metrics_host: str = _setting("127.0.0.1", host(), "the address on which metrics are served")
    retention_completed: float = _setting(14 * DAY, duration(DAY), "how long completed jobs are kept")
    retention_failed: float = _setting(30 * DAY, duration(DAY), "how long failed and cancelled jobs are kept")
    retention_logs: float = _setting(30 * DAY, duration(DAY), "how long log lines are kept at most")
    unknown_grace: float = _setting(
        3600.0, duration(0), "how long a job may wait for a worker that knows its kind"
    )
    log_format: str = _setting(
        "auto",
        one_of("auto", "human", "json"),
        "the shape of log lines; auto is human on a terminal, else json",
    )
    log_level: str = _setting(
        "info", one_of("debug", "info", "warning", "error"), "the least level that is logged"
    )
    folder: str = _setting(".holdfast", text(), "where `holdfast up` keeps its embedded PostgreSQL")
    http_host: str = _setting("127.0.0.1", host(), "the address on which the service listens")
    http_port: int = _setting(8700, whole(0, 65_535), "the port of the service; 0 takes a free one")
    http_rate: int = _setting(500, whole(1, 1_000_000), "requests a second that the service takes per token")
    http_proxies: tuple[str, ...] = _setting(
        (), networks(), "proxies whose X-Forwarded-For the service believes"
    )
    runner_lost_after: float = _setting(
        120.0, duration(5), "how long a runner may be silent before it is lost and its jobs are taken from it"
    )
    log_limit: int = _setting(
        64 * MIB, size(1024), "the most bytes of log that runners may write for one job; the rest is cut off"
    )
    deliveries_private: bool = _setting(
        False, switch(), "deliveries may go to this machine and to private networks"
    )
    server: str | None = _setting(
        None,
        server_address(),
        "the service that commands and runners talk to, instead of a database",
    )
    token: str | None = _setting(
        None,
        matching(r"[!-~]+", "a token as it was shown"),
        "what commands and runners show to the service",
        secret=True,
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings together with the *sources* that they came from, by name."""

    settings: Settings
    sources: Mapping[str, str]


RULES: Mapping[str, Rule] = {one.name: one.metadata["rule"] for one in fields(Settings)}
SECRETS = frozenset(one.name for one in fields(Settings) if one.metadata["secret"])


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, file: Path | None = None, folder: Path
) -> Loaded:
    """Return the settings in force.

    *flags* that are None count as not given.  *file* must exist where it is named; without it
    ``holdfast.toml`` in *folder* is read if it is there.  Raises `SettingInvalid`.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(RULES, DEFAULT)
    for source, name, value in (
        *_from_file(_chosen_file(file, environment, folder), folder),
        *_from_environment(environment),
        *_from_flags(flags),
    ):
        values[name] = _read(name, value, source)
        sources[name] = source
    return Loaded(Settings(**values), sources)


Entry = tuple[str, str, Any]


def _chosen_file(file: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    named = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if named is not None:
        return folder / named
    usual = folder / DEFAULT_FILE
    return usual if usual.is_file() else None


def _from_file(path: Path | None, folder: Path) -> list[Entry]:
    if path is None:
        return []
    # As it was named: the last part alone is what another file elsewhere may be called too.
    shown = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        msg = f"the settings file {shown} cannot be read: {error.strerror}"
        raise SettingInvalid(msg) from error
    except UnicodeDecodeError as error:
        msg = f"the settings file {shown} cannot be read: it is not UTF-8"
        raise SettingInvalid(msg) from error
    except tomllib.TOMLDecodeError as error:
        msg = f"the settings file {shown} is not TOML: {error}"
        raise SettingInvalid(msg) from error
    return [(shown, _known(name, shown, name), value) for name, value in found.items()]


def _from_environment(environment: Mapping[str, str]) -> list[Entry]:
    return [
        (variable, _known(variable.removeprefix(PREFIX).lower(), "the environment", variable), value)
        for variable, value in sorted(environment.items())
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE and not _is_link(variable, value)
    ]


def _is_link(variable: str, value: str) -> bool:
    return bool(_LINK.fullmatch(variable) or _LINKED_PORT.fullmatch(f"{variable}={value}"))


def _from_flags(flags: Mapping[str, Any]) -> list[Entry]:
    return [
        (f"--{name.replace('_', '-')}", name, value) for name, value in flags.items() if value is not None
    ]


def _known(name: str, source: str, shown: str) -> str:
    if name in RULES:
        return name
    near = difflib.get_close_matches(name, RULES, n=1)
    prefix = PREFIX if shown.startswith(PREFIX) else ""
    hint = f"did you mean {_spelled(near[0], prefix)}?" if near else "see `holdfast settings`"
    msg = f"{shown} in {source} is no setting of Holdfast: {hint}"
    raise SettingInvalid(msg, setting=shown, source=source)


def _spelled(name: str, prefix: str) -> str:
    return f"{prefix}{name.upper()}" if prefix else name


def _read(name: str, value: Any, source: str) -> Any:
    rule = RULES[name]
    try:
        return rule.read(value)
    except ValueError:
        shown = "not usable" if name in SECRETS else f"{value!r}"[:100]
        msg = f"{name} (from {source}) is {shown}: give {rule.allowed}"
        raise SettingInvalid(msg, setting=name, source=source) from None
