"""The only place that knows SQL: statements as values, connections, migrations, LISTEN.

`store/<noun>.py` has one function for each block of `store/sql/<noun>.sql`, with the same name.
A function returns a `Statement` and does no I/O; `Database` runs statements on asyncpg and
`foreign` runs them inside a caller's own transaction.
"""
