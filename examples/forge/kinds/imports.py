"""``org:github_import_discover`` and ``org:github_import_repo``: an organisation moves in from GitHub."""

from __future__ import annotations

import holdfast
from examples.forge import imports, repositories
from examples.forge.database import Connection
from examples.forge.forge import Forge
from examples.forge.github import GitHub, NotThere, RateLimited
from examples.forge.imports import Import, ImportedRepository
from examples.forge.kinds import size
from examples.forge.repositories import NameRefused, NameTaken, Repository

DISCOVER, MOVE = "org:github_import_discover", "org:github_import_repo"

Outcome = holdfast.Snooze | holdfast.Cancel | None


class Discovery:
    """Finds an organisation's repositories, page by page, and makes a job for each."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._github = GitHub(forge.settings.github_url)

    def run(self, job: holdfast.Job, import_id: int) -> Outcome:
        """Read every page, then end the discovery; rests where GitHub asks for it."""
        with self._forge.connect() as connection:
            wanted = imports.find(connection, import_id)
        if wanted is None:
            msg = f"import {import_id} has vanished"
            raise holdfast.Poison(msg)
        if wanted.status == "requested":
            try:
                self._read(job, wanted)
            except RateLimited as limit:
                return holdfast.Snooze(limit.delay, str(limit))
            except NotThere as error:
                self._give_up(wanted, error)
        self._finish(job, wanted)
        return None

    def _read(self, job: holdfast.Job, wanted: Import) -> None:
        # The checkpoint is the address of the next page: an attempt goes on where the last one had to rest.
        url: str | None = job.load_checkpoint()
        while True:
            page = self._github.page(wanted.organisation, url)
            with self._forge.connect() as connection:
                imports.add_found(connection, wanted.id, [one.name for one in page.repositories])
            url = page.next_url
            if url is None:
                return
            job.save_checkpoint(url)

    def _give_up(self, wanted: Import, error: NotThere) -> None:
        problem = f"organisation {wanted.organisation!r} is not on GitHub"
        with self._forge.connect() as connection:
            imports.settle(connection, wanted.id, "failed", problem)
        raise holdfast.Poison(problem) from error

    def _finish(self, job: holdfast.Job, wanted: Import) -> None:
        with job.transaction() as connection:
            if imports.settle(connection, wanted.id, "discovered"):
                waiting = imports.found(connection, wanted.id)
                for imported_id in waiting:
                    self._forge.enqueue(connection, MOVE, imported_id=imported_id)
                job.result = f"{len(waiting)} repositories"


class Move:
    """Clones one repository and makes it one of ours."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._github = GitHub(forge.settings.github_url)

    def run(self, job: holdfast.Job, imported_id: int) -> Outcome:
        """Clone, then move in; rests where GitHub asks for it, ends as cancelled where nothing can come."""
        with self._forge.connect() as connection:
            wanted = imports.find_repository(connection, imported_id)
        if wanted is None:
            msg = f"repository {imported_id} of an import has vanished"
            raise holdfast.Poison(msg)
        if wanted.status != "found":
            return None
        try:
            remote = self._github.repository(wanted.organisation, wanted.name)
            repositories.place(self._forge.settings.root, wanted.organisation, wanted.name)
        except RateLimited as limit:
            return holdfast.Snooze(limit.delay, str(limit))
        except NotThere:
            return self._end(wanted, "gone", "it is no longer on GitHub")
        except NameRefused as error:
            return self._end(wanted, "refused", str(error))
        return self._move_in(job, wanted, remote.clone_url)

    def _move_in(self, job: holdfast.Job, wanted: ImportedRepository, url: str) -> Outcome:
        # Each attempt has a folder of its own, for one that has lost its lease may still be cloning.
        clone = self._forge.settings.root / ".incoming" / f"{job.id}-{job.attempt}"
        try:
            imports.clone(url, clone)
            with job.transaction() as connection:
                locked = imports.find_repository(connection, wanted.id)
                if locked is not None and locked.status == "found":
                    repository = repositories.register(
                        connection, self._forge.settings.root, wanted.organisation, wanted.name
                    )
                    imports.move_in(clone, repository)
                    repositories.furnish(repository, self._forge.settings)
                    self._settle(connection, wanted, repository)
                    job.result = f"{repository.owner}/{repository.name}"
        except NameTaken as error:
            return self._end(wanted, "refused", str(error))
        finally:
            imports.clear_away(clone)
        return None

    def _settle(self, connection: Connection, wanted: ImportedRepository, repository: Repository) -> None:
        repositories.note_head(connection, repository.id, repository.path)
        imports.settle_repository(connection, wanted.id, "imported", repository=repository)
        size.enqueue(self._forge, connection, repository.id)

    def _end(self, wanted: ImportedRepository, status: str, problem: str) -> holdfast.Cancel:
        with self._forge.connect() as connection:
            imports.settle_repository(connection, wanted.id, status, problem=problem)
        return holdfast.Cancel(f"{wanted.organisation}/{wanted.name}: {problem}")


def register(forge: Forge) -> None:
    """Register both kinds."""
    discovery, move = Discovery(forge), Move(forge)

    @forge.app.job(kind=DISCOVER, queue="imports", retry=forge.retry, timeout=300)
    def discover(job: holdfast.Job, import_id: int) -> Outcome:
        return discovery.run(job, import_id)

    @forge.app.job(kind=MOVE, queue="imports", retry=forge.retry, timeout=300)
    def import_repository(job: holdfast.Job, imported_id: int) -> Outcome:
        return move.run(job, imported_id)


def request(forge: Forge, connection: Connection, organisation: str) -> int:
    """Ask for an organisation's import, in the caller's transaction; answers the job's id."""
    return forge.enqueue(connection, DISCOVER, import_id=imports.add(connection, organisation))
