"""A process worker: claims jobs, runs their handlers, renews its lease, reports, drains.

The parts, in the order in which a job meets them:

    claimer     asks for as many jobs as there is room for, and only then sleeps
    buffer      the claimed jobs that no slot has taken yet, best first
    slots       a fixed number of coroutines that take jobs from the buffer
    perform     runs one attempt: arguments, middleware, handler, timeout; comes to a decision
    reporter    writes decisions in batches, fenced
    lease       renews the worker's row from a thread of its own
    journal     keeps log lines and progress and writes them behind the handler's back
"""
