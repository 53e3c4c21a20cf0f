"""The runner program: claims assignments over HTTPS and runs them.  It never sees the database."""
