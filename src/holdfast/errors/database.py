"""What PostgreSQL does not do."""

from __future__ import annotations

from holdfast.errors.root import HoldfastError

# The schema that commands mean where nobody names one.
_DEFAULT = "holdfast"


class DatabaseUnavailable(HoldfastError):
    """PostgreSQL cannot be reached; nothing is known to have been changed."""


class DatabaseRefused(HoldfastError):
    """PostgreSQL refused a statement for a reason of its own, such as a full disk or missing rights."""


class SchemaMismatch(HoldfastError):
    """The database schema and this release do not fit together."""


class SchemaMissing(SchemaMismatch):
    """The schema was never migrated; *missing* is what PostgreSQL did not find in it."""

    def __init__(self, schema: str, missing: str | None = None) -> None:
        problem = "does not exist in this database" if missing is None else f"is not complete ({missing})"
        super().__init__(f"schema {schema!r} {problem}: run `{migrating(schema)}`")
        self.schema, self.missing = schema, missing


class SchemaTooOld(SchemaMismatch):
    """The database schema is older than this release needs."""

    def __init__(self, schema: str, *, found: int, needed: int) -> None:
        super().__init__(
            f"schema {schema!r} is at {found}, this release needs {needed}: run `{migrating(schema)}`"
        )
        self.schema, self.found, self.needed = schema, found, needed


class SchemaTooNew(SchemaMismatch):
    """The database schema was migrated by a newer release."""

    def __init__(self, schema: str, *, found: int, known: int) -> None:
        super().__init__(
            f"schema {schema!r} is at {found}, this release knows {known}: upgrade the holdfast package here"
        )
        self.schema, self.found, self.known = schema, found, known


class SchemaDiffers(SchemaMismatch):
    """The schema was made by another edition of a migration than the one in this release."""

    def __init__(self, schema: str, migration: int) -> None:
        super().__init__(
            f"schema {schema!r} was made by another edition of migration {migration}: use the release that "
            "made it, or set another schema (HOLDFAST_SCHEMA) and run `holdfast migrate`"
        )
        self.schema, self.migration = schema, migration


def migrating(schema: str) -> str:
    """Return the command that migrates *schema*."""
    return "holdfast migrate" if schema == _DEFAULT else f"holdfast migrate --schema {schema}"
