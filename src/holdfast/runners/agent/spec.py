"""What is to be run: frozen when the job was enqueued, and checked against its sum."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.errors import SpecInvalid


class Spec(msgspec.Struct, frozen=True):
    """The spec of any kind; *args* is JSON text."""

    kind: str
    args: msgspec.Raw
    timeout: float


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
        words: list[Any] = [*(self.argv or ()), *self.env, *self.env.values(), self.cwd or ""]
        if any("\x00" in word for word in words) or any("=" in name or not name for name in self.env):
            msg = "a word holds a NUL character, or the name of a variable is empty or holds ="
            raise ValueError(msg)


def read_spec(text: str, sha256: str) -> Spec:
    """Return the spec; raises `SpecInvalid` where it is not the one that was enqueued."""
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != sha256:
        raise SpecInvalid("spec-mismatch", f"its sum is {found}, and {sha256} was frozen")
    try:
        return msgspec.json.decode(text, type=Spec)
    except msgspec.DecodeError as error:
        raise SpecInvalid("spec-malformed", str(error)) from error


def read_command(spec: Spec) -> CommandArgs:
    """Return the arguments of a command; raises `SpecInvalid`."""
    try:
        return msgspec.json.decode(spec.args, type=CommandArgs)
    except msgspec.DecodeError as error:
        raise SpecInvalid("arguments-invalid", str(error)) from error
