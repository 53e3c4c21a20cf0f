"""Exact limits: two jobs of a queue at once in the whole fleet, and one for each customer.

It prints:
    at once: 2
    at once for ada: 1
"""

import os
import subprocess
import time

import holdfast

app = holdfast.App()
Span = tuple[float, float]


@app.job(queue="reports")
def report(seconds: float) -> Span:
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


def most(spans: list[Span]) -> int:
    return max(sum(one[0] <= began < one[1] for one in spans) for began, _ in spans)


if __name__ == "__main__":
    subprocess.run(["holdfast", "queues", "limit", "reports", "2", "--create"], check=True, stdout=-3)
    with holdfast.SyncClient(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        spans: dict[str, list[Span]] = {"ada": [], "bob": [], "cy": []}
        handles = [(name, client.enqueue(report.job(0.1), concurrency_key=name)) for name in 3 * list(spans)]
        for name, handle in handles:
            spans[name].append(client.wait(handle.id, timeout=30))
    print("at once:", most([span for own in spans.values() for span in own]))
    print("at once for ada:", most(spans["ada"]))
