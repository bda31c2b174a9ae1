-- Older texts of documents, for organisations that keep them (`keepVersions`), and what was known at
-- a time: a schema whose `documents`, `chunks` and `entries` hide the tables of the same names from
-- whoever puts it first in its search path (`recollect/documents/_versions.py`).
alter table documents add column text_since timestamptz not null default now();

create table versions (
  id             bigint generated always as identity primary key,
  document_id    text not null references documents on delete cascade,
  revision       integer not null,
  kind           text not null,
  title          text,
  text           text not null,
  characters     integer not null,
  container_tags text[] not null,
  chunks         integer not null,
  known_from     timestamptz not null,
  known_until    timestamptz not null,
  doomed         boolean not null default false
);
create index versions_document on versions (document_id, known_until);
create index versions_doomed on versions (id) where doomed;

create table version_chunks (
  version_id bigint not null references versions on delete cascade,
  position   integer not null,
  start_at   integer not null,
  end_at     integer not null,
  hash       bytea not null,
  place      jsonb not null default '{}',
  primary key (version_id, position)
);

-- Entries that only older texts have; `terms` without the numbers of organisation and tags, which
-- the document's row has. Vectors count while the index is of the model that made them.
create table version_entries (
  document_id text not null references documents on delete cascade,
  hash        bytea not null,
  text        text not null,
  terms       integer[] not null,
  weights     sparsevec(1000000000) not null,
  embedding   halfvec,
  embedding_b halfvec,
  model_a     text,
  model_b     text,
  primary key (document_id, hash)
);

do $do$
declare
  ours text := quote_ident(current_schema());
  past text := quote_ident(current_schema() || '_as_of');
begin
  execute format('drop schema if exists %s cascade', past);
  execute format('create schema %s', past);
  execute format($sql$
    create function %s.moment() returns timestamptz language sql stable
      as 'select current_setting(''recollect.as_of'')::timestamptz'
  $sql$, past);
  -- Tags count that the document had then and has still: no key sees by its past what it may not
  -- touch today, nor today's document as it was under a tag that the key may not touch.
  execute format($sql$
    create view %2$s.documents as
      select d.id, d.org_id, d.custom_id, d.container_tags, d.scope, d.kind, d.title, d.url,
             d.source, d.filepath, d.metadata, d.document_date, d.task_type, null::text as content,
             d.content_hash, d.blob, d.blob_name, d.blob_mime, d.forced_kind,
             d.indexed_revision as revision, 'done'::text as status, null::text as stage,
             null::timestamptz as due_at, 0 as attempts, d.claims, null::text as error_code,
             null::text as error_message, d.indexed_revision, d.text, d.chunks, d.reused,
             d.embedded, d.removed, d.timings, d.warnings, d.created_at, d.updated_at,
             d.connection_id, d.source_id, d.dreaming, d.archive_id, d.archive_path, d.unpacked,
             d.gone_at, d.gone_by, d.group_pairs, d.text_since
        from %1$s.documents d
       where d.indexed_revision is not null and d.text_since <= %2$s.moment()
      union all
      select d.id, d.org_id, d.custom_id,
             array(select had.tag from unnest(d.container_tags) with ordinality as had (tag, nth)
                    where had.tag = any (v.container_tags) order by had.nth),
             d.scope, v.kind, v.title, d.url,
             d.source, d.filepath, d.metadata, d.document_date, d.task_type, null::text,
             d.content_hash, d.blob, d.blob_name, d.blob_mime, d.forced_kind,
             v.revision, 'done', null::text, null::timestamptz, 0, d.claims, null::text,
             null::text, v.revision, v.text, v.chunks, 0, 0, 0, '{}'::jsonb, '{}'::text[],
             d.created_at, v.known_from, d.connection_id, d.source_id, d.dreaming, d.archive_id,
             d.archive_path, null::jsonb, d.gone_at, d.gone_by, d.group_pairs, v.known_from
        from %1$s.versions v join %1$s.documents d on d.id = v.document_id
       where not v.doomed and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment()
         and d.container_tags && v.container_tags
  $sql$, ours, past);
  -- Functions, and no views over the tables themselves, which a purge and a change of the model
  -- write anew: PostgreSQL reads their text when it plans, and looks through them.
  execute format($sql$
    create function %2$s.known_chunks()
      returns table (document_id text, "position" integer, start_at integer, end_at integer,
                     hash bytea, place jsonb)
      language sql stable as $f$
        select c.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
          from %1$s.chunks c join %1$s.documents d on d.id = c.document_id
         where d.text_since <= %2$s.moment()
        union all
        select v.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
          from %1$s.versions v join %1$s.version_chunks c on c.version_id = v.id
         where not v.doomed and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment()
      $f$
  $sql$, ours, past);
  execute format('create view %1$s.chunks as select * from %1$s.known_chunks()', past);
  execute format($sql$
    create function %2$s.known_entries()
      returns table (document_id text, hash bytea, text text, terms integer[], weights sparsevec,
                     embedding halfvec, embedding_b halfvec)
      language sql stable as $f$
        select e.document_id, e.hash, e.text, e.terms, e.weights, e.embedding, e.embedding_b
          from %1$s.entries e join %1$s.documents d on d.id = e.document_id
         where case when d.text_since <= %2$s.moment()
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
         where exists (select from %1$s.versions v
                         join %1$s.version_chunks c on c.version_id = v.id
                        where v.document_id = k.document_id and c.hash = k.hash
                          and not v.doomed and v.known_from <= %2$s.moment()
                          and v.known_until > %2$s.moment())
           and not exists (select from %1$s.entries e
                            where e.document_id = k.document_id and e.hash = k.hash)
      $f$
  $sql$, ours, past);
  execute format('create view %1$s.entries as select * from %1$s.known_entries()', past);
end
$do$;
