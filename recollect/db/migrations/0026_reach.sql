-- The container tags of the limited keys that made and changed a connection: what its patterns find
-- is cut to them. Null: it may write into every tag of its organisation.
alter table connections
  add column reach text[],
  add constraint connections_reach check (container_tags <@ reach);  -- null passes

-- Who made those that are there already stands in the audit log.
update connections c
set reach = (select array_agg(distinct tag) from unnest(k.tags || c.container_tags) as tag)
from audit_log a join keys k on a.actor = 'key:' || k.id
where a.action = 'connection.created' and a.object = c.id and a.org_id = c.org_id
  and k.org_id = c.org_id and k.tags is not null;

-- Which key made a link to authorize: the link ends with it.
alter table authorizations add column key_id text references keys on delete cascade;
create index authorizations_key on authorizations (key_id);

-- Who is signed in to the console.
create table sessions (
  id         bytea primary key,     -- SHA-256 of what the browser keeps
  key_id     text not null references keys on delete cascade,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index sessions_key on sessions (key_id);
