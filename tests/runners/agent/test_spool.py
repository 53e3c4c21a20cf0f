"""Output on disk: whole while there is room, with a known hole where there was not."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.runners.agent.spool import Budget, Spool


class SpoolMachine(RuleBasedStateMachine):
    """A spool beside the list of all bytes that were ever written to it."""

    @initialize(bound=st.integers(8, 200), segment=st.integers(1, 40))
    def begin(self, bound: int, segment: int) -> None:
        """Start with an empty spool."""
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.bound = bound
        self.spool = Spool(Path(self.folder.name), "stdout", Budget(bound), segment=segment)
        self.written = b""
        self.sent = b""

    @rule(data=st.binary(min_size=1, max_size=90))
    def write(self, data: bytes) -> None:
        """A program says something."""
        self.written += data
        self.spool.append(data)

    @rule(most=st.integers(1, 60), accepted=st.floats(0, 1))
    def ship(self, most: int, accepted: float) -> None:
        """The server takes the next bytes, or some of them, or learns what is lost."""
        at = self.spool.acknowledged
        if lost := self.spool.lost:
            self.spool.acknowledge(at + lost)
            return
        data = self.spool.read(most)
        assert data == self.written[at : at + len(data)]
        taken = data[: round(len(data) * accepted)]
        self.spool.acknowledge(at + len(taken), data)
        self.sent += taken

    @rule(data=st.binary(min_size=1, max_size=300), most=st.integers(1, 60))
    def flood_while_shipping(self, data: bytes, most: int) -> None:
        """What is on its way may be dropped before the answer comes; the sum counts it all the same."""
        at = self.spool.acknowledged
        sent = self.spool.read(most)
        self.write(data)
        self.spool.acknowledge(at + len(sent), sent)
        self.sent += sent

    @invariant()
    def the_books_are_right(self) -> None:
        """Size, bound and sum are what they should be, and nothing is left on disk that nobody needs."""
        if not hasattr(self, "spool"):
            return
        assert self.spool.size == len(self.written)
        assert self.spool.sha256 == hashlib.sha256(self.sent).hexdigest()
        kept = sum(path.stat().st_size for path in Path(self.folder.name).iterdir())
        assert kept <= self.bound
        if self.spool.is_empty:
            assert kept == 0

    def teardown(self) -> None:
        """Clean up."""
        if hasattr(self, "folder"):
            self.spool.give_up()
            self.folder.cleanup()


TestSpool = SpoolMachine.TestCase
TestSpool.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.lists(st.integers(1, 300), max_size=40))
def test_a_quarter_of_the_room_at_most_is_given_up(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    """However large the pieces are that a program writes: what makes room is a quarter of it, not a half."""
    spool = Spool(tmp_path_factory.mktemp("spool"), "stdout", Budget(400))
    for written in sizes:
        spool.append(b"x" * written)
    assert min(sum(sizes), 300) <= spool.kept <= 400
    spool.give_up()


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_what_fits_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    """Below the bound nothing is lost, however it was cut."""
    spool = Spool(tmp_path_factory.mktemp("spool"), "stdout", Budget(10_000), segment=16)
    for piece in pieces:
        spool.append(piece)
    assert spool.read(10_000) == b"".join(pieces)
    assert spool.lost == 0
    spool.give_up()


def test_the_newest_output_is_what_is_kept(tmp_path: Path) -> None:
    """Of a flood the end tells more than the beginning; how much is lost is known."""
    spool = Spool(tmp_path, "stdout", Budget(100), segment=20)
    spool.append(bytes(range(250)))
    assert spool.lost >= 150
    spool.acknowledge(spool.lost)
    assert spool.read(1000) == bytes(range(250))[spool.acknowledged :]
    spool.give_up()
    assert list(tmp_path.iterdir()) == []


def test_a_flood_in_one_stream_costs_a_quiet_one_nothing(tmp_path: Path) -> None:
    """They share what may wait: one alone may have nearly all of it, and gives it up to the others."""
    budget = Budget(100)
    loud, quiet = (Spool(tmp_path, name, budget, segment=10) for name in ("stdout", "stderr"))
    quiet.append(b"x" * 15)
    loud.append(b"x" * 300)
    assert (quiet.lost, loud.kept) == (0, 80)
    quiet.append(b"x" * 25)
    assert (quiet.lost, quiet.kept, loud.kept) == (0, 40, 60)
    loud.give_up()
    quiet.append(b"x" * 60)
    assert (quiet.lost, quiet.kept) == (0, 100)
    quiet.give_up()


def test_what_is_dropped_while_it_is_read_is_not_replaced_by_what_follows(tmp_path: Path) -> None:
    """The piece ends where the hole begins: the bytes behind it have another place in the stream."""

    class Overtaken(Spool):
        @property
        def lost(self) -> int:
            lost = super().lost
            self.drop_oldest()
            return lost

    spool = Overtaken(tmp_path, "stdout", Budget(1000), segment=10)
    spool.append(bytes(range(30)))
    assert spool.read(100) == b""
    spool.give_up()
    whole = Spool(tmp_path, "stderr", Budget(1000), segment=10)
    whole.append(bytes(range(30)))
    (tmp_path / "stderr.10").unlink()
    assert whole.read(100) == bytes(range(10))
    whole.give_up()


def test_a_disk_that_takes_nothing_costs_output_and_not_the_program(tmp_path: Path) -> None:
    """Where files cannot be written the output is a gap."""
    spool = Spool(tmp_path / "gone", "stdout", Budget(100))
    spool.append(b"x" * 30)
    assert (spool.size, spool.lost) == (30, 30)
