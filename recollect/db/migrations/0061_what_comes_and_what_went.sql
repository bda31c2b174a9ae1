-- An endpoint that is limited to container tags is told `document.done` or `document.failed` of a
-- document that comes to one of these, too. `known` are the tags by which an endpoint is aware of
-- the document without this event: those that the document keeps, or those that it had.
drop function tell_endpoints(text, text, text[], boolean, jsonb, text[]);
create function tell_endpoints(owner text, event text, labels text[], whole boolean, told jsonb,
                               known text[] default '{}')
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
    and (known = '{}' or not e.tags && known)
  for key share of e -- waits for whoever deletes one
$$;

create or replace function document_ended() returns trigger language plpgsql as $$
begin
  if exists (select from endpoints where org_id = new.org_id) then
    perform tell_endpoints(new.org_id, 'document.' || new.status, new.container_tags, false,
      jsonb_build_object('id', new.id, 'status', new.status, 'type', new.kind,
        'connectionId', new.connection_id, 'revision', new.revision)
      || case when new.status = 'failed' then jsonb_build_object('code', new.error_code)
         else jsonb_build_object('chunks', new.chunks, 'embedded', new.embedded,
           'reused', new.reused, 'removed', new.removed) end,
      case when new.status = old.status then old.container_tags else '{}' end);
  end if;
  return null;
end $$;

create trigger document_came after update of container_tags on documents for each row
  when (old.container_tags is distinct from new.container_tags
        and old.status = new.status and new.status in ('done', 'failed'))
  execute function document_ended();

-- Whether anything was deleted since a moment, for a stream of events that comes back.
create index receipts_recent on receipts (org_id, deleted_at);
