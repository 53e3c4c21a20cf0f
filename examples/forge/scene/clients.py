"""Git clients: each pushes to its own branches of two repositories, as fast as it can, and keeps a ledger."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from examples.forge import git
from examples.forge.hook import PUSHER
from examples.forge.repositories import DEFAULT_BRANCH, Repository
from examples.forge.scene.history import Growth, grow


@dataclass(frozen=True, slots=True)
class PushedRef:
    """One ref that a client moved, as the client knows it."""

    repository_id: int
    ref: str
    before: str
    after: str


class Ledger:
    """What all clients pushed: the truth that the database is checked against.  Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.accepted: list[tuple[PushedRef, ...]] = []
        self.refused: list[str] = []

    def accept(self, refs: tuple[PushedRef, ...]) -> None:
        """Note a push that git accepted."""
        with self._lock:
            self.accepted.append(refs)

    def refuse(self, reason: str) -> None:
        """Note a push that git refused."""
        with self._lock:
            self.refused.append(reason)

    def refs(self) -> list[PushedRef]:
        """Return every ref of every accepted push."""
        with self._lock:
            return [ref for refs in self.accepted for ref in refs]


class Clone:
    """One client's copy of one repository, and where the refs that it owns stand on the other side."""

    def __init__(self, repository: Repository, folder: Path, client: str) -> None:
        self.repository, self.folder, self.client = repository, folder, client
        self.positions: dict[str, str] = {}
        folder.parent.mkdir(parents=True, exist_ok=True)
        arguments = ("clone", "--quiet", "--bare", str(repository.path), str(folder))
        git.run(*arguments, folder=folder.parent)
        git.run("config", "gc.auto", "0", folder=folder)

    def push(self, wanted: dict[str, str], ledger: Ledger) -> None:
        """Move refs on the other side, in one push."""
        refs = tuple(
            PushedRef(self.repository.id, ref, self.positions.get(ref, git.NOTHING), after)
            for ref, after in wanted.items()
        )
        words = [f":{ref}" if after == git.NOTHING else f"+{after}:{ref}" for ref, after in wanted.items()]
        try:
            git.run("push", "--quiet", "origin", *words, folder=self.folder, extra={PUSHER: self.client})
        except git.GitFailed as error:
            ledger.refuse(str(error))
            return
        ledger.accept(refs)
        for ref, after in wanted.items():
            if after == git.NOTHING:
                del self.positions[ref]
            else:
                self.positions[ref] = after


class Crowd:
    """Several clients on several repositories, each repository with two of them or more.

    Each repository's default branch belongs to one clone; all other branches carry a client's name.
    """

    def __init__(self, repositories: list[Repository], folder: Path, *, clients: int) -> None:
        self.ledger = Ledger()
        self._repositories, self._folder = repositories, folder
        self._names = [f"client-{number}" for number in range(1, clients + 1)]
        self.clients: list[Client] = []

    def settle_in(self) -> None:
        """Push a first history to every repository, then clone what each client works on."""
        homes = [self._home(repository) for repository in self._repositories]
        for number, name in enumerate(self._names):
            own, other = homes[number % len(homes)], self._repositories[(number + 1) % len(homes)]
            clone = own if number < len(homes) else self._clone(own.repository, name)
            clones = [clone] if own.repository == other else [clone, self._clone(other, name)]
            self.clients.append(Client(name, clones, self.ledger, seed=number))

    def _home(self, repository: Repository) -> Clone:
        home = self._clone(repository, "home")
        growth = Growth(DEFAULT_BRANCH, f"{repository.name} history", commits=12)
        home.push(grow(home.folder, [growth]), self.ledger)
        return home

    def push_many(self, refs: int) -> None:
        """Push so many new branches at once, as somebody does who moves in with a whole history."""
        repository = self._repositories[-1]
        clone = self._clone(repository, "newcomer")
        growths = [
            Growth(f"refs/heads/newcomer/{n}", f"newcomer branch {n}", parent=DEFAULT_BRANCH)
            for n in range(refs)
        ]
        clone.push(grow(clone.folder, growths), self.ledger)

    def _clone(self, repository: Repository, name: str) -> Clone:
        return Clone(repository, self._folder / name / f"{repository.name}.git", name)


class Client:
    """Pushes a given number of times, choosing by its own *seed* what; *wanted* may end it early."""

    def __init__(self, name: str, clones: list[Clone], ledger: Ledger, *, seed: int) -> None:
        self.name, self._clones, self._ledger = name, clones, ledger
        self._random = random.Random(seed)  # noqa: S311 - a play, not a secret
        self._made = 0

    def work(self, pushes: int, wanted: Callable[[], bool]) -> None:
        """Push *pushes* times.  The first three are a delete, a force push and several refs at once."""
        must = [self._delete, self._force, self._several]
        for nth in range(pushes):
            if not wanted():
                return
            clone = self._clones[nth % len(self._clones)]
            act = must[nth] if nth < len(must) else self._choose()
            clone.push(act(clone), self._ledger)

    def _choose(self) -> Callable[[Clone], dict[str, str]]:
        acts = [self._advance, self._several, self._tag, self._force, self._delete]
        return self._random.choices(acts, weights=[70, 8, 10, 6, 6])[0]

    def _advance(self, clone: Clone) -> dict[str, str]:
        return self._grown(clone, [self._branch(clone)])

    def _several(self, clone: Clone) -> dict[str, str]:
        return self._grown(clone, [f"refs/heads/{self.name}/topic-{n}" for n in range(3)])

    def _tag(self, clone: Clone) -> dict[str, str]:
        grown = self._advance(clone)
        return grown | {f"refs/tags/{self.name}/v{self._made}": next(iter(grown.values()))}

    def _force(self, clone: Clone) -> dict[str, str]:
        """Replace the newest commit of a branch by another."""
        ref = self._branch(clone)
        if ref not in clone.positions:
            self._push_first(clone, ref)
        parent = f"{clone.positions[ref]}~1"
        return grow(clone.folder, [Growth(ref, self._label(), parent=parent)])

    def _delete(self, clone: Clone) -> dict[str, str]:
        ref = f"refs/heads/{self.name}/short-lived"
        if ref not in clone.positions:
            self._push_first(clone, ref)
        return {ref: git.NOTHING}

    def _push_first(self, clone: Clone, ref: str) -> None:
        growth = Growth(ref, self._label(), commits=2, parent=self._start(clone, ref))
        clone.push(grow(clone.folder, [growth]), self._ledger)

    def _grown(self, clone: Clone, refs: list[str]) -> dict[str, str]:
        growths = [
            Growth(ref, self._label(), self._random.randint(1, 3), self._start(clone, ref)) for ref in refs
        ]
        return grow(clone.folder, growths)

    def _branch(self, clone: Clone) -> str:
        """Choose a branch that is this client's alone: the default one belongs to who owns the repository."""
        topics = [f"refs/heads/{self.name}/topic-{n}" for n in range(3)]
        return self._random.choice([*topics, DEFAULT_BRANCH] if DEFAULT_BRANCH in clone.positions else topics)

    def _start(self, clone: Clone, ref: str) -> str:
        return clone.positions.get(ref, DEFAULT_BRANCH)

    def _label(self) -> str:
        self._made += 1
        return f"{self.name} change {self._made}"
