-- Spreads the index over the workers of Citus; once, after the migrations, by the coordinator. Each
-- statement by itself: Citus takes no several in one string.
set local client_min_messages to warning;
--;;
-- References between distributed tables are made one shard after the other.
set local citus.multi_shard_modify_mode to sequential;
--;;
drop view facets;
--;;
create table facets (
  id             text primary key,
  org_id         text not null,
  container_tags text[] not null,
  scope          int4[] not null,
  filepath       text,
  metadata       jsonb,
  group_pairs    jsonb,
  gone_at        timestamptz,
  chunks         int not null,
  settled        boolean not null
);
--;;
create index facets_scope on facets using gin (scope);
--;;
create index facets_metadata on facets using gin (metadata jsonb_path_ops);
--;;
create index facets_groups on facets
  using gin ((group_pairs || coalesce(metadata, '{}')) jsonb_path_ops) where group_pairs is not null;
--;;
insert into facets
  select id, org_id, container_tags, scope, filepath, metadata, group_pairs, gone_at,
         chunks, status in ('done', 'failed')
    from documents where indexed_revision is not null or claims > 0;
--;;
alter table entries drop constraint entries_document_id_fkey;
--;;
alter table chunks drop constraint chunks_document_id_fkey;
--;;
select create_distributed_table('facets', 'id', shard_count => {shards}, colocate_with => 'none');
--;;
select create_distributed_table('entries', 'document_id', colocate_with => 'facets');
--;;
select create_distributed_table('chunks', 'document_id', colocate_with => 'facets');
--;;
alter table entries add constraint entries_document_id_fkey
  foreign key (document_id) references facets on delete cascade;
--;;
alter table chunks add constraint chunks_document_id_fkey
  foreign key (document_id) references facets on delete cascade;
--;;
-- What follows names tables of the coordinator, and stays there.
set local citus.enable_ddl_propagation to off;
--;;
-- Citus commits in two phases, so that all servers do or none, once a transaction has inserted what
-- it selected from a local table, be it nothing. What it changes on one worker by `update` or
-- `delete` it would commit there before it commits here.
--
-- Who looks at all servers in one moment (`citus.still`) waits for the lock, and keeps others out.
create or replace function fence() returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('recollect.index', 0));
  insert into facets (id, org_id, container_tags, scope, chunks, settled)
    select id, org_id, container_tags, scope, chunks, false from documents where false;
