"""Where the forge keeps things: one settings file, read by workers, hooks and commands alike."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "forge.json"
FILE_VARIABLE = "FORGE_SETTINGS"


class SettingsMissing(Exception):
    """Nobody said where the settings file is, or it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The forge's settings; all times in seconds.

    *root* holds the repositories, *database_url* both Holdfast's tables and the forge's own, so that an
    event and its job commit together.  *retry_base* is the first pause after an error; it doubles.
    """

    database_url: str
    root: Path
    github_url: str = "https://api.github.com"
    trending_every: float = 3600.0
    sweep_every: float = 60.0
    retry_base: float = 30.0

    @property
    def file(self) -> Path:
        """The place of the settings file."""
        return self.root / FILE_NAME

    def save(self) -> Path:
        """Write the settings file; only its owner may read it: it may hold a password."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.file.touch(mode=0o600)
        self.file.write_text(json.dumps(asdict(self) | {"root": str(self.root)}, indent=2), "utf-8")
        return self.file


def load(file: Path) -> Settings:
    """Read a settings file."""
    stored = json.loads(file.read_text("utf-8"))
    return Settings(**stored | {"root": Path(stored["root"])})


def from_environment() -> Settings:
    """Read the settings file that ``FORGE_SETTINGS`` names; raises `SettingsMissing`."""
    place = os.environ.get(FILE_VARIABLE)
    if not place or not Path(place).is_file():
        msg = (
            f"{FILE_VARIABLE} is {place!r}: set it to the path of a {FILE_NAME}, which `Settings.save` writes"
        )
        raise SettingsMissing(msg)
    return load(Path(place))
