"""What an application calls: `asynchronous` is written, `synchronous` is generated from it."""
