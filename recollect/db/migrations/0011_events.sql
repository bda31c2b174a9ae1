-- Events out: where an organisation wants them (endpoints), and what is still to be told or was
-- (deliveries). The rows are written by triggers, so in the transaction of the change and by
-- whatever makes it; an organisation without endpoints costs one look into an index.
create table endpoints (
  id              text primary key,
  org_id          text not null references orgs on delete cascade,
  url             text not null,
  description     text not null default '',
  events          text[] not null check (cardinality(events) > 0),
  tags            text[] check (cardinality(tags) > 0), -- only of these container tags; null: all
  secret          text not null,         -- sealed
  old_secret      text,                  -- sealed: signs beside the new one until old_until
  old_until       timestamptz,
  key_id          text,                  -- of whoever made it
  failures        int not null default 0, -- attempts in a row that failed
  failing_since   timestamptz,
  rest_until      timestamptz not null default now(), -- after a failure it is left alone a while
  disabled_at     timestamptz,
  disabled_reason text,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  check ((failures = 0) = (failing_since is null)),
  check ((disabled_at is null) = (disabled_reason is null))
);
create index endpoints_org on endpoints (org_id);

-- Its own queue, as documents are: `due_at` is when to send next, or the end of the lease.
create table deliveries (
  id          text primary key,          -- `webhook-id`, the same at each attempt
  endpoint_id text not null references endpoints on delete cascade,
  type        text not null,
  payload     jsonb not null,            -- no content: ids, status, tags, counts
  state       text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
  due_at      timestamptz default now(),
  attempts    int not null default 0,    -- counted when claimed
  log         jsonb not null default '[]', -- the last attempts: {at, status, reason, ms}
  created_at  timestamptz not null default clock_timestamp(),
  ended_at    timestamptz,
  check ((due_at is null) = (state <> 'pending')),
  check ((ended_at is null) = (state = 'pending'))
);
create index deliveries_due on deliveries (endpoint_id, due_at) where due_at is not null;
create index deliveries_listed on deliveries (endpoint_id, created_at desc, id desc);
create index deliveries_ended on deliveries (ended_at) where ended_at is not null;

-- `whole`: an endpoint that is limited to tags hears of it only when it has all of the labels (of a
-- connection), else when it has any (of a document); it is never told other tags.
create function tell_endpoints(owner text, event text, labels text[], whole boolean, told jsonb)
returns void language sql as $$
  insert into deliveries (id, endpoint_id, type, payload)
  select 'msg_' || replace(gen_random_uuid()::text, '-', ''), e.id, event, jsonb_build_object(
      'type', event,
      'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'data', told || jsonb_build_object('containerTags', array(
        select label from unnest(labels) as label where e.tags is null or label = any (e.tags))))
  from endpoints e join orgs o on o.id = e.org_id
  where e.org_id = owner and e.disabled_at is null and event = any (e.events)
    and (e.tags is null or case when whole then labels <@ e.tags else labels && e.tags end)
$$;

create function document_ended() returns trigger language plpgsql as $$
begin
  if exists (select from endpoints where org_id = new.org_id) then
    perform tell_endpoints(new.org_id, 'document.' || new.status, new.container_tags, false,
      jsonb_build_object('id', new.id, 'status', new.status, 'type', new.kind,
        'connectionId', new.connection_id, 'revision', new.revision)
      || case when new.status = 'failed' then jsonb_build_object('code', new.error_code)
         else jsonb_build_object('chunks', new.chunks, 'embedded', new.embedded,
           'reused', new.reused, 'removed', new.removed) end);
  end if;
  return null;
end $$;

create trigger document_ended after update of status on documents for each row
  when (old.status is distinct from new.status and new.status in ('done', 'failed'))
  execute function document_ended();

create function documents_gone() returns trigger language plpgsql as $$
begin
  if exists (select from endpoints) then
    perform tell_endpoints(d.org_id, 'document.deleted', d.container_tags, false,
      jsonb_build_object('id', d.id, 'status', 'deleted', 'connectionId', d.connection_id))
    from gone d where d.org_id in (select org_id from endpoints);
  end if;
  return null;
end $$;

create trigger documents_gone after delete on documents referencing old table as gone
  for each statement execute function documents_gone();

create function sync_ended() returns trigger language plpgsql as $$
begin
  perform tell_endpoints(c.org_id,
    case when new.status = 'failed' then 'sync.failed' else 'sync.completed' end,
    c.container_tags, true,
    jsonb_build_object('id', new.id, 'connectionId', c.id, 'provider', c.provider,
      'status', new.status, 'trigger', new.trigger, 'added', new.added, 'changed', new.changed,
      'unchanged', new.unchanged, 'removed', new.removed, 'failed', new.failed,
      'skipped', new.skipped, 'code', new.error_code))
  from connections c where c.id = new.connection_id
    and exists (select from endpoints e where e.org_id = c.org_id);
  return null;
end $$;

create trigger sync_ended after update of status on sync_runs for each row
  when (old.status = 'running' and new.status <> 'running') execute function sync_ended();

create function connection_lost() returns trigger language plpgsql as $$
begin
  perform tell_endpoints(new.org_id, 'connection.needs_auth', new.container_tags, true,
    jsonb_build_object('id', new.id, 'provider', new.provider, 'status', new.state,
      'code', new.error_code));
  return null;
end $$;

create trigger connection_lost after update of state on connections for each row
  when (old.state is distinct from new.state and new.state = 'needs_auth')
  execute function connection_lost();

-- Who did what. Append-only: rows are never changed, and go only by age, when the sweep says so.
-- No reference to orgs: the record outlives them.
create table audit_log (
  id      bigint generated always as identity primary key,
  at      timestamptz not null default now(),
  org_id  text,
  actor   text not null,                 -- `key:ID`, `cli`, `service`, `nobody`
  action  text not null,
  object  text,                          -- an id or a name, never content
  result  text not null check (result in ('done', 'refused')),
  address text,
  request text,                          -- id of the request, as in the log
  details jsonb not null default '{}'    -- counts and names
);
create index audit_log_org on audit_log (org_id, id desc);
create index audit_log_at on audit_log (at);

create function keep_audit() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    if old.at < now() - interval '1 hour'
       and current_setting('recollect.sweep_audit', true) = 'on' then
      return old;
    end if;
  end if;
  raise exception 'the audit log is append-only';
end $$;

create trigger keep_audit before update or delete on audit_log
  for each row execute function keep_audit();
create trigger keep_all_audit before truncate on audit_log
  for each statement execute function keep_audit();

-- What processes counted, added up now and then: numbers that only grow, for /metrics.
create table tallies (
  name   text not null,
  labels jsonb not null,
  value  double precision not null,
  primary key (name, labels)
) with (fillfactor = 50);

-- How each stage of processing fares, whatever the document: failures of its own in a row.
create table stage_health (
  stage     text primary key,
  failures  int not null,
  ok_at     timestamptz,
  failed_at timestamptz,
  code      text
) with (fillfactor = 50);

-- The organisation of the canary is shown to nobody.
alter table orgs add column hidden boolean not null default false;

create table canary (
  only_row boolean primary key default true check (only_row),
  due_at   timestamptz not null,
  ran_at   timestamptz,
  ok       boolean,
  reason   text,
  ms       double precision
);
