-- What the HTTP service needs: who may come in, and what repeated requests were answered.

-- Who may come in.  The text of a token is shown once and kept by nobody here: sha256 is of it.  A token of a runner
-- speaks for worker_id alone; one of an assignment for one attempt of one job as well.
create table holdfast.tokens (
    id           bigint generated always as identity primary key,
    name         text not null check (length(name) between 1 and 200),
    sha256       bytea not null unique check (length(sha256) = 32),
    role         text not null check (role in ('admin', 'operator', 'producer', 'viewer', 'registrar', 'runner',
                                               'assignment')),
    worker_id    bigint,
    job_id       bigint,
    attempt      integer,
    created_by   text not null,
    created_at   timestamptz not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    check ((worker_id is not null) = (role in ('runner', 'assignment'))),
    check ((job_id is not null) = (role = 'assignment') and (attempt is not null) = (role = 'assignment'))
) with (fillfactor = 80);

-- The name of a person's or program's token stands in the audit log, so no two valid ones share it.
create unique index tokens_name on holdfast.tokens (name)
    where revoked_at is null and role in ('admin', 'operator', 'producer', 'viewer', 'registrar');
create index tokens_worker on holdfast.tokens (worker_id) where worker_id is not null;
create index tokens_job on holdfast.tokens (job_id) where job_id is not null;

-- What a request with an idempotency key was answered, so that a repeated one gets the same answer and does nothing.
-- token_id is 0 where nobody needs a token; sha256 is of the request's body.
create table holdfast.request_keys (
    token_id   bigint not null,
    key        text not null check (length(key) between 1 and 200),
    sha256     bytea not null check (length(sha256) = 32),
    answer     text,
    created_at timestamptz not null,
    primary key (token_id, key)
);
create index request_keys_age on holdfast.request_keys (created_at);

-- From which network address an act came; null where it was done on the database itself.  Whatever writes to the log
-- in a transaction of the service says so by this setting of the transaction: no statement can forget it.
alter table holdfast.audit_log
    add address text default nullif(current_setting('holdfast_audit.address', true), '');
-- What machines enqueue is noted as well, and is the only thing in the log that is forgotten.
create index audit_log_enqueues on holdfast.audit_log (at) where action = 'job.enqueue';

-- The arguments of a command as people are shown them: without the values of the variables that its `secrets` names.
-- Plain SQL may have written anything, so nothing is taken for granted.
create function holdfast.masked_args(args jsonb) returns jsonb
language sql immutable
as $$
    select case
        when jsonb_typeof($1 -> 'env') = 'object' and jsonb_typeof($1 -> 'secrets') = 'array' then
            jsonb_set($1, '{env}', (
                select coalesce(jsonb_object_agg(e.name, case when $1 -> 'secrets' ? e.name then '"***"' else e.value end), '{}')
                from jsonb_each($1 -> 'env') as e (name, value)))
        else $1
    end
$$;

-- The arguments of a job as people are shown them.  Apart from masked_args, so that it costs others nothing.
create function holdfast.shown_args(kind text, args jsonb) returns jsonb
language sql immutable
as $$ select case when $1 = 'command' then holdfast.masked_args($2) else $2 end $$;
