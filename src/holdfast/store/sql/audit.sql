-- name: list_audit
-- Up to $4 acts of operators before id $3, newest first; of one subject or actor where $1 or $2 is given.
select a.id, a.at, a.actor, a.action, a.subject, a.reason, a.detail::text,
       a.address
from holdfast.audit_log a
where ($1::text is null or a.subject = $1::text) and ($2::text is null or a.actor = $2::text)
  and ($3::bigint is null or a.id < $3::bigint)
order by a.id desc limit $4::integer;

-- name: write_audit
-- Notes an act that another statement of the same transaction did.
insert into holdfast.audit_log (at, actor, action, subject, reason, detail)
values (holdfast.now(), $1::text, $2::text, $3::text, $4::text, $5::jsonb)
returning id;

-- name: note_address
-- Says for whom the rest of this transaction is done: what it writes to the audit log has address $1.
select set_config('holdfast_audit.address', $1::text, true);

-- name: prune_enqueues
-- Forgets up to $3 notes of who enqueued what that are older than $2 seconds.  Acts of operators stay.  Zero rows: none is that
-- old.  Only for the leader of term $1.
delete from holdfast.audit_log a
where a.ctid = any (array(
    select old.ctid from holdfast.audit_log old
    where old.action = 'job.enqueue' and old.at < holdfast.now() - make_interval(secs => $2::double precision)
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning a.id;
