-- An endpoint or a stream that is limited to container tags is told that a document is deleted as
-- soon as the document has none of these tags, whether it was deleted or moved. `still` are the tags
-- that the document keeps; endpoints that hear of one of these are not told.
drop function tell_endpoints(text, text, text[], boolean, jsonb);
create function tell_endpoints(owner text, event text, labels text[], whole boolean, told jsonb,
                               still text[] default '{}')
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
    and (still = '{}' or not e.tags && still)
  for key share of e -- waits for whoever deletes one
$$;

-- Streams get the tags before and after, as far as both fit into a notice (see 0004).
create function tell_moved() returns trigger language plpgsql as $$
declare
  before json := to_json(old.container_tags);
  labels json := to_json(new.container_tags);
begin
  if octet_length(before::text) + octet_length(labels::text) < 7000
     and exists (select from watchers where expires_at > now()) then
    perform pg_notify('recollect_documents', json_build_object(
      'org', new.org_id, 'id', new.id, 'kind', new.kind, 'stage', new.stage, 'status', new.status,
      'before', before, 'tags', labels,
      'at', (extract(epoch from clock_timestamp()) * 1000)::bigint)::text);
  end if;
  if exists (select from endpoints where org_id = new.org_id) then
    perform tell_endpoints(new.org_id, 'document.deleted', old.container_tags, false,
      jsonb_build_object('id', new.id, 'status', 'deleted', 'connectionId', new.connection_id),
      new.container_tags);
  end if;
  return null;
end $$;

create trigger tell_moved after update of container_tags on documents
  for each row when (old.container_tags is distinct from new.container_tags)
  execute function tell_moved();
