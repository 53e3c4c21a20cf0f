-- What the live feed and deliveries read: history by time.  Both look at what ended since they last looked, and only
-- while somebody wants to know; whoever ends jobs pays next to nothing for it.

-- History is written in the order of its time, so that one entry for each 32 pages finds it.
create index finished_jobs_time on holdfast.finished_jobs using brin (finished_at)
    with (pages_per_range = 32, autosummarize = on);
create index attempts_time on holdfast.attempts using brin (ended_at)
    with (pages_per_range = 32, autosummarize = on);
