-- What a restart need not find out again.  Both matter where dead rows cannot be removed, for somebody forgot to end a
-- transaction: whoever starts anew would walk over all that was done since.

-- settled holds for each queue the places up to which this worker has found that nothing is left for any of its kinds, and
-- nothing can turn up any more; see rules/marks.py.  cleared is set once it has ended and holds no job: no rescue looks again.
alter table holdfast.workers
    add column settled jsonb,
    add column cleared boolean not null default false;

-- Marks up to *most* workers that have ended and hold nothing, so that nobody looks for their jobs again; answers their
-- ids.  Runners are left out, for they come back.  Locks the workers' rows, skipping those of claims under way; their jobs are
-- looked for by a statement of its own, which sees what every claim before the lock has written.  Later ones find that
-- their worker has ended.  Only for the leader of term *leader_term*.
create function holdfast.clear_workers(leader_term bigint, most integer) returns setof bigint
language plpgsql as $$
#variable_conflict use_column
declare
    ended bigint[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'clearing workers needs a transaction that is read committed, not %',
            current_setting('transaction_isolation') using errcode = 'invalid_transaction_state';
    end if;
    ended := array(
        select w.id from holdfast.workers w
        where w.state in ('lost', 'offline') and not w.cleared and w.term is null
          and exists (select from holdfast.leader d where d.term = leader_term and d.expires_at > holdfast.now())
        order by w.id limit most
        for update skip locked
    );
    return query
        update holdfast.workers w set cleared = true
        where w.id = any (ended)
          and not exists (select from holdfast.live_jobs l where l.worker_id = any (array[w.id]))
          and not exists (select from holdfast.bundles b where b.worker_id = any (array[w.id]))
        returning w.id;
end
$$;
