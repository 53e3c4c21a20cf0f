"""A command: the arguments of jobs of kind ``command``, which run a program on a runner."""

from __future__ import annotations

import msgspec


class CommandArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of kind ``command``; see docs/reference/runner-protocol.md."""

    argv: list[str] | None = None
    script: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    stdin: str | None = None
    artifacts: list[str] = []
    secrets: list[str] = []

    def __post_init__(self) -> None:
        if (self.argv is None) == (self.script is None):
            msg = "give either argv or script"
            raise ValueError(msg)
        if self.argv is not None and not self.argv:
            msg = "argv is empty: its first word is the program"
            raise ValueError(msg)
        if missing := [name for name in self.secrets if name not in self.env]:
            msg = f"secrets names {', '.join(missing)}, which is no variable of env"
            raise ValueError(msg)
        words = [*(self.argv or ()), *self.env, *self.env.values(), self.cwd or ""]
        if any("\x00" in word for word in words) or any("=" in name or not name for name in self.env):
            msg = "a word holds a NUL character, or the name of a variable is empty or holds ="
            raise ValueError(msg)
