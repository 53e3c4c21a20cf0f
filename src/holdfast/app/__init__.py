"""The registry that a user fills: kinds, handlers, signatures, policies, middleware, schedules."""