end $$;
--;;
create or replace function facet(ids text[], chunks int[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('recollect.index', 0));
  insert into facets as f
    select d.id, d.org_id, d.container_tags, d.scope, d.filepath, d.metadata, d.group_pairs,
           d.gone_at, coalesce(given.chunks, d.chunks), given.chunks is not null
      from documents d join unnest(ids, facet.chunks) as given (id, chunks) using (id)
    on conflict (id) do update set chunks = excluded.chunks, settled = excluded.settled;
end $$;
--;;
-- What the workers' planners know, asked for now and then.
create table index_measured (
  only_row boolean primary key default true check (only_row),
  entries  bigint not null
);
--;;
insert into index_measured (entries) values (0);
--;;
create or replace function index_shape(out entries bigint, out shards int) language sql stable
  as $$ select entries, {shards} from index_measured $$;
--;;
create or replace function index_bytes() returns bigint language sql
  as $$ select citus_relation_size('entries') $$;
--;;
create or replace function measure_index() returns void language sql
  as $$ update index_measured set entries = (
    select coalesce(sum(greatest(result::float8, 0)), 0)
    from run_command_on_shards('entries',
      'select reltuples from pg_class where oid = ''%s''::regclass')
    where success) $$;
--;;
create function unfacet() returns trigger language plpgsql as $$
declare
  ids text[] := array(select id from gone where indexed_revision is not null or claims > 0);
begin
  if cardinality(ids) > 0 then
    perform fence();
    delete from facets where id = any (ids);
  end if;
  return null;
end $$;
--;;
create trigger unfacet after delete on documents referencing old table as gone
  for each statement execute function unfacet();
--;;
create function refacet() returns trigger language plpgsql as $$
declare
  ids text[] := array(select n.id from now_there n join there_before b using (id)
    where (n.container_tags, n.scope, n.filepath, n.metadata, n.group_pairs, n.gone_at)
      is distinct from (b.container_tags, b.scope, b.filepath, b.metadata, b.group_pairs, b.gone_at)
      and (n.indexed_revision is not null or n.claims > 0));
begin
  if cardinality(ids) > 0 then
    perform pg_advisory_xact_lock_shared(hashtextextended('recollect.index', 0));
    insert into facets as f
      select id, org_id, container_tags, scope, filepath, metadata, group_pairs, gone_at, chunks,
             false
        from documents where id = any (ids)
      on conflict (id) do update set container_tags = excluded.container_tags,
        scope = excluded.scope, filepath = excluded.filepath, metadata = excluded.metadata,
        group_pairs = excluded.group_pairs, gone_at = excluded.gone_at;
  end if;
  return null;
end $$;
--;;
create trigger refacet after update on documents
  referencing old table as there_before new table as now_there
  for each statement execute function refacet();
--;;
-- What was known then, as in `0065_past_of_a_scope`: here each side is read by itself.
do $do$
declare
  ours text := quote_ident(current_schema());
  past text := quote_ident(current_schema() || '_as_of');
begin
  execute format($sql$
    create or replace function %2$s.known_chunks()
      returns table (document_id text, "position" integer, start_at integer, end_at integer,
                     hash bytea, place jsonb)
      language plpgsql stable as $f$
      #variable_conflict use_column
      begin
        return query
          with known as materialized (select d.id from %1$s.documents d
            where d.org_id = current_setting('recollect.as_of_org')
              and d.scope @> %2$s.within()
              and d.text_since <= %2$s.moment())
          select c.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
            from known k join %1$s.chunks c on c.document_id = k.id;
        return query
          select v.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
            from %1$s.documents d join %1$s.versions v on v.document_id = d.id
            join %1$s.version_chunks c on c.version_id = v.id
           where d.org_id = current_setting('recollect.as_of_org')
              and d.scope @> %2$s.within() and not v.doomed
             and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment();
      end $f$
  $sql$, ours, past);
  execute format($sql$
    create or replace function %2$s.known_entries()
      returns table (document_id text, hash bytea, text text, terms integer[], weights sparsevec,
                     embedding halfvec, embedding_b halfvec)
      language plpgsql stable as $f$
      #variable_conflict use_column
      begin
        return query
          with known as materialized (select d.id from %1$s.documents d
            where d.org_id = current_setting('recollect.as_of_org')
              and d.scope @> %2$s.within()
              and d.text_since <= %2$s.moment())
          select e.document_id, e.hash, e.text, e.terms, e.weights, e.embedding, e.embedding_b
            from known k join %1$s.entries e on e.document_id = k.id
            join %1$s.facets f on f.id = e.document_id
           where f.settled or exists (select from %1$s.chunks c
                                       where c.document_id = e.document_id and c.hash = e.hash);
        return query
          with held as materialized (select distinct v.document_id, c.hash
            from %1$s.documents d join %1$s.versions v on v.document_id = d.id
            join %1$s.version_chunks c on c.version_id = v.id
           where d.org_id = current_setting('recollect.as_of_org')
              and d.scope @> %2$s.within() and not v.doomed
             and d.text_since > %2$s.moment()
             and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment())
          select e.document_id, e.hash, e.text, e.terms, e.weights, e.embedding, e.embedding_b
            from held h join %1$s.entries e on e.document_id = h.document_id and e.hash = h.hash;
        return query
          with kept as materialized (select k.document_id, k.hash, k.text, d.scope || k.terms,
              k.weights,
              case when k.model_a = (select case i.slot when 'a' then i.embedder
                                     else i.other_embedder end from %1$s.index_settings i)
                   then k.embedding end,
              case when k.model_b = (select case i.slot when 'b' then i.embedder
                                     else i.other_embedder end from %1$s.index_settings i)
                   then k.embedding_b end
            from %1$s.version_entries k join %1$s.documents d on d.id = k.document_id
           where d.org_id = current_setting('recollect.as_of_org')
              and d.scope @> %2$s.within()
             and exists (select from %1$s.versions v
                           join %1$s.version_chunks c on c.version_id = v.id
                          where v.document_id = k.document_id and c.hash = k.hash
                            and not v.doomed and v.known_from <= %2$s.moment()
                            and v.known_until > %2$s.moment())),
          there as materialized (select e.document_id, e.hash
            from kept k join %1$s.entries e on e.document_id = k.document_id and e.hash = k.hash)
          select k.* from kept k where (k.document_id, k.hash) not in (select * from there);
      end $f$
  $sql$, ours, past);
end
$do$;
