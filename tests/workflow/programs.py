"""Random programs for runs: how they look, what plain Python says must come of them, how a run plays them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

import holdfast
from holdfast.store.sqlfile import rendered

AT_ONCE = holdfast.Constant(timedelta(milliseconds=1))
LONG = 60.0
ROOT, CAUGHT, LETTERS = "0", "caught", "abc"
INSERT = "insert into holdfast.rows (path) values ($1)"


class Step(msgspec.Struct, frozen=True, tag=True):
    """A step whose function fails *fails* times; *tries* is how often it may try."""

    fails: int
    tries: int
    how: str

    @property
    def is_hopeless(self) -> bool:
        """True where it fails for good."""
        return self.fails >= self.tries


class Sleep(msgspec.Struct, frozen=True, tag=True):
    """A sleep: a short one stays in memory, a long one suspends the run."""

    seconds: float


class Signal(msgspec.Struct, frozen=True, tag=True):
    """Wait for a signal of a name of its own."""


class Value(msgspec.Struct, frozen=True, tag=True):
    """Ask for the time, an id, and whether a patch is in."""


class Makeup(msgspec.Struct, frozen=True, tag=True):
    """Register something to be made up for."""


class Parts(msgspec.Struct, frozen=True, tag=True):
    """Branches that go on at once."""

    branches: tuple[tuple[Node, ...], ...]


class Child(msgspec.Struct, frozen=True, tag=True):
    """A child run."""

    body: tuple[Node, ...]


class Attempt(msgspec.Struct, frozen=True, tag=True):
    """``try`` around a body; its error is caught."""

    body: tuple[Node, ...]


Node = Step | Sleep | Signal | Value | Makeup | Parts | Child | Attempt
Program = tuple[Node, ...]


def _nested(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    bodies = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Parts, st.lists(bodies, min_size=1, max_size=3).map(tuple)),
        st.builds(Child, bodies),
        st.builds(Attempt, bodies),
    )


ways = st.sampled_from(["async", "sync", "transaction"])
steps = st.builds(Step, fails=st.integers(0, 2), tries=st.integers(1, 3), how=ways)
leaves: st.SearchStrategy[Node] = st.one_of(
    steps,
    steps,
    st.builds(Sleep, st.sampled_from([0.002, LONG])),
    st.just(Signal()),
    st.just(Value()),
    st.just(Makeup()),
)
programs: st.SearchStrategy[Program] = st.lists(
    st.recursive(leaves, _nested, max_leaves=8), min_size=1, max_size=4
).map(tuple)


class Broken(Exception):
    """What a step raises that fails."""


def undoing(path: str) -> str:
    """Return the name of the step that makes up for what happened at *path*."""
    return f"{path} undone"


def signals(program: Program, path: str = ROOT) -> list[str]:
    """Return the names of the signals for which the run itself waits, without its children."""
    found = []
    for index, node in enumerate(program):
        here = f"{path}.{index}"
        match node:
            case Signal():
                found.append(here)
            case Attempt(inner):
                found += signals(inner, here)
            case Parts(branches):
                for letter, branch in zip(LETTERS, branches, strict=False):
                    found += signals(branch, here + letter)
    return found


# --- what plain Python says


@dataclass
class Told:
    """What a program comes to: its result, unless it has *failed*, and which steps must end and which may.

    Where one branch fails, it depends on the moment how far its siblings come, and whether children of theirs
    are stopped, so that these make up for something.
    """

    result: list[Any] | None = None
    failed: bool = False
    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)


def expected(program: Program) -> Told:
    """Play *program* without a database."""
    told = Told()
    told.result, told.failed = _run(program, ROOT, told)
    return told


def _run(body: Program, path: str, told: Told) -> tuple[list[Any] | None, bool]:
    """Play one run: where it fails, it makes up for what it has done."""
    makeups: list[str] = []
    try:
        result = _body(body, path, told, makeups)
    except Broken:
        told.must.update(makeups)
        return None, True
    told.spared.update(makeups)
    return result, False


def _body(body: Program, path: str, told: Told, makeups: list[str]) -> list[Any]:
    return [_node(node, f"{path}.{index}", told, makeups) for index, node in enumerate(body)]


def _node(node: Node, path: str, told: Told, makeups: list[str]) -> Any:
    match node:
        case Step():
            told.must.add(path)
            if node.is_hopeless:
                raise Broken(path)
            return path
        case Makeup():
            makeups.append(undoing(path))
            return None
        case Attempt(inner):
            try:
                return _body(inner, path, told, makeups)
            except Broken:
                return CAUGHT
        case Child(inner):
            result, failed = _run(inner, path, told)
            if failed:
                raise Broken(path)
            return result
        case Parts(branches):
            return _parts(branches, path, told, makeups)
    return path if isinstance(node, Signal) else None


def _parts(branches: tuple[Program, ...], path: str, told: Told, makeups: list[str]) -> list[Any]:
    inside, noted = Told(), list[str]()
    results: list[Any] = []
    for letter, branch in zip(LETTERS, branches, strict=False):
        try:
            results.append(_body(branch, path + letter, inside, noted))
        except Broken:
            inside.failed = True
    if inside.failed:
        told.may |= inside.must | inside.may | inside.spared | set(noted)
        raise Broken(path)
    told.must |= inside.must
    told.may |= inside.may
    told.spared |= inside.spared
    makeups += noted
    return results


# --- how a run plays it


class Log:
    """Every call of a step: run, attempt and path; and which ids were drawn at a path of a run."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.calls: list[tuple[int, int, str]] = []
        self.values: dict[tuple[int, str], set[str]] = {}

    def note(self, run: holdfast.Run, path: str) -> int:
        """Note a call; answers how many there were before."""
        before = sum(call[2] == path for call in self.calls)
        self.calls.append((run.id, run.attempt, path))
        return before


