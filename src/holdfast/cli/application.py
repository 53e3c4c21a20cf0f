"""Finds the application that ``--app module:name`` names."""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from pathlib import Path

from holdfast.app.registry import App
from holdfast.errors import AppNotFound, SettingInvalid


def application(address: str | None) -> App:
    """Import the `App` at ``module:name``, looking in the working folder too.

    Raises `AppNotFound`, also for what is no Python.  What the module itself raises while it is imported
    passes through: its traceback says more than we could.
    """
    if address is None:
        msg = "app is not set: give --app module:name, or set HOLDFAST_APP"
        raise SettingInvalid(msg, setting="app")
    module_name, _, path = address.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is missing further down is a fault of the application, not of the address.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise AppNotFound(address, f"there is no module {error.name!r} here or installed") from error
    except SyntaxError as error:
        # The traceback of this one shows only how modules are imported.
        line = f": {error.text.strip()}" if error.text else ""
        raise AppNotFound(address, f"{error.filename}, line {error.lineno}: {error.msg}{line}") from error
    try:
        found = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise AppNotFound(address, f"module {module_name!r} has no {path!r}") from error
    if not isinstance(found, App):
        raise AppNotFound(address, f"it is a {type(found).__name__}, not a holdfast.App")
    return found
