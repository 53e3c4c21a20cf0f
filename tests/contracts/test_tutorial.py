"""The tutorials are run: their files are written, their commands run, the output compared."""

import asyncio
import os
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial.md", "tutorial-workflows.md")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
COMMAND = re.compile(r"(?P<line>.+?)(?P<behind> &)?(?P<once> +# once .*)?(?: +# ends with (?P<code>\d+).*)?")


def says(printed: bytes, expected: str) -> bool:
    """Whether a command has printed what the page says; three dots stand for whatever."""
    wanted = r"\s+".join(".*".join(map(re.escape, word.split("..."))) for word in expected.split())
    return re.fullmatch(wanted, printed.decode().strip(), re.DOTALL) is not None


class Reader:
    """Somebody who does what the page says, in a folder and with a database of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "HOLDFAST_DATABASE_URL": url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "COLUMNS": "200",
            # Tests that run at once cannot all serve on the usual port; 0 is a free one.
            "HOLDFAST_HTTP_PORT": "0",
            # The tutorial's own tests would start another server, which costs seconds.
            "PYTEST_ADDOPTS": f"--holdfast-database-url={url}",
        }
        self.behind: asyncio.subprocess.Process | None = None

    async def follow(self, language: str, text: str) -> None:
        """Do one block of the page."""
        if language == "python":
            named = FILE.match(text)
            assert named is not None, f"a file without a name on the page: {text[:60]!r}"
            (self.folder / named[1]).write_text(text)
            return
        for entry in re.split(r"^(?=\$ |\^C$)", text, flags=re.MULTILINE)[1:]:
            line, _, expected = entry.partition("\n")
            if line == "^C":
                await self.interrupt()
            else:
                await self.type(line.removeprefix("$ "), expected)

    async def type(self, line: str, expected: str) -> None:
        """Run one command line; one that ends with & goes on beside the others."""
        parts = COMMAND.fullmatch(line)
        assert parts is not None
        process = await asyncio.create_subprocess_shell(
            f"exec {parts['line']}",
            cwd=self.folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if parts["behind"] else asyncio.subprocess.STDOUT,
        )
        if parts["behind"]:
            self.behind = process
            await said_how_to_stop(process)
            return
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()
        if parts["once"] and not says(printed, expected):
            # A reader looks again until it is so; the test as a whole has its time.
            await self.type(line, expected)
            return
        assert process.returncode == int(parts["code"] or 0), printed.decode()
        assert says(printed, expected), f"{line} printed {printed.decode()!r}"

    async def interrupt(self) -> None:
        """Stop what runs beside, as Ctrl-C does."""
        process, self.behind = self.behind, None
        if process is not None:
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0


async def said_how_to_stop(process: asyncio.subprocess.Process) -> None:
    """Wait for the last of the lines with which `up` begins."""
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while not (await process.stdout.readline()).startswith(b"stop"):
            assert not process.stdout.at_eof()


@pytest.fixture
async def reader(dsn: str, tmp_path: Path) -> AsyncIterator[Reader]:
    """A reader with an empty folder and an empty database."""
    name = f"tutorial_{secrets.token_hex(4)}"
    admin = await asyncpg.connect(dsn)
    await admin.execute(f"create database {name}")
    reader = Reader(tmp_path, re.sub(r"(?<=[^/]/)[^/?]+(?=\?|$)", name, dsn, count=1))
    try:
        yield reader
    finally:
        await reader.interrupt()
        await admin.execute(f"drop database {name} with (force)")
        await admin.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
async def test_a_tutorial_does_what_it_says(reader: Reader, page: str) -> None:
    """From the first job to the tests, every block holds."""
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert len(blocks) > 10
    for language, text in blocks:
        await reader.follow(language, text)