def application(log: Log) -> tuple[holdfast.App, Any]:
    """Return an application and its workflow, which plays programs."""
    app = holdfast.App()

    @app.workflow(queue="programs", max_attempts=1000)
    async def play(run: holdfast.Run, program: Program, path: str) -> list[Any]:
        return await Player(run, log, play).body(program, path)

    return app, play


class Player:
    """Plays a program as the code of a run."""

    def __init__(self, run: holdfast.Run, log: Log, workflow: Any) -> None:
        self._run, self._log, self._workflow = run, log, workflow

    async def body(self, body: Program, path: str) -> list[Any]:
        """Play one after the other."""
        return [await self._node(node, f"{path}.{index}") for index, node in enumerate(body)]

    async def _node(self, node: Node, path: str) -> Any:
        match node:
            case Step():
                return await self._step(node, path)
            case Sleep(seconds):
                return await self._run.sleep(seconds)
            case Signal():
                return await self._run.wait_signal(path)
            case Value():
                assert self._run.patched("new")
                return self._value(path)
            case Makeup():
                return self._run.on_failure(self._undo, path, name=undoing(path))
            case Child(inner):
                return await self._run.child(self._workflow.job(program=inner, path=path))
            case Attempt(inner):
                try:
                    return await self.body(inner, path)
                except Exception:
                    return CAUGHT
            case Parts(branches):
                return await self._parts(branches, path)

    def _value(self, path: str) -> None:
        self._run.now()
        self._log.values.setdefault((self._run.id, path), set()).add(str(self._run.uuid()))

    async def _parts(self, parts: tuple[Program, ...], path: str) -> list[Any]:
        async with self._run.branches() as branches:
            handles = [
                branches.start(letter, self.body(part, path + letter))
                for letter, part in zip(LETTERS, parts, strict=False)
            ]
        return [handle.result() for handle in handles]

    async def _undo(self, path: str) -> None:
        self._log.note(self._run, undoing(path))

    async def _step(self, step: Step, path: str) -> Any:
        def call() -> str:
            if self._log.note(self._run, path) < step.fails or step.is_hopeless:
                raise Broken(path)
            return path

        async def wait() -> str:
            return call()

        async def write(connection: Any) -> str:
            await connection.execute(rendered(INSERT, self._log.schema), path)
            return call()

        functions: dict[str, Callable[..., Any]] = {"sync": call, "async": wait, "transaction": write}
        return await self._run.step(
            functions[step.how],
            name=path,
            max_attempts=step.tries,
            retry=AT_ONCE,
            transaction=step.how == "transaction",
        )
