"""What every command shares: settings, a database for one command, and errors that end in an exit code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

from holdfast.cli.configs import database_config
from holdfast.cli.metavars import name_values
from holdfast.cli.output import tell
from holdfast.errors import HoldfastError, InputInvalid
from holdfast.runtime.settings import Loaded, Settings, load
from holdfast.store import migrate
from holdfast.store.database import Database

T = TypeVar("T")

# Exit codes; docs/reference/exit-codes.md says when each is used.
DONE, FAILED, WRONG_USE, LEFT_OVER, INTERRUPTED = 0, 1, 2, 3, 130

# Options of `holdfast` itself.  They may stand behind a command as well: nobody remembers which is whose.
GLOBAL_OPTIONS = ("--database-url", "--schema", "--config", "--server")


@dataclass
class Invocation:
    """One call of the command line with its global options."""

    flags: dict[str, Any] = field(default_factory=dict)
    config: Path | None = None

    def loaded(self, **flags: Any) -> Loaded:
        """Return the settings in force, with these *flags* on top; raises `SettingInvalid`."""
        return load(self.flags | flags, os.environ, file=self.config, folder=Path.cwd())

    def settings(self, **flags: Any) -> Settings:
        """Return the values of `loaded`."""
        return self.loaded(**flags).settings

    def run(
        self, work: Callable[[Database], Awaitable[T]], *, check_schema: bool = True, **options: Any
    ) -> T:
        """Open the database, look that its schema fits, and return what *work* answers.

        *options* are those of a `DatabaseConfig`.
        """
        config = database_config(self.settings(), application_name="holdfast command", pool_size=2, **options)

        async def opened() -> T:
            database = Database(config)
            await database.open()
            try:
                if check_schema:
                    await migrate.check(database)
                return await work(database)
            finally:
                await database.close()

        return asyncio.run(opened())


def invocation(context: typer.Context) -> Invocation:
    """Return the invocation that a command belongs to."""
    found = context.find_object(Invocation)
    return Invocation() if found is None else found


class ErrorReportingGroup(TyperGroup):
    """A group whose commands end in one sentence on stderr instead of a traceback.

    What Holdfast raises on purpose ends with 1, and with 2 where the input was wrong; a fault that nobody
    foresaw keeps its traceback.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        name_values(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let the global options stand anywhere before ``--``."""
        return super().parse_args(ctx, _global_options_first(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            tell(f"holdfast: {error}", err=True)
            raise typer.Exit(WRONG_USE if isinstance(error, InputInvalid) else FAILED) from error


def _global_options_first(args: list[str]) -> list[str]:
    end = args.index("--") if "--" in args else len(args)
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(args[:end])
    for word in remaining:
        option, equals, _ = word.partition("=")
        if option not in GLOBAL_OPTIONS:
            rest.append(word)
            continue
        first.append(word)
        if not equals:
            first += [value for value in (next(remaining, None),) if value is not None]
    return first + rest + args[end:]
