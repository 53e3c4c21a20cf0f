"""What crosses the line between a worker and its children arrives as it was sent, or is refused."""

import struct

import pytest

from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    LeaseLost,
    PayloadTooLarge,
    StateConflict,
    StepNotFound,
)
from holdfast.worker import wire


@pytest.mark.parametrize(
    "error",
    [
        LeaseLost(7, 3),
        StateConflict(7, action="resumed", state="at checkpoint version 9"),
        PayloadTooLarge("checkpoint", size=2, limit=1),
        StepNotFound(7, "pack", "main", ("ship", "send")),
        DatabaseUnavailable("PostgreSQL cannot be reached: gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_type_text_and_facts(error: HoldfastError) -> None:
    """A handler in a child can catch and read Holdfast's errors as in a thread."""
    arrived = wire.unpacked(wire.packed(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_an_error_without_a_name_of_ours_is_still_one_of_ours() -> None:
    """An unknown name, or one that is no error, cannot make the child build something else."""
    for name in ("NoSuchError", "annotations", "__builtins__"):
        arrived = wire.unpacked(wire.Problem(name, "what happened", {}))
        assert type(arrived) is HoldfastError
        assert str(arrived) == "what happened"


def test_an_endless_frame_is_refused_by_its_header() -> None:
    """Nobody reserves gigabytes because four bytes say so."""
    with pytest.raises(ValueError, match="a frame of 4,294,967,295 bytes is no message"):
        wire.body_bytes(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"type": "call"}', b'{"type": "shutdown"}', b"\x80\x04."])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    """Neither a parent's message from a child nor a pickle gets through."""
    with pytest.raises(ValueError, match=r"JSON|Invalid|Input|Object"):
        wire.from_child(body)


def test_a_frame_is_its_length_and_one_message() -> None:
    """The header counts the bytes that follow, and they are the message."""
    frame = wire.frame(wire.Line(20, "grün"))
    (length,) = struct.unpack("!I", frame[:4])
    assert length == len(frame) - 4 == wire.body_bytes(frame[:4])
    assert wire.from_child(frame[4:]) == wire.Line(20, "grün")
