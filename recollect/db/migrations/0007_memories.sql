-- A memory is one fact, in one container tag. Who corrects it adds a version: a row that has the
-- old one as its parent; the versions share the id of the first as their root. `is_latest` is true
-- of the last version alone. What is forgotten stays, with the reason, but nobody is shown it.
--
-- Each memory has at least one source: a document, and where in it. With the last of them it goes;
-- what it corrected is the latest again. So whatever removes documents removes what is known of
-- them. Memories that are added directly have a document of their own, with the source `memories`,
-- which is never processed.

create table memories (
  id            text primary key,
  org_id        text not null references orgs on delete cascade,
  tag           text not null,
  content       text not null check (content <> ''),
  version       int not null default 1 check (version > 0),
  parent_id     text,                  -- the version before; null when there is none any more
  root_id       text,                  -- the first version, maybe gone by now; null in itself
  is_latest     boolean not null default true,
  is_static     boolean not null default false,
  is_inference  boolean not null default false,
  buckets       text[] not null default '{}', -- keys of profile buckets
  metadata      jsonb check (jsonb_typeof(metadata) = 'object'),
  temporal      jsonb check (jsonb_typeof(temporal) = 'object'), -- documentDate, eventDate
  forget_after  timestamptz,
  forget_reason text,
  forgotten_at  timestamptz,
  forget_batch  text,                  -- those that one request forgot
  created_at    timestamptz not null default now(),
  updated_at    timestamptz not null default now(),

  -- as of `entries`, but for the numbers of the scope: the columns above say that
  terms         int4[] not null,
  weights       sparsevec(1000000000) not null,
  embedding     halfvec
);
create index memories_tag on memories (org_id, tag, updated_at desc, id desc);
create index memories_content on memories (org_id, tag, md5(content)) where is_latest;
create index memories_chain on memories (root_id) where root_id is not null;
create index memories_parent on memories (parent_id) where parent_id is not null;
create index memories_terms on memories using gin (terms);

-- Evidence. `hash` is that of a chunk text, and the offsets count from its beginning; it is empty
-- where the document has no chunks, and they count from the beginning of its text.
create table memory_sources (
  memory_id   text not null references memories on delete cascade,
  document_id text not null references documents on delete cascade,
  hash        bytea not null,
  start_at    int not null check (start_at >= 0),
  end_at      int not null check (end_at > start_at),
  primary key (memory_id, document_id, hash, start_at)
);
create index memory_sources_document on memory_sources (document_id, hash);

-- What follows from what, besides versions: a memory extends another, or derives from it.
create table memory_relations (
  memory_id text not null references memories on delete cascade,
  target_id text not null references memories on delete cascade check (target_id <> memory_id),
  relation  text not null check (relation in ('extends', 'derives')),
  primary key (memory_id, target_id)
);
create index memory_relations_target on memory_relations (target_id);

-- Chunk texts of a document from which memories were drawn, whether or not any came of it.
create table memory_reads (
  document_id text not null references documents on delete cascade,
  hash        bytea not null,
  primary key (document_id, hash)
);

create function forget_unsourced() returns trigger language plpgsql as $$
begin
  -- Two that take the last two sources away at the same time must see each other.
  perform from memories m where m.id in (select memory_id from gone) order by m.id for update;
  delete from memories m where m.id in (select memory_id from gone)
    and not exists (select from memory_sources s where s.memory_id = m.id);
  return null;
end $$;

create trigger forget_unsourced after delete on memory_sources
  referencing old table as gone for each statement execute function forget_unsourced();

create function mend_versions() returns trigger language plpgsql as $$
begin
  with recursive orphan (id, parent_id) as (
    select m.id, g.parent_id from gone g join memories m on m.parent_id = g.id
    union all
    select o.id, g.parent_id from orphan o join gone g on g.id = o.parent_id
  )
  update memories m set parent_id = o.parent_id from orphan o
   where m.id = o.id and (o.parent_id is null or o.parent_id not in (select id from gone));
  update memories m set is_latest = true
   where not m.is_latest and m.id in (select parent_id from gone)
     and not exists (select from memories c where c.parent_id = m.id);
  return null;
end $$;

create trigger mend_versions after delete on memories
  referencing old table as gone for each statement execute function mend_versions();

-- A document that changes its tag takes along the memories of which it is the only source there,
-- and in a merge of tags all. For others it is no evidence any more.
create function move_memories() returns trigger language plpgsql as $$
declare
  added text := (select t.tag from unnest(new.container_tags) with ordinality as t (tag, n)
                 where t.tag <> all (old.container_tags) order by t.n limit 1);
begin
  update memories m set tag = added
   where added is not null and m.tag <> all (new.container_tags)
     and exists (select from memory_sources s where s.memory_id = m.id and s.document_id = new.id)
     and (exists (select from tag_merges g where g.org_id = new.org_id and g.finished_at is null
                  and g.target = added and m.tag = any (g.sources))
          or not exists (select from memory_sources s join documents d on d.id = s.document_id
                         where s.memory_id = m.id and m.tag = any (d.container_tags)));
  delete from memory_sources s using memories m
   where s.document_id = new.id and m.id = s.memory_id and m.tag <> all (new.container_tags);
  return null;
end $$;

create trigger move_memories after update of container_tags on documents
  for each row when (old.container_tags is distinct from new.container_tags)
  execute function move_memories();
