"""``make demo``: the forge on real git repositories in two acts, each with somebody killed in the middle.

Exit status: 0 if every push was processed exactly once and every command ended once, as it had to; 1 if not,
130 if interrupted.  It leaves nothing behind.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from examples.forge import database
from examples.forge.database import connect
from examples.forge.scene import commands, report, server
from examples.forge.scene.check import Check
from examples.forge.scene.fleet import Fleet
from examples.forge.scene.github import LoopbackGitHub
from examples.forge.scene.screen import Screen
from examples.forge.scene.story import Scale, Story, TookTooLong, WorkerEnded
from examples.forge.settings import Settings
from examples.forge.wiring import build
from examples.forge.yard import act
from examples.forge.yard.act import Plan, StoodStill
from examples.forge.yard.crew import CrewEnded
from holdfast.runtime.embedded import EmbeddedServer

DONE, FAILED, INTERRUPTED = 0, 1, 130


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that has to be there before the story begins."""

    folder: Path
    server_url: str
    settings: Settings


@contextmanager
def prepared() -> Iterator[Stage]:
    """Set a database, a GitHub and an empty forge up in a temporary folder, and take them away again."""
    # A short name: the path of PostgreSQL's socket, which lies in there, may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="forge", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with EmbeddedServer(folder / "pg") as postgres, LoopbackGitHub(folder / "github") as github:
            yield opened(folder, postgres.dsn, github.url)


def opened(folder: Path, server_url: str, github_url: str) -> Stage:
    """Make the forge's database and settings on a running server, as impatient as a demo has to be."""
    settings = Settings(
        database_url=server.create_database(server_url),
        root=folder / "the forge",
        github_url=github_url,
        trending_every=5,
        sweep_every=2,
        retry_base=1,
    )
    settings.save()
    commands.run(settings, "migrate")
    database.migrate(settings.database_url)
    return Stage(folder, server_url, settings)


def play(stage: Stage, scale: Scale, console: Console) -> bool:
    """Play the story and print how it ended; True if the check found nothing wrong."""
    with connect(stage.settings.database_url, autocommit=True) as connection:
        with (
            Screen(console, scale.pushes) as screen,
            Fleet(stage.settings, stage.folder / "logs", workers=scale.workers, ttl=scale.ttl) as fleet,
        ):
            forge = build(stage.settings)
            story = Story(forge, connection, stage.server_url, scale, tell=screen.tell, show=screen.show)
            crowd = story.play(fleet, stage.folder / "clients")
        report.show(console, connection, crowd.ledger, story.death, seconds=story.seconds)
        check = Check(
            connection, stage.settings.root, crowd.ledger, story.doomed, story.death, fleet.exit_codes
        )
        return report.judge(console, check.findings(), "Was every push processed exactly once?")


def play_on(stage: Stage, plan: Plan, console: Console) -> bool:
    """Play the second act on what the first one has left; True if its inspection found nothing wrong."""
    console.print("\n[bold]The second act:[/] commands on machines that never see the database\n")
    return act.play(stage.settings, stage.folder / "yard", plan, console)


def main() -> int:
    """Run the demo; answers the exit status."""
    # A polite end looks like Ctrl-C: everything that was begun is taken away again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Where nobody looks on, a file has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=110)
    try:
        console.print("starting PostgreSQL, a GitHub on loopback and an empty forge")
        with prepared() as stage:
            return DONE if play(stage, Scale(), console) and play_on(stage, Plan(), console) else FAILED
    except (TookTooLong, WorkerEnded, StoodStill, CrewEnded) as error:
        console.print(f"the demo failed: {error}", markup=False)
        return FAILED
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
