"""Commands are checked where they are enqueued, by the same rules as where they are run."""

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.runners.agent.spec import Spec, read_command


@pytest.mark.parametrize(
    ("argv", "options", "problem"),
    [
        ((), {}, "give either argv or script"),
        (("make",), {"script": "make"}, "give either argv or script"),
        (("make",), {"secrets": ["KEY"]}, "secrets names KEY, which is no variable of env"),
        (("make",), {"env": {"A=B": "1"}}, "the name of a variable is empty or holds ="),
        (("ma\x00ke",), {}, "NUL"),
        (("make", 4), {}, "Expected `str`, got `int`"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_at_once(
    argv: tuple[Any, ...], options: dict[str, Any], problem: str
) -> None:
    """The error says what is wrong, where it was written."""
    with pytest.raises(holdfast.ArgumentsInvalid, match=problem):
        holdfast.command(*argv, **options)


def test_a_command_reaches_the_runner_as_it_was_given() -> None:
    """What is left out stays out; what is given is what the runner reads."""
    request = holdfast.command("make", "-j4", env={"KEY": "k"}, secrets=["KEY"], cwd="sub", stdin="in")
    spec = Spec(request.kind, msgspec.Raw(request.args.encode()), 1.0)
    read = read_command(spec)
    assert (read.argv, read.env, read.secrets, read.cwd, read.stdin) == (
        ["make", "-j4"],
        {"KEY": "k"},
        ["KEY"],
        "sub",
        "in",
    )
    assert "script" not in request.args
