-- A merge of container tags, done in batches; the row is what is left to do after a crash.
create table tag_merges (
  id          text primary key,
  org_id      text not null references orgs on delete cascade,
  sources     text[] not null check (cardinality(sources) > 0),
  target      text not null,
  moved       int not null default 0,
  kept        text[] not null default '{}', -- documents that could not be moved
  created_at  timestamptz not null default now(),
  updated_at  timestamptz not null default now(),
  finished_at timestamptz
);
create index tag_merges_unfinished on tag_merges (org_id) where finished_at is null;

-- Processes that want every event; others cost no notification. Unlogged: they say it again.
create unlogged table watchers (
  id         text primary key,
  expires_at timestamptz not null
);

-- What streams of events hear. The end of a document's processing is always told, since someone may
-- begin to watch between the change and its commit; all else only while somebody watches.
create function tell_document() returns trigger language plpgsql as $$
declare
  gone   boolean := tg_op = 'DELETE';
  one    documents := case when tg_op = 'DELETE' then old else new end;
  labels json := to_json(one.container_tags);
begin
  if not gone and one.status in ('done', 'failed')
     or exists (select from watchers where expires_at > now()) then
    perform pg_notify('recollect_documents', json_build_object(
      'org', one.org_id, 'id', one.id, 'kind', one.kind, 'stage', one.stage,
      'status', case when gone then 'deleted' else one.status end,
      -- A notice holds 8000 bytes; what does not fit is told to keys without limits only.
      'tags', case when octet_length(labels::text) < 7000 then labels end,
      'at', (extract(epoch from clock_timestamp()) * 1000)::bigint)::text);
  end if;
  return null;
end $$;

create trigger tell_added after insert or delete on documents
  for each row execute function tell_document();
create trigger tell_changed after update of status, stage on documents
  for each row when ((old.status, old.stage) is distinct from (new.status, new.stage))
  execute function tell_document();
