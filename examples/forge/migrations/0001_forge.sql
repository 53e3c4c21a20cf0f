-- The forge's own tables.  They live in the database that holds Holdfast's, in a schema of their own.

create table forge.repositories (
    id          bigint generated always as identity primary key,
    owner       text not null,
    name        text not null,
    head_sha    text,
    push_count  bigint not null default 0,
    size_bytes  bigint,
    measured_at timestamptz,
    created_at  timestamptz not null default now(),
    unique (owner, name)
);

-- One row for each ref of each push, written by the hook together with its job.  push_id is made by the
-- hook before it first tries, so an event that is written, doubted and written again is still one event.
create table forge.push_events (
    id            bigint generated always as identity primary key,
    push_id       uuid not null,
    repository_id bigint not null references forge.repositories (id) on delete cascade,
    pusher        text not null,
    ref           text not null check (length(ref) between 1 and 4096),
    before_sha    text not null check (length(before_sha) between 1 and 64),
    after_sha     text not null check (length(after_sha) between 1 and 64),
    pushed_at     timestamptz not null,
    spooled       boolean not null default false,
    recorded_at   timestamptz not null default now(),
    processed_at  timestamptz,
    unique (push_id, ref)
);
create index push_events_waiting on forge.push_events (id) where processed_at is null;
create index push_events_recent on forge.push_events (pushed_at, repository_id);

-- What processing a push leaves behind.  There is no unique constraint on event_id, on purpose: if a push were
-- processed twice, it would show here, and the demo's check looks for it.
create table forge.activities (
    id            bigint generated always as identity primary key,
    event_id      bigint not null,
    repository_id bigint not null references forge.repositories (id) on delete cascade,
    pusher        text not null,
    ref           text not null,
    change        text not null check (change in ('created', 'updated', 'forced', 'deleted')),
    commits       integer not null,
    job_id        bigint not null,
    attempt       integer not null,
    made_at       timestamptz not null default now()
);
create index activities_event on forge.activities (event_id);

create table forge.imports (
    id           bigint generated always as identity primary key,
    organisation text not null,
    status       text not null default 'requested' check (status in ('requested', 'discovered', 'failed')),
    problem      text,
    requested_at timestamptz not null default now()
);

create table forge.import_repositories (
    id            bigint generated always as identity primary key,
    import_id     bigint not null references forge.imports (id) on delete cascade,
    name          text not null,
    status        text not null default 'found' check (status in ('found', 'imported', 'gone', 'refused')),
    problem       text,
    repository_id bigint references forge.repositories (id) on delete set null,
    unique (import_id, name)
);

-- Append-only: every tick adds one snapshot of the ranking.
create table forge.trending_snapshots (
    id          bigint generated always as identity primary key,
    computed_at timestamptz not null default now(),
    ranking     jsonb not null
);
