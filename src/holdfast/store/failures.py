"""Turns what a driver raises into Holdfast's own errors; SQLSTATEs are known here and nowhere else."""

from __future__ import annotations

import re

from holdfast.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InputInvalid,
    NotARun,
    RunEnded,
    SchemaMissing,
    SettingInvalid,
)

DUPLICATE = "HF001"
ENDED = "HF002"
NO_RUN = "HF003"
# A missing schema, table or function of ours: the schema was never migrated (or not far enough).  A missing
# column, or what belongs to somebody else, such as a trigger's table, is none of it.
NO_SCHEMA = "3F000"
MISSING = frozenset({NO_SCHEMA, "42P01", "42883"})
# Too many connections, shutdown, crash, start-up, and every connection exception (class 08).
UNAVAILABLE = frozenset({"53300", "57P01", "57P02", "57P03", "57P05"})
# A server that takes no writes, such as a former primary: whoever connects anew may meet the new one.
READ_ONLY = "25006"
# A check constraint has a name; without one it is the bound of a partition: another was attached as we wrote.
CHECK = "23514"
# A feature, state or right that is missing, a transaction given up to another (deadlock, serialisation),
# a limit, a lock or time-out set by the operator, a full or broken disk: nothing was changed, and another try
# may go well.  Under any other code a value is refused, be it by a type, a constraint or somebody's trigger.
REFUSED = ("0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58", "72", "XX")

# What one value of several is never to blame for.
OF_NO_VALUE = ("08", "25", "28", "3D", "3F", "40", "53", "55", "57", "58")

# How often a statement of ours is tried again that was given up to another one, before its caller is told.
MOST_GIVEN_UP = 3

# asyncpg's and psycopg's without a code of PostgreSQL's: the connection is gone, or never came.
UNCONNECTED = frozenset({"InterfaceError", "InternalClientError", "OperationalError", "ConnectionTimeout"})

# What drivers raise for an option in an address, and Python for a host that no resolver is asked for.
ODD_OPTION = frozenset({"ClientConfigurationError", "ProgrammingError"})
ODD_HOST = (UnicodeError, OverflowError)

# What a server says at the door for good; libpq hands on its words but not its SQLSTATE.
TURNED_AWAY = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "not permitted",
)

# How a driver begins where a value fits no type: a number that only this file's statements know.
_ARGUMENT = re.compile(r"^invalid input for query argument \$\d+: ")


def translated(error: BaseException, schema: str, address: str | None = None) -> HoldfastError | None:
    """Return the error that says what *error* means, or None where it means nothing to us.

    *address* is what somebody tried to connect to, without its password.
    """
    sqlstate = getattr(error, "sqlstate", None)
    text = str(error).strip() or type(error).__name__
    if sqlstate is None:
        return _without_sqlstate(error, text, address)
    if sqlstate == DUPLICATE:
        return _duplicate(error)
    if sqlstate == ENDED:
        return RunEnded(int(_detail(error) or 0))
    if sqlstate == NO_RUN:
        return NotARun(int(_detail(error) or 0), _hint(error))
    if sqlstate == READ_ONLY:
        return DatabaseUnavailable(f"PostgreSQL takes no writes here, as a standby does: {text}")
    if sqlstate in UNAVAILABLE or sqlstate.startswith("08"):
        return DatabaseUnavailable(f"PostgreSQL cannot be reached: {text}")
    if sqlstate in MISSING and _names(text, schema):
        return SchemaMissing(schema, None if sqlstate == NO_SCHEMA else text.splitlines()[0])
    if sqlstate == CHECK and _constraint(error) is None:
        return DatabaseRefused(f"a partition was attached meanwhile, try again: {text}")
    if sqlstate.startswith(REFUSED):
        return DatabaseRefused(f"PostgreSQL refused ({sqlstate}): {text}")
    return InputInvalid(f"PostgreSQL refused a value: {_ARGUMENT.sub('', text)}")


def asks_for_another_transaction(error: BaseException | None) -> bool:
    """Read whether the same transaction, begun anew, may succeed: a deadlock or a serialisation failure."""
    return str(getattr(error, "sqlstate", None)).startswith("40")


def may_be_of_a_value(error: BaseException) -> bool:
    """Read whether one value of several may be why a statement was refused, with all it would have stored.

    A trigger of somebody else's may say no under any code, and JSON that is too deep is beyond a limit; what
    concerns the server, the transaction, or what there is in the schema has nothing to do with values.
    """
    if isinstance(error, InputInvalid):
        return True
    if isinstance(error, (DatabaseUnavailable, SchemaMissing)):
        return False
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    return sqlstate is not None and not str(sqlstate).startswith(OF_NO_VALUE)


def _names(text: str, schema: str) -> bool:
    """Read whether PostgreSQL speaks of *schema*, or of something in it, in whatever language."""
    return re.search(rf"(?<!\w){re.escape(schema)}(?!\w)", text.splitlines()[0]) is not None


def _without_sqlstate(error: BaseException, text: str, address: str | None) -> HoldfastError | None:
    if address is not None and (type(error).__name__ in ODD_OPTION or isinstance(error, ODD_HOST)):
        return SettingInvalid(f"the address of the database is not usable: {text}", setting="database_url")
    if isinstance(error, TimeoutError) and address is None:
        # A command of a connection that stands.
        held = "it has too much to do, somebody's open transaction holds a lock, or it is cut off"
        return DatabaseUnavailable(f"PostgreSQL did not answer in time: {held} ({text})")
    if isinstance(error, (OSError, EOFError, TimeoutError)):
        place = "" if address is None else f" at {address}"
        return DatabaseUnavailable(f"PostgreSQL cannot be reached{place}: {text}{_unheard(error, address)}")
    if type(error).__name__ == "OperationalError" and any(words in text for words in TURNED_AWAY):
        return DatabaseRefused(f"PostgreSQL refused the connection: {text}")
    # asyncpg reports a connection that died between two statements as an InterfaceError.
    if type(error).__name__ in UNCONNECTED:
        return DatabaseUnavailable(f"the connection to PostgreSQL failed: {text}")
    if isinstance(error, UnicodeEncodeError):
        return InputInvalid(f"the connection cannot send a value: set its client_encoding to UTF8 ({text})")
    if type(error).__name__ == "DataError":
        return InputInvalid(f"a value cannot be sent to PostgreSQL: {text}")
    return None


def _unheard(error: BaseException, address: str | None) -> str:
    """Say what to look at where nobody listens on a socket of this machine."""
    if address is None or "host=/" not in address:
        return ""
    if not isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
        return ""
    return "; is that server running, or the `holdfast up` that it belongs to?"


def _constraint(error: BaseException) -> str | None:
    # psycopg keeps the fields in .diag, asyncpg on the error itself.
    return getattr(getattr(error, "diag", error), "constraint_name", None)


def _duplicate(error: BaseException) -> DuplicateJob:
    holder = _detail(error)
    return DuplicateJob(_hint(error), int(holder) if holder else None)


def _hint(error: BaseException) -> str:
    # psycopg keeps the fields in .diag, asyncpg on the error itself.
    return getattr(getattr(error, "diag", None), "message_hint", None) or getattr(error, "hint", None) or "?"


def _detail(error: BaseException) -> str | None:
    # psycopg keeps the fields in .diag, asyncpg on the error itself.
    return getattr(getattr(error, "diag", None), "message_detail", None) or getattr(error, "detail", None)
