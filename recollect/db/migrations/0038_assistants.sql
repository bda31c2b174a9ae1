-- Assistants that came in by OAuth: programs that registered, what a key allowed them, and their
-- tokens, of which only digests are kept.
create table oauth_clients (
  id            text primary key,
  name          text not null,
  redirect_uris text[] not null,
  created_at    timestamptz not null default now()
);
create index oauth_clients_age on oauth_clients (created_at);

create table assistants (
  id           text primary key,
  org_id       text not null references orgs on delete cascade,
  key_id       text not null references keys on delete cascade,
  client_id    text not null references oauth_clients on delete cascade,
  scope        text not null check (scope in ('read', 'write')),
  tags         text[] check (cardinality(tags) > 0),
  created_at   timestamptz not null default now(),
  last_used_at timestamptz
);
create index assistants_org on assistants (org_id, created_at);
create index assistants_key on assistants (key_id);
create index assistants_client on assistants (client_id);

create table assistant_tokens (
  hash         bytea primary key,
  assistant_id text not null references assistants on delete cascade,
  kind         text not null check (kind in ('code', 'access', 'refresh')),
  redirect_uri text,
  challenge    text,
  expires_at   timestamptz not null,
  spent_at     timestamptz
);
create index assistant_tokens_assistant on assistant_tokens (assistant_id);
create index assistant_tokens_expiry on assistant_tokens (expires_at);
