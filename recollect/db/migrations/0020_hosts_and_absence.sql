-- Since when a provider has let us read nothing: after a month of that its connection has failed, and
-- nothing is asked until somebody wants a sync.
alter table connections
  add column away_since timestamptz,
  drop constraint connections_state_check,
  drop constraint connections_check,
  add constraint connections_state_check
    check (state in ('pending', 'ready', 'syncing', 'needs_auth', 'failed')),
  add constraint connections_check
    check (state not in ('pending', 'needs_auth', 'failed') or due_at is null);

-- When crawls may ask a host again, over all processes and organisations.
create table crawled_hosts (
  host       text primary key,            -- with its port, if it has one of its own
  next_at    timestamptz not null,        -- the next turn that is free
  rest_until timestamptz,                 -- the host asked to be left alone until then
  guests     jsonb not null default '{}'  -- crawls that are there: connection → how long that counts
);
create index crawled_hosts_next on crawled_hosts (next_at);
