-- An endpoint that is limited to container tags is told of a connection only if that writes to nothing
-- else, also by the pattern that finds tags for it: as the API shows it to a limited key.
create function written_tags(tags text[], metadata jsonb, reach text[]) returns text[]
language sql immutable as $$
  select case when coalesce(metadata ->> 'containerTagRegex', '') = '' then tags
              else coalesce(reach, '{*}') end -- `*`, to which no endpoint is limited: any tag
$$;

drop function tell_endpoints(text, text, text[], boolean, jsonb, text[]);
create function tell_endpoints(owner text, event text, labels text[], whole boolean, told jsonb,
                               known text[] default '{}', written text[] default null)
returns void language sql as $$
  insert into deliveries (id, endpoint_id, type, payload)
  select 'msg_' || replace(gen_random_uuid()::text, '-', ''), e.id, event, jsonb_build_object(
      'type', event,
      'timestamp', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'data', told || jsonb_build_object('containerTags', array(
        select label from unnest(labels) as label where e.tags is null or label = any (e.tags))))
  from endpoints e join orgs o on o.id = e.org_id
  where e.org_id = owner and e.disabled_at is null and event = any (e.events)
    and (e.tags is null or case when whole then coalesce(written, labels) <@ e.tags
                                else labels && e.tags end)
    and (known = '{}' or not e.tags && known)
  for key share of e -- waits for whoever deletes one
$$;

create or replace function sync_ended() returns trigger language plpgsql as $$
begin
  perform tell_endpoints(c.org_id,
    case when new.status = 'failed' then 'sync.failed' else 'sync.completed' end,
    c.container_tags, true,
    jsonb_build_object('id', new.id, 'connectionId', c.id, 'provider', c.provider,
      'status', new.status, 'trigger', new.trigger, 'added', new.added, 'changed', new.changed,
      'unchanged', new.unchanged, 'removed', new.removed, 'failed', new.failed,
      'skipped', new.skipped, 'code', new.error_code),
    written => written_tags(c.container_tags, c.metadata, c.reach))
  from connections c where c.id = new.connection_id
    and exists (select from endpoints e where e.org_id = c.org_id);
  return null;
end $$;

create or replace function connection_lost() returns trigger language plpgsql as $$
begin
  perform tell_endpoints(new.org_id, 'connection.needs_auth', new.container_tags, true,
    jsonb_build_object('id', new.id, 'provider', new.provider, 'status', new.state,
      'code', new.error_code),
    written => written_tags(new.container_tags, new.metadata, new.reach));
  return null;
end $$;
