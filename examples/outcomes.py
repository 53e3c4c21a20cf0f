"""What a handler can come to: a result, an error, Retry, Snooze, Cancel, Poison.

It prints:
    attempt 3 after 2 failures
    attempt 2 after 0 failures
    job 3 was cancelled: the account is gone
    job 4 failed: poison: Poison: no such currency
"""

import os
from datetime import timedelta

import holdfast

app = holdfast.App()


@app.job(max_attempts=5, retry=holdfast.Constant(timedelta(milliseconds=10)))
def work(job: holdfast.Job, like: str) -> object:
    if like == "flaky" and job.failures == 0:
        raise ConnectionError("the first try fails")  # rests as the retry policy says
    if like == "flaky" and job.failures == 1:
        return holdfast.Retry(delay=0.01, reason="not ready")  # a failure too, rests as said here
    if like == "patient" and job.attempt == 1:
        return holdfast.Snooze(0.01)  # costs nothing
    if like == "pointless":
        return holdfast.Cancel("the account is gone")
    if like == "hopeless":
        raise holdfast.Poison("no such currency")  # fails at once
    return f"attempt {job.attempt} after {job.failures} failures"


if __name__ == "__main__":
    with holdfast.SyncClient(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        for like in ("flaky", "patient", "pointless", "hopeless"):
            handle = client.enqueue(work.job(like=like))
            try:
                print(client.wait(handle.id, timeout=30))
            except (holdfast.JobCancelled, holdfast.JobFailed) as error:
                print(error)
