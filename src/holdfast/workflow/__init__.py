"""Durable runs: replay, steps, waits, branches, compensation."""
