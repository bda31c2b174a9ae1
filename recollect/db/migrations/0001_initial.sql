-- The document row is the queue. `due_at` says when a worker may next take it: now for a queued
-- row, later after a failed attempt, the end of the lease while one works on it, never (null)
-- once it is done or failed. A lease that ran out is simply due again.
--
-- What searchers see is `entries` and `chunks`. An entry is what the index holds for one chunk
-- text of one document (lexical terms and a vector); it never changes, so an edit inserts and
-- deletes only what changed. A chunk says where in the stored text an entry stands.
--
-- Tenants: every row of content belongs to one organisation, and every number in `terms` is a hash
-- salted with that organisation, so that one tenant's search never walks another's postings.

create extension if not exists vector;

create table orgs (
  id         text primary key,
  name       text not null unique,
  plan       text not null check (plan in ('free', 'pro', 'scale', 'enterprise')),
  created_at timestamptz not null default now()
);

-- Keys are 256 random bits, so a plain SHA-256 is enough to keep them.
create table keys (
  id         text primary key,
  org_id     text not null references orgs on delete cascade,
  name       text not null,
  hash       bytea not null unique,
  scope      text not null check (scope in ('read', 'write', 'admin')),
  tags       text[] check (cardinality(tags) > 0),
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz
);
create index keys_org on keys (org_id);

create table settings (
  org_id     text primary key references orgs on delete cascade,
  data       jsonb not null,
  updated_at timestamptz not null default now()
);

create table tags (
  org_id         text not null references orgs on delete cascade,
  name           text not null,
  entity_context text check (char_length(entity_context) <= 1500),
  created_at     timestamptz not null default now(),
  updated_at     timestamptz not null default now(),
  primary key (org_id, name)
);

create table documents (
  id               text primary key,
  org_id           text not null references orgs on delete cascade,
  custom_id        text,
  container_tags   text[] not null check (cardinality(container_tags) > 0),
  scope            int4[] not null,       -- numbers of the organisation and of each tag
  kind             text not null,         -- `type` on the wire
  title            text,
  url              text,
  source           text not null,         -- api, upload, or the provider
  filepath         text,
  metadata         jsonb check (jsonb_typeof(metadata) = 'object'),
  document_date    timestamptz,
  task_type        text not null default 'memory' check (task_type in ('memory', 'superrag')),

  -- the newest accepted content
  content          text,
  content_hash     bytea not null,
  blob             text,                  -- key in the blob store
  blob_name        text,
  blob_mime        text,
  forced_kind      text,
  revision         int not null default 1,

  -- the queue
  status           text not null default 'queued'
                   check (status in ('queued', 'processing', 'done', 'failed')),
  stage            text check (stage in ('extracting', 'chunking', 'embedding', 'indexing')),
  due_at           timestamptz default now(),
  attempts         int not null default 0, -- of this revision; counted when claimed
  claims           bigint not null default 0, -- of all time; fences a worker that lost its lease
  error_code       text,
  error_message    text,

  -- what searchers see
  indexed_revision int,
  text             text,
  chunks           int not null default 0,
  reused           int not null default 0, -- these three: by the last finished revision
  embedded         int not null default 0,
  removed          int not null default 0,
  timings          jsonb not null default '{}',
  warnings         text[] not null default '{}',

  created_at       timestamptz not null default now(),
  updated_at       timestamptz not null default now(),

  check ((due_at is null) = (status in ('done', 'failed'))),
  check ((stage is null) or (status = 'processing')),
  check (content is not null or blob is not null)
);

create unique index documents_custom_id on documents (org_id, custom_id, (container_tags[1]))
  where custom_id is not null;
create index documents_due on documents (due_at) where due_at is not null;
create index documents_created on documents (org_id, created_at desc, id desc);
create index documents_updated on documents (org_id, updated_at desc, id desc);
create index documents_scope on documents using gin (scope);
create index documents_metadata on documents using gin (metadata jsonb_path_ops);
create index documents_in_flight on documents (org_id, content_hash) where due_at is not null;

create table entries (
  document_id text not null references documents on delete cascade,
  hash        bytea not null,
  text        text not null,
  terms       int4[] not null,            -- the document's scope, then the numbers of its words
  weights     sparsevec(1000000000) not null, -- BM25, the document's side
  embedding   halfvec,                    -- of index_settings.dimensions; null without an embedder
  primary key (document_id, hash)
);
create index entries_terms on entries using gin (terms);

create table chunks (
  document_id text not null references documents on delete cascade,
  position    int not null,
  start_at    int not null,
  end_at      int not null check (end_at > start_at),
  hash        bytea not null,
  primary key (document_id, position)
);

-- In how many entries a number stands: of a word, of a tag, of the organisation.
create table term_counts (
  org_id  text not null references orgs on delete cascade,
  number  int4 not null,
  entries int not null,
  primary key (org_id, number)
) with (fillfactor = 70);

-- Which model made the vectors; the vector index is made for its dimensions at the first start.
create table index_settings (
  only_row   boolean primary key default true check (only_row),
  embedder   text not null,
  dimensions int not null
);

-- Blobs that no row names any more, until they are gone from the store.
create table doomed_blobs (
  key       text primary key,
  doomed_at timestamptz not null default now()
);
