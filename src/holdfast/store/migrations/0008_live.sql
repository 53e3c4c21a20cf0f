-- What the live feed and deliveries read: history by time.  Both look at what ended since they last looked, and only
-- while somebody wants to know; whoever ends jobs pays next to nothing for it.

-- History is written in the order of its time, so that one entry for each 32 pages finds it.
create index finished_jobs_time on holdfast.finished_jobs using brin (finished_at)
    with (pages_per_range = 32, autosummarize = on);
create index attempts_time on holdfast.attempts using brin (ended_at)
    with (pages_per_range = 32, autosummarize = on);

-- ---------------------------------------------------------------------------------------------
-- Deliveries out: the ends of attempts and jobs, told to URLs.

-- Who wants to be told of what: of events, in queues and of kinds, of all where there are none.  The secret signs.
create table holdfast.endpoints (
    id         bigint generated always as identity primary key,
    name       text not null unique check (length(name) between 1 and 200),
    url        text not null check (length(url) <= 2000),
    secret     text not null,
    events     text[] not null check (events <> '{}'),
    queues     text[] not null default '{}',
    kinds      text[] not null default '{}',
    created_by text not null,
    created_at timestamptz not null
);

-- One event for one endpoint.  carrier_id is the job that delivers it, with its attempts, its backoff and, where it
-- fails, its place among the dead.  status and problem are of the last try.
create table holdfast.deliveries (
    id           bigint generated always as identity primary key,
    endpoint_id  bigint not null,
    job_id       bigint not null,
    event        text not null,
    at           timestamptz not null,
    body         text not null,
    carrier_id   bigint,
    created_at   timestamptz not null,
    delivered_at timestamptz,
    status       integer,
    problem      text,
    unique (endpoint_id, job_id, event, at)
) with (fillfactor = 80);
create index deliveries_carrier on holdfast.deliveries (carrier_id);

-- How far history was looked at for deliveries.  Everything before is committed and was seen.
create table holdfast.delivery_places (
    source text primary key check (source in ('jobs', 'attempts')),
    moment timestamptz not null,
    job_id bigint not null default 0
);
insert into holdfast.delivery_places (source, moment) values ('jobs', '-infinity'), ('attempts', '-infinity');
