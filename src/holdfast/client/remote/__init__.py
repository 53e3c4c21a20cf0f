"""What an operator does, over HTTP: the same verbs as on the database."""
