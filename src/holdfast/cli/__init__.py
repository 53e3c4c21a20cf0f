"""The command line; `wiring` is the one place where everything is put together."""
