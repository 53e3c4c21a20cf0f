"""The root of all errors."""

from __future__ import annotations


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises on purpose."""
