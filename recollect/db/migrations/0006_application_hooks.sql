-- Secrets of pushes that belong to an application, not to a connection (Notion). What an
-- unauthenticated handshake brought is pending until the operator confirms it.
create table hook_secrets (
  provider     text not null,
  hash         bytea not null,            -- SHA-256, so that the same token comes once
  secret       text not null,             -- sealed
  came_at      timestamptz not null default now(),
  confirmed_at timestamptz,
  primary key (provider, hash)
);
