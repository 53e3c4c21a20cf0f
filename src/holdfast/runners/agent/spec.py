"""What is to be run: frozen when the job was enqueued, and checked against its sum."""

from __future__ import annotations

import hashlib

import msgspec

from holdfast.errors import SpecInvalid
from holdfast.model.command import CommandArgs


class Spec(msgspec.Struct, frozen=True):
    """The spec of any kind; *args* is JSON text."""

    kind: str
    args: msgspec.Raw
    timeout: float


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
