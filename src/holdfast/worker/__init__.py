"""A process worker: claims jobs, runs their handlers, renews its lease, reports, drains.

The parts, in the order in which a job meets them; `worker` puts them together, `config` has their settings.

Claim
    claimer         asks for as many jobs as there is room for, and only then sleeps
    wake_level      of which jobs a worker is told, and how long it rests
    overtaking      what is more urgent than what was claimed ahead
    prefetch        how far ahead of its slots it claims
    intake          claims into the buffer, and gives back what cannot stay there
    claims          claims from queues without limits, from the places that it remembers
    bundles         which attempts stand in bundles, and how they leave them
    limits          what is known of the limits of queues
    permits         how permits of limited queues go from job to job
    turnover        how fast such jobs end, and so how many are claimed ahead of permits
    openings        room under limits that came about here, for somebody else
    buffer          the claimed jobs that no slot has taken yet, best first
Run
    slots           a fixed number of coroutines that take jobs from the buffer
    turns           lets the loop turn between handlers that never wait
    running         one attempt while it is held, and the set of all of them
    perform         runs one attempt: arguments, middleware, handler, timeout; comes to a decision
    run_middleware  a run inside its middleware
    eager           a coroutine that has run up to its first wait
    deadlines       one timer for the timeouts of all handlers
    executors       the places where sync handlers run
    threads         in threads that the process does not wait for at its end
    processes       in child processes that can be killed
    child           what runs in a child process: one handler after the other
    wire            what a worker and its child processes say to each other
    endings         what a handler came to, wherever it ran
    port            what stands behind the `Job` of a handler: its wishes, fenced
    transaction     a handler's own transaction
    ledger          the way of a run to the database and to the executors
    run_reader      reads what runs remember
    lifespan        what the application keeps open for as long as its worker runs
Report
    reporter        writes decisions in batches, fenced
    backlog         what is to be written, by the statement that writes it
    step_writer     writes what runs remember, in batches as well
    journal         keeps log lines and progress and writes them behind the handler's back
Keep the lease
    lease           renews the worker's row from a thread of its own
    attention       cancels asked for, handlers begun from the buffer, a lost worker registered anew
    strays          what the worker may hold without knowing it
"""
