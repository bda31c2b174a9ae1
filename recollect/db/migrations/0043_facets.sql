-- What a search asks of a document. On one server it is the document itself; where Citus spreads the
-- index over several, a table beside `entries` and `chunks` takes the place of the view, and the
-- functions do something (`recollect/db/spread.sql`, docs/decisions/0042).
create view facets as
  select id, org_id, container_tags, scope, filepath, metadata, group_pairs, gone_at,
         chunks, status in ('done', 'failed') as settled
    from documents;

-- Before entries of these documents, locked, are written: how many chunks each will have; null
-- while some of its entries are such that no chunk places.
create function facet(ids text[], chunks int[]) returns void language sql as '';

-- First in a transaction that takes entries away and writes other tables: all servers commit, or none.
create function fence() returns void language sql as '';

-- About how many entries there are, and in how many shards.
create function index_shape(out entries bigint, out shards int) language sql stable
  as $$ select reltuples::int8, 1 from pg_class where oid = 'entries'::regclass $$;

-- What they take, without their indexes.
create function index_bytes() returns bigint language sql
  as $$ select pg_relation_size('entries') $$;

-- Ask how many there are, now and then; here the planner keeps it.
create function measure_index() returns void language sql as '';

do $do$
declare
  past text := quote_ident(current_schema() || '_as_of');
begin
  execute format($sql$
    create view %1$s.facets as
      select id, org_id, container_tags, scope, filepath, metadata, group_pairs, gone_at,
             chunks, true as settled
        from %1$s.documents
  $sql$, past);
end
$do$;
