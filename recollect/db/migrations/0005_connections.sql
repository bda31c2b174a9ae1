-- A connection is its own queue entry, as a document is: `due_at` says when a worker may next sync
-- it, and is the end of the lease while one does.
create table connections (
  id             text primary key,
  org_id         text not null references orgs on delete cascade,
  provider       text not null,
  container_tags text[] not null check (cardinality(container_tags) > 0),
  document_limit int not null check (document_limit between 1 and 10000),
  metadata       jsonb not null default '{}',
  secrets        text,                  -- sealed: secret parts of the metadata
  tokens         text,                  -- sealed: the authorization
  expires_at     timestamptz,           -- of the access token
  account        text,                  -- id at the provider of who authorized
  email          text,

  state          text not null check (state in ('pending', 'ready', 'syncing', 'needs_auth')),
  paused         boolean not null default false,
  error_code     text,
  error_message  text,

  cursor         jsonb,
  listings       jsonb not null default '{}', -- that are under way: branch → when it began
  troubled       text[] not null default '{}', -- branches of which nothing may be taken as gone
  held           jsonb not null default '{}', -- mass deletions that wait to be confirmed: branch → count
  call_at        timestamptz,           -- when the next call of its provider is within its rate

  due_at         timestamptz,           -- null: not until something happens
  wanted_at      timestamptz,           -- somebody asked for a sync; kept while another one runs
  wanted_by      text check (wanted_by in ('event', 'cron', 'manual')),
  began_at       timestamptz,           -- of the sync that runs, or was cut off
  claims         bigint not null default 0, -- fences a worker that lost its lease
  attempts       int not null default 0, -- failed syncs in a row
  parked_until   timestamptz,           -- the provider asked to be left alone until then
  last_synced_at timestamptz,
  pushed_at      timestamptz,           -- when a push last came
  created_at     timestamptz not null default now(),
  updated_at     timestamptz not null default now(),

  check (state not in ('pending', 'needs_auth') or due_at is null),
  check (state <> 'syncing' or due_at is not null)
);
create index connections_org on connections (org_id, created_at desc, id desc);
create index connections_due on connections (due_at) where due_at is not null;
create index connections_account on connections (provider, account);

create table sync_runs (
  id            text primary key,
  connection_id text not null references connections on delete cascade,
  trigger       text not null check (trigger in ('event', 'cron', 'manual')),
  status        text not null check (status in ('running', 'completed', 'partial', 'failed')),
  started_at    timestamptz not null default now(),
  finished_at   timestamptz,
  added         int not null default 0,
  changed       int not null default 0,
  unchanged     int not null default 0,
  removed       int not null default 0,
  failed        int not null default 0,
  skipped       jsonb not null default '{}',
  error_code    text,
  error_message text,
  notes         text[] not null default '{}',
  check ((finished_at is null) = (status = 'running'))
);
create index sync_runs_connection on sync_runs (connection_id, started_at desc, id desc);

-- Documents of connections are fetched when they are processed; `source_id` is the provider's id.
alter table documents
  add column connection_id text references connections on delete set null,
  add column source_id     text,
  drop constraint documents_check2,
  add constraint documents_content check
    (content is not null or blob is not null or source_id is not null);
create unique index documents_source on documents (connection_id, source_id)
  where connection_id is not null;

-- What a connection knows of each thing at its provider: documents, and why others are none.
create table items (
  connection_id text not null references connections on delete cascade,
  id            text not null,
  version       text,
  title         text,
  url           text,
  kind          text,
  metadata      jsonb not null default '{}',
  tags          text[] not null default '{}',
  extra         jsonb not null default '{}',
  branch        text not null default '',
  verdict       text not null,          -- `document`, or why it is none
  detail        text,
  document_id   text references documents on delete set null,
  modified_at   timestamptz,
  seen_at       timestamptz not null,
  missing_at    timestamptz,            -- when it was first not found
  primary key (connection_id, id)
);
create index items_document on items (document_id) where document_id is not null;
create index items_verdict on items (connection_id, verdict, id);
create index items_unseen on items (connection_id, seen_at);

create table folders (
  connection_id text not null references connections on delete cascade,
  id            text not null,
  name          text not null,
  parent        text not null,
  primary key (connection_id, id)
);

-- Links to authorize that are under way. The state itself is kept nowhere.
create table authorizations (
  state         bytea primary key,      -- SHA-256
  connection_id text not null references connections on delete cascade,
  verifier      text,                   -- sealed (PKCE)
  redirect_url  text,
  expires_at    timestamptz not null
);
create index authorizations_connection on authorizations (connection_id);

-- Our registrations for pushes.
create table registrations (
  id            text primary key,
  connection_id text not null references connections on delete cascade,
  resource      text not null,
  secret        text not null,          -- sealed
  url           text not null,
  remote        jsonb,                  -- null: the provider has not answered yet
  expires_at    timestamptz,
  renew_at      timestamptz,            -- when it wants to be made anew
  retired       boolean not null default false, -- a newer one is there
  attempts      int not null default 0,
  error         text,
  created_at    timestamptz not null default now()
);
create index registrations_connection on registrations (connection_id);

-- Keys of pushes that came, so that a repetition is none.
create table pushes (
  provider text not null,
  key      text not null,
  came_at  timestamptz not null default now(),
  primary key (provider, key)
);
create index pushes_came on pushes (came_at);

-- What is still to be said to a provider after a connection ended. Sealed; tried for a day.
create table farewells (
  id         text primary key,
  provider   text not null,
  sealed     text not null,
  attempts   int not null default 0,
  due_at     timestamptz not null default now(),
  expires_at timestamptz not null default now() + interval '1 day'
);
create index farewells_due on farewells (due_at);
