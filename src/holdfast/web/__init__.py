"""The service: what Holdfast does, over HTTP.  No SQL and no decisions are here."""
