-- What repeated requests were answered.

-- name: reserve_request
-- Enters key $2 of token $1 for a request with the hash $3, before what it asks for is done in the same transaction.
-- Waits for another request with this key.  Zero rows: it was answered before.
insert into holdfast.request_keys (token_id, key, sha256, created_at)
values ($1::bigint, $2::text, $3::bytea, holdfast.now())
on conflict (token_id, key) do nothing
returning key;

-- name: answer_request
-- Keeps the answer $3 of the request with key $2 of token $1.
update holdfast.request_keys r set answer = $3::text where r.token_id = $1::bigint and r.key = $2::text
returning r.key;

-- name: answered_request
-- What the request with key $2 of token $1 was answered, and the hash of that request.
select r.sha256, r.answer from holdfast.request_keys r where r.token_id = $1::bigint and r.key = $2::text;

-- name: prune_requests
-- Forgets up to $3 answers that are older than $2 seconds.  Zero rows: none is.  Only for the leader of term $1.
delete from holdfast.request_keys r
where r.ctid = any (array(
    select old.ctid from holdfast.request_keys old
    where old.created_at < holdfast.now() - make_interval(secs => $2::double precision)
      and exists (select from holdfast.leader d where d.term = $1::bigint and d.expires_at > holdfast.now())
    limit $3::integer
))
returning r.token_id;
