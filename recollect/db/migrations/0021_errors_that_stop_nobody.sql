-- A merge whose batch the database refuses each time ends, and keeps no other merge waiting.
alter table tag_merges
  add column failures integer not null default 0,
  add column reason text;

-- An endpoint that is being deleted is waited for, and then it is told nothing: without the lock the
-- reference to it failed, and with that whatever happened to the document.
create or replace function tell_endpoints(owner text, event text, labels text[], whole boolean, told jsonb)
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
  for key share of e
$$;
