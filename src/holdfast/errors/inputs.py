"""What the caller gave cannot be used."""

from __future__ import annotations

from holdfast.errors.root import HoldfastError


class InputInvalid(HoldfastError):
    """What the caller gave cannot be used."""


class ArgumentsInvalid(InputInvalid):
    """The arguments do not fit the handler's signature."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"arguments of {kind!r} are wrong: {problem}")
        self.kind, self.problem = kind, problem


class OptionInvalid(InputInvalid):
    """An option is out of range or of the wrong type."""

    # None where the error came over a wire and its value was no plain data.
    value: object = None

    def __init__(self, option: str, value: object, expected: str) -> None:
        try:
            shown = repr(value)
        except ValueError:
            # A number of more digits than Python writes.
            shown = f"<{type(value).__name__}>"
        if len(shown) > 100:
            shown = shown[:97] + "..."
        super().__init__(f"{option} is {shown}: {expected}")
        self.option, self.value, self.expected = option, value, expected


class ConnectionUnsupported(InputInvalid):
    """A caller's connection is of no kind that the client takes; nothing was sent to it."""

    def __init__(self, connection: object, problem: str) -> None:
        # Only the type is named: how a connection shows itself may hold a password.
        found = f"{type(connection).__module__}.{type(connection).__qualname__}"
        super().__init__(f"cannot enqueue on a {found}: {problem}")
        self.connection_type, self.problem = found, problem


class PayloadTooLarge(InputInvalid):
    """Something to be stored exceeds its size limit."""

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"{what}: {size:,} bytes where {limit:,} are allowed; store it elsewhere and pass a reference"
        )
        self.what, self.size, self.limit = what, size, limit


class BackoffInvalid(InputInvalid):
    """A retry policy makes no sense."""

    def __init__(self, policy: str, problem: str) -> None:
        super().__init__(f"backoff {policy!r}: {problem}")
        self.policy, self.problem = policy, problem


class ScheduleInvalid(InputInvalid):
    """A schedule's rule, option or time zone makes no sense; *field* names the part of a cron expression."""

    def __init__(self, subject: str, problem: str, *, field: str | None = None) -> None:
        super().__init__(f"{subject}: {problem}")
        self.subject, self.problem, self.field = subject, problem, field


class StepsAtOnce(InputInvalid):
    """Two steps of a run were begun at once in one branch, where nobody can tell which is the first."""

    def __init__(self, branch: str, name: str) -> None:
        super().__init__(
            f"{name!r} was begun in a task of its own, or while branch {branch!r} was busy: "
            "start what is to run at once in `async with run.branches()`"
        )
        self.branch, self.name = branch, name


class BodyInvalid(InputInvalid):
    """The body of a request is not what its route takes."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the body of the request is wrong: {problem}")
        self.problem = problem


class SettingInvalid(InputInvalid):
    """A setting is unknown or has a bad value; *setting* and *source* say which one and who set it."""

    def __init__(self, problem: str, *, setting: str | None = None, source: str | None = None) -> None:
        super().__init__(problem)
        self.setting, self.source = setting, source


class AppNotFound(InputInvalid):
    """There is no application at that address."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"no application at {address!r}: {problem}")
        self.address, self.problem = address, problem


class LineInvalid(HoldfastError):
    """A line of a stream of jobs is no job; *rest* says what that means for the other lines."""

    def __init__(self, line: int, problem: str, rest: str | None = None) -> None:
        consequence = f"; {rest}" if rest else ""
        super().__init__(f"line {line} is no job: {problem}{consequence}")
        self.line, self.problem = line, problem


class UnknownKind(HoldfastError):
    """No handler is registered under that kind."""

    def __init__(self, kind: str, known: tuple[str, ...] = ()) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no handler is registered for kind {kind!r}; registered: {names}")
        self.kind = kind
