"""Decisions: pure functions and values.  Time and chance come in as arguments."""
