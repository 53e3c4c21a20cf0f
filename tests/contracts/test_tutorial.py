"""The tutorials are run: their files are written, their commands run, the output compared."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial.md", "tutorial-workflows.md")
BLOCK = re.compile(r"^```(python|ini|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|ini))\n")
COMMAND = re.compile(r"(?P<line>.+?)(?P<once> +# once .*)?(?: +# ends with (?P<code>\d+).*)?")
ADDRESS = "HOLDFAST_DATABASE_URL"
PRINTED = re.compile(rf"^ +export {ADDRESS}='(.+)'$")


def says(printed: bytes, expected: str) -> bool:
    """Whether a command has printed what the page says; three dots stand for whatever."""
    wanted = r"\s+".join(".*".join(map(re.escape, word.split("..."))) for word in expected.split())
    return re.fullmatch(wanted, printed.decode().strip(), re.DOTALL) is not None


class Reader:
    """Somebody who does what the page says, in a folder of their own and at two terminals.

    The first one runs `holdfast up`, which starts a database of its own.  The other one knows the address of
    that once it was told to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = {name: value for name, value in os.environ.items() if name != ADDRESS} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "COLUMNS": "200",
            # Tests that run at once cannot all serve on the usual port; 0 is a free one.
            "HOLDFAST_HTTP_PORT": "0",
        }
        self.second = dict(self.first)
        self.up: asyncio.subprocess.Process | None = None
        self.printed = ""

    async def follow(self, language: str, text: str) -> None:
        """Do one block of the page."""
        if language != "console":
            named = FILE.match(text)
            assert named is not None, f"a file without a name on the page: {text[:60]!r}"
            (self.folder / named[1]).write_text(text)
            return
        for entry in re.split(r"^(?=\$ |\^C$)", text, flags=re.MULTILINE)[1:]:
            line, _, expected = entry.partition("\n")
            line = line.removeprefix("$ ")
            if line == "^C":
                await self.interrupt()
            elif line.startswith("holdfast up"):
                await self.start(line)
            elif line.startswith(f"export {ADDRESS}="):
                self.take_the_address()
            else:
                await self.type(line, expected)

    async def start(self, line: str) -> None:
        """Start `up` in the first terminal, where nothing else runs by now."""
        assert self.up is None
        self.up = await asyncio.create_subprocess_shell(
            f"exec {line}", cwd=self.folder, env=self.first, stdout=asyncio.subprocess.PIPE
        )
        self.printed = await address_printed(self.up)
        assert self.printed == self.second.get(ADDRESS, self.printed), "the page says that it stays the same"

    def take_the_address(self) -> None:
        """Set in the second terminal what `up` has printed in the first."""
        self.second[ADDRESS] = self.printed
        # The tutorial's own tests would start another server, which costs seconds.
        self.second["PYTEST_ADDOPTS"] = f"--holdfast-database-url={self.printed}"

    async def type(self, line: str, expected: str) -> None:
        """Run one command line in the second terminal."""
        parts = COMMAND.fullmatch(line)
        assert parts is not None
        process = await asyncio.create_subprocess_shell(
            f"exec {parts['line']}",
            cwd=self.folder,
            env=self.second,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            printed, _ = await process.communicate()
        if parts["once"] and not says(printed, expected):
            # A reader looks again until it is so; the test as a whole has its time.
            await self.type(line, expected)
            return
        assert process.returncode == int(parts["code"] or 0), printed.decode()
        assert says(printed, expected), f"{line} printed {printed.decode()!r}"

    async def interrupt(self) -> None:
        """Stop `up`, as Ctrl-C does; its database stops with it."""
        process, self.up = self.up, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            assert await process.wait() == 0


async def address_printed(process: asyncio.subprocess.Process) -> str:
    """Wait for the last of the lines with which `up` begins, and return the address that is among them."""
    assert process.stdout is not None
    address = ""
    async with asyncio.timeout(60):
        while not (line := (await process.stdout.readline()).decode()).startswith("stop"):
            assert not process.stdout.at_eof()
            if found := PRINTED.match(line):
                address = found[1]
    assert address
    return address


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    """A reader with an empty folder, who stops what they have started."""
    # Not under pytest's own folder: the path of a unix socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as folder:
        reader = Reader(Path(folder))
        try:
            yield reader
        finally:
            await reader.interrupt()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
async def test_a_tutorial_does_what_it_says(reader: Reader, page: str) -> None:
    """From the first job to the tests, every block holds."""
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert len(blocks) > 10
    for language, text in blocks:
        await reader.follow(language, text)
