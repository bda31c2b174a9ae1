-- What was known then, of those documents alone whose scope holds the numbers that the transaction
-- names (`db.look_back`): of all others a search as of a time read every passage, and of every tenant.
-- Where Citus has the index, its functions stay as `recollect/db/spread.sql` made them.
do $do$
declare
  ours text := quote_ident(current_schema());
  past text := quote_ident(current_schema() || '_as_of');
begin
  execute format($sql$
    create function %1$s.within() returns int4[] language sql stable
      as 'select coalesce(nullif(current_setting(''recollect.as_of_scope'', true), ''''), ''{}'')::int4[]'
  $sql$, past);
  if (select relkind from pg_class where oid = (ours || '.facets')::regclass) <> 'v' then
    return;
  end if;
  execute format($sql$
    create or replace function %2$s.known_chunks()
      returns table (document_id text, "position" integer, start_at integer, end_at integer,
                     hash bytea, place jsonb)
      language sql stable as $f$
        select c.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
          from %1$s.chunks c join %1$s.documents d on d.id = c.document_id
         where d.scope @> %2$s.within() and d.text_since <= %2$s.moment()
        union all
        select v.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
          from %1$s.versions v join %1$s.version_chunks c on c.version_id = v.id
         where not v.doomed and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment()
      $f$
  $sql$, ours, past);
  execute format($sql$
    create or replace function %2$s.known_entries()
      returns table (document_id text, hash bytea, text text, terms integer[], weights sparsevec,
                     embedding halfvec, embedding_b halfvec)
      language sql stable as $f$
        select e.document_id, e.hash, e.text, e.terms, e.weights, e.embedding, e.embedding_b
          from %1$s.entries e join %1$s.documents d on d.id = e.document_id
         where d.scope @> %2$s.within()
           and case when d.text_since <= %2$s.moment()
                    then d.status in ('done', 'failed')
                         or exists (select from %1$s.chunks c
                                     where c.document_id = e.document_id and c.hash = e.hash)
                    else exists (select from %1$s.versions v
                                   join %1$s.version_chunks c on c.version_id = v.id
                                  where v.document_id = e.document_id and c.hash = e.hash
                                    and not v.doomed and v.known_from <= %2$s.moment()
                                    and v.known_until > %2$s.moment()) end
        union all
        select k.document_id, k.hash, k.text, d.scope || k.terms, k.weights,
               case when k.model_a = (select case i.slot when 'a' then i.embedder
                                      else i.other_embedder end from %1$s.index_settings i)
                    then k.embedding end,
               case when k.model_b = (select case i.slot when 'b' then i.embedder
                                      else i.other_embedder end from %1$s.index_settings i)
                    then k.embedding_b end
          from %1$s.version_entries k join %1$s.documents d on d.id = k.document_id
         where d.scope @> %2$s.within()
           and exists (select from %1$s.versions v
                         join %1$s.version_chunks c on c.version_id = v.id
                        where v.document_id = k.document_id and c.hash = k.hash
                          and not v.doomed and v.known_from <= %2$s.moment()
                          and v.known_until > %2$s.moment())
           and not exists (select from %1$s.entries e
                            where e.document_id = k.document_id and e.hash = k.hash)
      $f$
  $sql$, ours, past);
end
$do$;
