"""How things run: the one shape of a service, events, settings."""
