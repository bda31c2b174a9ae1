CREATE SCHEMA public_as_of;
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
COMMENT ON EXTENSION vector IS 'vector data type and ivfflat and hnsw access methods';
CREATE FUNCTION public.connection_lost() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  perform tell_endpoints(new.org_id, 'connection.needs_auth', new.container_tags, true,
    jsonb_build_object('id', new.id, 'provider', new.provider, 'status', new.state,
      'code', new.error_code),
    written => written_tags(new.container_tags, new.metadata, new.reach));
  return null;
end $$;
CREATE FUNCTION public.count_document() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  insert into document_counts (org_id, tag, connection_id, documents, chunks)
  select changed.org_id, changed.tag, changed.connection_id, sum(n), sum(n * changed.chunks)
    from (
      select one.org_id, one.chunks, one.n, of.tag, of.connection_id
        from (values (old.org_id, old.container_tags, old.connection_id, old.chunks, old.gone_at, -1),
                     (new.org_id, new.container_tags, new.connection_id, new.chunks, new.gone_at, 1))
             as one (org_id, tags, connection, chunks, gone_at, n)
       cross join counted_under(one.tags, one.connection) as of
       where one.org_id is not null and one.gone_at is null) as changed
   group by 1, 2, 3
  having sum(n) <> 0 or sum(n * changed.chunks) <> 0;
  return null;
end $$;
CREATE FUNCTION public.count_new_document() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  insert into document_counts (org_id, tag, connection_id, documents, chunks)
  select new.org_id, of.tag, of.connection_id, 1, new.chunks
    from counted_under(new.container_tags, new.connection_id) as of;
  return null;
end $$;
CREATE FUNCTION public.counted_under(tags text[], connection text) RETURNS TABLE(tag text, connection_id text)
    LANGUAGE sql IMMUTABLE
    AS $$
  select '', '' union all select distinct one, '' from unnest(tags) as one
  union all select '', connection where connection is not null
$$;
CREATE FUNCTION public.document_ended() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.documents_gone() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if exists (select from endpoints) then
    perform tell_endpoints(d.org_id, 'document.deleted', d.container_tags, false,
      jsonb_build_object('id', d.id, 'status', 'deleted', 'connectionId', d.connection_id))
    from gone d where d.org_id in (select org_id from endpoints);
  end if;
  return null;
end $$;
CREATE FUNCTION public.facet(ids text[], chunks integer[]) RETURNS void
    LANGUAGE sql
    AS $$$$;
CREATE FUNCTION public.fence() RETURNS void
    LANGUAGE sql
    AS $$$$;
CREATE FUNCTION public.fold_case(said text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$select lower(said collate pg_catalog.pg_c_utf8)$$;
CREATE FUNCTION public.follow_tags(one text, tags text[], home text, sources text[], target text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  locked bigint;
  moved text[];
  copied text[];
begin
  -- Whole chains, in the order in which everybody locks them, and those that say the same where
  -- they may come to.
  with own as materialized (
    select m.org_id, m.tag, m.content, coalesce(m.root_id, m.id) as root
      from memories m join memory_sources s on s.memory_id = m.id where s.document_id = one),
  touched as materialized (
    select o.root from own o
    union
    select coalesce(t.root_id, t.id) from own o
      join memories t on t.org_id = o.org_id and t.tag = any (tags) and t.is_latest
       and md5(t.content) = md5(o.content)
     where o.tag <> all (tags))
  select count(*) into locked from (
    select from memories m
     where m.id in (select t.root from touched t
                     union select v.id from touched t join memories v on v.root_id = t.root)
     order by coalesce(m.root_id, m.id), m.version, m.id for update) as chains;
  if locked = 0 then
    return;
  end if;
  with leaving as (
    select distinct coalesce(m.root_id, m.id) as root, m.tag from memories m
      join memory_sources s on s.memory_id = m.id
     where s.document_id = one and m.tag <> all (tags)),
  alone as (
    select l.root, l.tag from leaving l
     where l.tag = any (sources) or not exists (
           select from memories v join memory_sources s on s.memory_id = v.id
             join documents d on d.id = s.document_id
            where (v.root_id = l.root or v.id = l.root) and l.tag = any (d.container_tags)))
  , gone as (
    update memories m
       set tag = case when a.tag = any (sources) then target else home end
      from alone a
     where (m.root_id = a.root or m.id = a.root) and m.tag = a.tag
    returning m.id)
  select array_agg(id) into moved from gone;
  with supported as (
    select m.id, m.is_latest, m.version, m.updated_at, coalesce(m.root_id, m.id) as root, m.tag
      from memories m
     where m.tag <> all (tags)
       and exists (select from memory_sources s where s.memory_id = m.id and s.document_id = one)),
  copies as (
    select p.id as original, p.root, p.tag, replace(gen_random_uuid()::text, '-', '') as id
      from supported p
     where p.is_latest or p.id = (
           select q.id from supported q where q.root = p.root and q.tag = p.tag
            order by q.is_latest desc, q.version desc, q.updated_at desc limit 1)),
  made as (
    insert into memories (id, org_id, tag, content, is_static, is_inference, buckets, metadata,
        temporal, forget_after, forget_reason, forgotten_at, created_at, updated_at,
        terms, weights, embedding, embedding_b, group_pairs)
      select c.id, m.org_id, home, m.content, m.is_static, m.is_inference,
             m.buckets, m.metadata, m.temporal, m.forget_after,
             coalesce(f.forget_reason, m.forget_reason), coalesce(f.forgotten_at, m.forgotten_at),
             m.created_at, m.updated_at, m.terms, m.weights, m.embedding, m.embedding_b,
             m.group_pairs
        from copies c join memories m on m.id = c.original
        -- Who forgot a memory meant the versions before as well.
        left join lateral (
             select l.forgotten_at, l.forget_reason from memories l
              where not m.is_latest and (l.root_id = c.root or l.id = c.root) and l.tag = c.tag
                and l.is_latest and l.forgotten_at is not null
              order by l.version desc limit 1) f on true
    returning id),
  cited as (
    insert into memory_sources (memory_id, document_id, hash, start_at, end_at)
      select c.id, s.document_id, s.hash, s.start_at, s.end_at
        from copies c join memory_sources s
          on s.memory_id = c.original and s.document_id = one),
  related as (
    insert into memory_relations (memory_id, target_id, relation)
      select c.id, coalesce(t.id, r.target_id), r.relation
        from copies c join memory_relations r on r.memory_id = c.original
        join memories p on p.id = r.target_id
        left join copies t on t.root = coalesce(p.root_id, p.id) and t.tag = p.tag
       where t.id is distinct from c.id
      for key share of p -- or it is gone by now
      on conflict do nothing),
  parted as ( -- what went along from what was copied
    delete from memory_relations r using copies c, memories p, memories m
     where p.id = r.target_id and c.root = coalesce(p.root_id, p.id) and c.tag = p.tag
       and m.id = r.memory_id and m.id = any (moved) and m.tag = home
    returning r.memory_id, c.id, r.relation),
  aimed as (
    insert into memory_relations (memory_id, target_id, relation) select * from parted
      on conflict do nothing),
  lacking as ( -- a vector that the original waits for
    insert into vector_gaps (relation, first, last, size)
      select 'memories', c.id, c.id, 1 from copies c
       where exists (select from vector_gaps g where g.relation = 'memories'
                     and c.original between g.first and g.last)
      on conflict do nothing)
  select array_agg(id) into copied from made;
  delete from memory_sources s using memories m
   where s.document_id = one and m.id = s.memory_id and m.tag <> all (tags);
  perform unite_memories(array_cat(moved, copied));
  perform part_conclusions(array_cat(moved, copied));
end $$;
CREATE FUNCTION public.forget_failure() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  new.told_failure := null;
  return new;
end $$;
CREATE FUNCTION public.forget_item() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  new.title := null;
  new.url := null;
  new.kind := null;
  new.detail := 'deleted here; it stays away';
  new.metadata := '{}';
  new.tags := '{}';
  new.extra := '{}';
  -- Nor what a model said of it.
  delete from judgements where connection_id = new.connection_id and item_id = new.id;
  return new;
end $$;
CREATE FUNCTION public.forget_merges() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  delete from tag_merges m where m.org_id = old.org_id and m.target = old.name
    and m.finished_at is not null;
  return null;
end $$;
CREATE FUNCTION public.forget_unsourced() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  -- Two that take the last two sources away at the same time must see each other, and what somebody
  -- says meanwhile that was a conclusion.
  perform from memories m where m.id in (
    with recursive near (id) as (
      select memory_id from gone
      union
      select r.memory_id from near n
        join memory_relations r on r.target_id = n.id and r.relation = 'derives')
    select id from near) order by m.id for update;
  with recursive ending (id) as (
    select m.id from memories m where m.id in (select memory_id from gone)
       and not exists (select from memory_sources s where s.memory_id = m.id)
    union
    select m.id from ending e
      join memory_relations r on r.target_id = e.id and r.relation = 'derives'
      join memories m on m.id = r.memory_id and m.is_inference)
  delete from memories m where m.id in (select id from ending);
  return null;
end $$;
CREATE TABLE public.index_settings (
    only_row boolean DEFAULT true NOT NULL,
    embedder text NOT NULL,
    dimensions integer NOT NULL,
    slot text DEFAULT 'a'::text NOT NULL,
    choice jsonb,
    other_embedder text,
    other_dimensions integer,
    other_choice jsonb,
    phase text,
    planned_at timestamp with time zone,
    total integer DEFAULT 0 NOT NULL,
    flipped_at timestamp with time zone,
    replaced text,
    build_failure jsonb,
    CONSTRAINT index_settings_check CHECK (((other_embedder IS NULL) = ((phase IS NULL) OR (phase = 'clearing'::text)))),
    CONSTRAINT index_settings_check1 CHECK (((other_embedder IS NULL) = (other_dimensions IS NULL))),
    CONSTRAINT index_settings_only_row_check CHECK (only_row),
    CONSTRAINT index_settings_phase_check CHECK ((phase = ANY (ARRAY['building'::text, 'kept'::text, 'returned'::text, 'clearing'::text]))),
    CONSTRAINT index_settings_slot_check CHECK ((slot = ANY (ARRAY['a'::text, 'b'::text])))
);
CREATE FUNCTION public.hold_index() RETURNS SETOF public.index_settings
    LANGUAGE plpgsql
    AS $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('recollect.index', 0));
  return query select * from index_settings;
end $$;
CREATE FUNCTION public.index_bytes() RETURNS bigint
    LANGUAGE sql
    AS $$ select pg_relation_size('entries') $$;
CREATE FUNCTION public.index_shape(OUT entries bigint, OUT shards integer) RETURNS record
    LANGUAGE sql STABLE
    AS $$ select reltuples::int8, 1 from pg_class where oid = 'entries'::regclass $$;
CREATE FUNCTION public.keep_audit() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if tg_op = 'DELETE' then
    if old.at < now() - interval '1 hour'
       and current_setting('recollect.sweep_audit', true) = 'on' then
      return old;
    end if;
  end if;
  raise exception 'the audit log is append-only';
end $$;
CREATE FUNCTION public.know_tags() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if tg_op = 'UPDATE' and new.container_tags is not distinct from old.container_tags then
    return null;
  end if;
  perform from tags t where t.org_id = new.org_id and t.name = any (new.container_tags)
    order by t.name for key share;
  insert into tags (org_id, name)
    select new.org_id, carried.tag from unnest(new.container_tags) as carried (tag)
     where not exists (select from tags t where t.org_id = new.org_id and t.name = carried.tag)
     order by carried.tag
    on conflict do nothing;
  return null;
end $$;
CREATE FUNCTION public.leave_memories() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
  one record;
begin
  for one in
    select d.id, d.container_tags,
           (select t.tag from unnest(d.container_tags) with ordinality as t (tag, n)
             order by t.tag = any (new.sources) desc, t.n limit 1) as home
      from documents d where d.id in (
           select s.document_id from memories m join memory_sources s on s.memory_id = m.id
            where m.org_id = new.org_id and m.tag = new.target)
       and new.target <> all (d.container_tags)
     order by d.id
  loop
    perform follow_tags(one.id, one.container_tags, one.home, null, null);
  end loop;
  perform part_conclusions(array(
    select c.id from memories c join memory_relations r on r.memory_id = c.id
     where c.org_id = new.org_id and c.tag = any (new.sources || new.target) and c.is_inference));
  return null;
end $$;
CREATE FUNCTION public.measure_index() RETURNS void
    LANGUAGE sql
    AS $$$$;
CREATE FUNCTION public.mend_versions() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
  returned text[];
  one record;
begin
  with recursive orphan (id, parent_id) as (
    select m.id, g.parent_id from gone g join memories m on m.parent_id = g.id
    union all
    select o.id, g.parent_id from orphan o join gone g on g.id = o.parent_id
  )
  update memories m set parent_id = o.parent_id from orphan o
   where m.id = o.id and (o.parent_id is null or o.parent_id not in (select id from gone));
  with restored as (
    update memories m set is_latest = true
     where not m.is_latest and m.id in (select parent_id from gone)
       and not exists (select from memories c where c.parent_id = m.id)
    returning m.id)
  select array_agg(id) into returned from restored;
  if returned is null then
    return null;
  end if;
  update memories m set forgotten_at = g.forgotten_at, forget_reason = g.forget_reason,
         forget_batch = g.forget_batch
    from gone g
   where m.id = any (returned) and m.forgotten_at is null and g.is_latest
     and g.forgotten_at is not null and coalesce(g.root_id, g.id) = coalesce(m.root_id, m.id);
  for one in
    with recursive up (id, top, parent_id) as (
      select m.id, m.id, m.parent_id from memories m where m.id = any (returned)
      union all
      select u.id, p.id, p.parent_id from up u join memories p on p.id = u.parent_id)
    select m.id, u.top, coalesce(m.root_id, m.id) as root
      from up u join memories m on m.id = u.id where u.parent_id is null
     order by u.top = coalesce(m.root_id, m.id), m.id
  loop
    if exists (select from memories m where (m.root_id = one.root or m.id = one.root)
               and m.is_latest and m.id <> one.id) then
      with recursive tree (id) as (
        select one.top
        union all
        select m.id from tree t join memories m on m.parent_id = t.id)
      update memories m set root_id = nullif(one.top, m.id) from tree t where m.id = t.id;
    end if;
  end loop;
  perform unite_memories(returned);
  return null;
end $$;
CREATE FUNCTION public.move_memories() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
  merge record;
begin
  select g.target, g.sources into merge from tag_merges g
   where g.org_id = new.org_id and g.finished_at is null
     and g.target = any (new.container_tags) and g.sources && old.container_tags
   order by g.created_at limit 1;
  perform follow_tags(new.id, new.container_tags, new.container_tags[1], merge.sources,
                      merge.target);
  return null;
end $$;
CREATE FUNCTION public.part_conclusions(near text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  -- Locked before they are chosen: somebody may say meanwhile what was a conclusion.
  perform from memories m where m.id in (
    with recursive touched (id) as (
      select unnest(near)
      union
      select r.memory_id from touched t
        join memory_relations r on r.target_id = t.id and r.relation = 'derives')
    select id from touched) order by m.id for update;
  with recursive ending (id) as (
    select c.id from memory_relations r
      join memories c on c.id = r.memory_id and c.is_inference
      join memories p on p.id = r.target_id and p.tag <> c.tag
     where r.relation = 'derives' and (r.memory_id = any (near) or r.target_id = any (near))
       and not exists (
           select from tag_merges g
            where g.org_id = c.org_id and g.finished_at is null
              and array[c.tag, p.tag] <@ (g.sources || g.target))
    union
    select m.id from ending e
      join memory_relations r on r.target_id = e.id and r.relation = 'derives'
      join memories m on m.id = r.memory_id and m.is_inference)
  delete from memories m where m.id in (select id from ending);
end $$;
CREATE FUNCTION public.queue_dream() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
  due timestamptz := now() + case new.dreaming when 'instant' then interval '0'
                                               else interval '5 seconds' end;
begin
  if new.task_type = 'memory' and new.source <> 'memories' and new.indexed_revision is not null
     and not exists (select from orgs where id = new.org_id and hidden) then
    insert into dreams (document_id, org_id, due_at) values (new.id, new.org_id, due)
    on conflict (document_id) do update set
      due_at = case when dreams.held then dreams.due_at
        -- Who appends without end is read all the same.
        else least(due, greatest(now(), case when dreams.due_at is null then now()
          else dreams.since end + interval '1 minute')) end,
      since = case when dreams.due_at is null or dreams.held then now() else dreams.since end,
      wanted = dreams.wanted + 1, attempts = 0, error_code = null, error_message = null;
  else
    delete from dreams where document_id = new.id;
  end if;
  return null;
end $$;
CREATE FUNCTION public.sync_ended() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.tell_document() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.tell_endpoints(owner text, event text, labels text[], whole boolean, told jsonb, known text[] DEFAULT '{}'::text[], written text[] DEFAULT NULL::text[]) RETURNS void
    LANGUAGE sql
    AS $$
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
CREATE FUNCTION public.tell_moved() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.unite_memories(ids text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  one record;
begin
  for one in
    select same.members[1] as kept, same.members[2:] as others from (
      select array_agg(m.id order by m.id = any (ids) desc, m.updated_at desc, m.id) as members
        from memories m
       where m.is_latest and m.forgotten_at is null
         and (m.forget_after is null or m.forget_after > now())
         and (m.org_id, m.tag, md5(m.content)) in
             (select t.org_id, t.tag, md5(t.content) from memories t where t.id = any (ids))
       group by m.org_id, m.tag, m.content, m.group_pairs) as same
     where cardinality(same.members) > 1
  loop
    insert into memory_sources (memory_id, document_id, hash, start_at, end_at)
      select one.kept, s.document_id, s.hash, s.start_at, s.end_at from memory_sources s
       where s.memory_id = any (one.others) on conflict do nothing;
    -- Who takes one of these away at this moment is waited for: a relation to it cannot be stored.
    perform from memories m where m.id in (
        select r.target_id from memory_relations r where r.memory_id = any (one.others)
        union
        select r.memory_id from memory_relations r where r.target_id = any (one.others))
      order by m.id for key share;
    insert into memory_relations (memory_id, target_id, relation)
      select one.kept, r.target_id, r.relation from memory_relations r
       where r.memory_id = any (one.others) and r.target_id <> one.kept
         and r.target_id <> all (one.others)
      union
      select r.memory_id, one.kept, r.relation from memory_relations r
       where r.target_id = any (one.others) and r.memory_id <> one.kept
         and r.memory_id <> all (one.others)
      on conflict do nothing;
    update memories m set is_inference = false
     where m.id = one.kept and m.is_inference
       and exists (select from memories o where o.id = any (one.others) and not o.is_inference);
    update memories m set is_latest = false where m.id = any (one.others);
    update memories m set root_id = coalesce(k.root_id, k.id)
      from memories k
     where k.id = one.kept and m.id <> coalesce(k.root_id, k.id)
       and coalesce(m.root_id, m.id) in
           (select coalesce(o.root_id, o.id) from memories o where o.id = any (one.others));
  end loop;
end $$;
CREATE FUNCTION public.written_tags(tags text[], metadata jsonb, reach text[]) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
  select case when coalesce(metadata ->> 'containerTagRegex', '') = '' then tags
              else coalesce(reach, '{*}') end -- `*`, to which no endpoint is limited: any tag
$$;
CREATE FUNCTION public_as_of.known_chunks() RETURNS TABLE(document_id text, "position" integer, start_at integer, end_at integer, hash bytea, place jsonb)
    LANGUAGE sql STABLE
    AS $$
        select c.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
          from public.chunks c join public.documents d on d.id = c.document_id
         where d.scope @> public_as_of.within() and d.text_since <= public_as_of.moment()
        union all
        select v.document_id, c.position, c.start_at, c.end_at, c.hash, c.place
          from public.versions v join public.version_chunks c on c.version_id = v.id
         where not v.doomed and v.known_from <= public_as_of.moment() and v.known_until > public_as_of.moment()
      $$;
CREATE FUNCTION public_as_of.known_entries() RETURNS TABLE(document_id text, hash bytea, text text, terms integer[], weights public.sparsevec, embedding public.halfvec, embedding_b public.halfvec)
    LANGUAGE sql STABLE
    AS $$
        select e.document_id, e.hash, e.text, e.terms, e.weights, e.embedding, e.embedding_b
          from public.entries e join public.documents d on d.id = e.document_id
         where d.scope @> public_as_of.within()
           and case when d.text_since <= public_as_of.moment()
                    then d.status in ('done', 'failed')
                         or exists (select from public.chunks c
                                     where c.document_id = e.document_id and c.hash = e.hash)
                    else exists (select from public.versions v
                                   join public.version_chunks c on c.version_id = v.id
                                  where v.document_id = e.document_id and c.hash = e.hash
                                    and not v.doomed and v.known_from <= public_as_of.moment()
                                    and v.known_until > public_as_of.moment()) end
        union all
        select k.document_id, k.hash, k.text, d.scope || k.terms, k.weights,
               case when k.model_a = (select case i.slot when 'a' then i.embedder
                                      else i.other_embedder end from public.index_settings i)
                    then k.embedding end,
               case when k.model_b = (select case i.slot when 'b' then i.embedder
                                      else i.other_embedder end from public.index_settings i)
                    then k.embedding_b end
          from public.version_entries k join public.documents d on d.id = k.document_id
         where d.scope @> public_as_of.within()
           and exists (select from public.versions v
                         join public.version_chunks c on c.version_id = v.id
                        where v.document_id = k.document_id and c.hash = k.hash
                          and not v.doomed and v.known_from <= public_as_of.moment()
                          and v.known_until > public_as_of.moment())
           and not exists (select from public.entries e
                            where e.document_id = k.document_id and e.hash = k.hash)
      $$;
CREATE FUNCTION public_as_of.moment() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$select current_setting('recollect.as_of')::timestamptz$$;
CREATE FUNCTION public_as_of.within() RETURNS integer[]
    LANGUAGE sql STABLE
    AS $$select coalesce(nullif(current_setting('recollect.as_of_scope', true), ''), '{}')::int4[]$$;
CREATE TABLE public.assistant_tokens (
    hash bytea NOT NULL,
    assistant_id text NOT NULL,
    kind text NOT NULL,
    redirect_uri text,
    challenge text,
    expires_at timestamp with time zone NOT NULL,
    spent_at timestamp with time zone,
    CONSTRAINT assistant_tokens_kind_check CHECK ((kind = ANY (ARRAY['code'::text, 'access'::text, 'refresh'::text])))
);
CREATE TABLE public.assistants (
    id text NOT NULL,
    org_id text NOT NULL,
    key_id text NOT NULL,
    client_id text NOT NULL,
    scope text NOT NULL,
    tags text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone,
    CONSTRAINT assistants_scope_check CHECK ((scope = ANY (ARRAY['read'::text, 'write'::text]))),
    CONSTRAINT assistants_tags_check CHECK ((cardinality(tags) > 0))
);
CREATE TABLE public.audit_log (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    org_id text,
    actor text NOT NULL,
    action text NOT NULL,
    object text,
    result text NOT NULL,
    address text,
    request text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT audit_log_result_check CHECK ((result = ANY (ARRAY['done'::text, 'refused'::text])))
);
ALTER TABLE public.audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.authorizations (
    state bytea NOT NULL,
    connection_id text NOT NULL,
    verifier text,
    redirect_url text,
    expires_at timestamp with time zone NOT NULL,
    key_id text
);
CREATE TABLE public.canary (
    only_row boolean DEFAULT true NOT NULL,
    due_at timestamp with time zone NOT NULL,
    ran_at timestamp with time zone,
    ok boolean,
    reason text,
    ms double precision,
    CONSTRAINT canary_only_row_check CHECK (only_row)
);
CREATE TABLE public.chunks (
    document_id text NOT NULL,
    "position" integer NOT NULL,
    start_at integer NOT NULL,
    end_at integer NOT NULL,
    hash bytea NOT NULL,
    place jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT chunks_check CHECK ((end_at > start_at))
);
CREATE TABLE public.connections (
    id text NOT NULL,
    org_id text NOT NULL,
    provider text NOT NULL,
    container_tags text[] NOT NULL,
    document_limit integer NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    secrets text,
    tokens text,
    expires_at timestamp with time zone,
    account text,
    email text,
    state text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    error_code text,
    error_message text,
    cursor jsonb,
    listings jsonb DEFAULT '{}'::jsonb NOT NULL,
    troubled text[] DEFAULT '{}'::text[] NOT NULL,
    held jsonb DEFAULT '{}'::jsonb NOT NULL,
    call_at timestamp with time zone,
    due_at timestamp with time zone,
    wanted_at timestamp with time zone,
    wanted_by text,
    began_at timestamp with time zone,
    claims bigint DEFAULT 0 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    parked_until timestamp with time zone,
    last_synced_at timestamp with time zone,
    pushed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    away_since timestamp with time zone,
    reach text[],
    CONSTRAINT connections_check CHECK (((state <> ALL (ARRAY['pending'::text, 'needs_auth'::text, 'failed'::text])) OR (due_at IS NULL))),
    CONSTRAINT connections_check1 CHECK (((state <> 'syncing'::text) OR (due_at IS NOT NULL))),
    CONSTRAINT connections_container_tags_check CHECK ((cardinality(container_tags) > 0)),
    CONSTRAINT connections_document_limit_check CHECK (((document_limit >= 1) AND (document_limit <= 10000))),
    CONSTRAINT connections_reach CHECK ((container_tags <@ reach)),
    CONSTRAINT connections_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'ready'::text, 'syncing'::text, 'needs_auth'::text, 'failed'::text]))),
    CONSTRAINT connections_wanted_by_check CHECK ((wanted_by = ANY (ARRAY['event'::text, 'cron'::text, 'manual'::text])))
);
CREATE TABLE public.crawled_hosts (
    host text NOT NULL,
    next_at timestamp with time zone NOT NULL,
    rest_until timestamp with time zone,
    guests jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE public.deliveries (
    id text NOT NULL,
    endpoint_id text NOT NULL,
    type text NOT NULL,
    payload jsonb NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    due_at timestamp with time zone DEFAULT now(),
    attempts integer DEFAULT 0 NOT NULL,
    log jsonb DEFAULT '[]'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    begun_at timestamp with time zone,
    CONSTRAINT deliveries_check CHECK (((due_at IS NULL) = (state <> 'pending'::text))),
    CONSTRAINT deliveries_check1 CHECK (((ended_at IS NULL) = (state = 'pending'::text))),
    CONSTRAINT deliveries_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'delivered'::text, 'dead'::text])))
);
CREATE TABLE public.document_counts (
    org_id text NOT NULL,
    tag text DEFAULT ''::text NOT NULL,
    connection_id text DEFAULT ''::text NOT NULL,
    documents bigint NOT NULL,
    chunks bigint NOT NULL,
    folded boolean DEFAULT false NOT NULL
);
CREATE TABLE public.documents (
    id text NOT NULL,
    org_id text NOT NULL,
    custom_id text,
    container_tags text[] NOT NULL,
    scope integer[] NOT NULL,
    kind text NOT NULL,
    title text,
    url text,
    source text NOT NULL,
    filepath text,
    metadata jsonb,
    document_date timestamp with time zone,
    task_type text DEFAULT 'memory'::text NOT NULL,
    content text,
    content_hash bytea NOT NULL,
    blob text,
    blob_name text,
    blob_mime text,
    forced_kind text,
    revision integer DEFAULT 1 NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    stage text,
    due_at timestamp with time zone DEFAULT now(),
    attempts integer DEFAULT 0 NOT NULL,
    claims bigint DEFAULT 0 NOT NULL,
    error_code text,
    error_message text,
    indexed_revision integer,
    text text,
    chunks integer DEFAULT 0 NOT NULL,
    reused integer DEFAULT 0 NOT NULL,
    embedded integer DEFAULT 0 NOT NULL,
    removed integer DEFAULT 0 NOT NULL,
    timings jsonb DEFAULT '{}'::jsonb NOT NULL,
    warnings text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    connection_id text,
    source_id text,
    dreaming text DEFAULT 'dynamic'::text NOT NULL,
    archive_id text,
    archive_path text,
    unpacked jsonb,
    gone_at timestamp with time zone,
    gone_by text,
    group_pairs jsonb,
    text_since timestamp with time zone DEFAULT now() NOT NULL,
    given_title text,
    told_failure text,
    extractor text,
    CONSTRAINT documents_check CHECK (((gone_at IS NOT NULL) OR ((due_at IS NULL) = (status = ANY (ARRAY['done'::text, 'failed'::text]))))),
    CONSTRAINT documents_check1 CHECK (((stage IS NULL) OR (status = 'processing'::text))),
    CONSTRAINT documents_container_tags_check CHECK ((cardinality(container_tags) > 0)),
    CONSTRAINT documents_content CHECK (((content IS NOT NULL) OR (blob IS NOT NULL) OR (source_id IS NOT NULL))),
    CONSTRAINT documents_dreaming_check CHECK ((dreaming = ANY (ARRAY['dynamic'::text, 'instant'::text]))),
    CONSTRAINT documents_gone CHECK (((gone_at IS NULL) OR ((due_at IS NULL) AND (custom_id IS NULL) AND (connection_id IS NULL)))),
    CONSTRAINT documents_group_pairs_check CHECK ((jsonb_typeof(group_pairs) = 'object'::text)),
    CONSTRAINT documents_member CHECK ((((archive_id IS NULL) = (archive_path IS NULL)) AND ((archive_id IS NULL) OR (unpacked IS NULL)))),
    CONSTRAINT documents_metadata_check CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT documents_stage_check CHECK ((stage = ANY (ARRAY['extracting'::text, 'chunking'::text, 'embedding'::text, 'indexing'::text]))),
    CONSTRAINT documents_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'processing'::text, 'done'::text, 'failed'::text]))),
    CONSTRAINT documents_task_type_check CHECK ((task_type = ANY (ARRAY['memory'::text, 'superrag'::text]))),
    CONSTRAINT documents_unpacked_check CHECK ((jsonb_typeof(unpacked) = 'object'::text))
);
CREATE TABLE public.doomed_blobs (
    key text NOT NULL,
    doomed_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.dreams (
    document_id text NOT NULL,
    org_id text NOT NULL,
    due_at timestamp with time zone,
    held boolean DEFAULT false NOT NULL,
    claims bigint DEFAULT 0 NOT NULL,
    wanted bigint DEFAULT 0 NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    error_code text,
    error_message text,
    place integer DEFAULT '-1'::integer NOT NULL,
    passes integer DEFAULT 0 NOT NULL,
    fruitful boolean DEFAULT false NOT NULL,
    seen bigint DEFAULT 0 NOT NULL,
    CONSTRAINT dreams_check CHECK (((due_at IS NOT NULL) OR (NOT held)))
);
CREATE TABLE public.endpoints (
    id text NOT NULL,
    org_id text NOT NULL,
    url text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    events text[] NOT NULL,
    tags text[],
    secret text NOT NULL,
    key_id text,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    rest_until timestamp with time zone DEFAULT now() NOT NULL,
    disabled_at timestamp with time zone,
    disabled_reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    old_secrets jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT endpoints_check CHECK (((failures = 0) = (failing_since IS NULL))),
    CONSTRAINT endpoints_check1 CHECK (((disabled_at IS NULL) = (disabled_reason IS NULL))),
    CONSTRAINT endpoints_events_check CHECK ((cardinality(events) > 0)),
    CONSTRAINT endpoints_tags_check CHECK ((cardinality(tags) > 0))
);
CREATE TABLE public.entries (
    document_id text NOT NULL,
    hash bytea NOT NULL,
    text text NOT NULL,
    terms integer[] NOT NULL,
    weights public.sparsevec(1000000000) NOT NULL,
    embedding public.halfvec,
    embedding_b public.halfvec
);
ALTER TABLE ONLY public.entries ALTER COLUMN terms SET STORAGE MAIN;
ALTER TABLE ONLY public.entries ALTER COLUMN weights SET STORAGE MAIN;
ALTER TABLE ONLY public.entries ALTER COLUMN embedding SET STORAGE MAIN;
ALTER TABLE ONLY public.entries ALTER COLUMN embedding_b SET STORAGE MAIN;
CREATE VIEW public.facets AS
 SELECT id,
    org_id,
    container_tags,
    scope,
    filepath,
    metadata,
    group_pairs,
    gone_at,
    chunks,
    (status = ANY (ARRAY['done'::text, 'failed'::text])) AS settled
   FROM public.documents;
CREATE TABLE public.farewells (
    id text NOT NULL,
    provider text NOT NULL,
    sealed text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone DEFAULT (now() + '1 day'::interval) NOT NULL
);
CREATE TABLE public.folders (
    connection_id text NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    parent text NOT NULL
);
CREATE TABLE public.hook_secrets (
    provider text NOT NULL,
    hash bytea NOT NULL,
    secret text NOT NULL,
    came_at timestamp with time zone DEFAULT now() NOT NULL,
    confirmed_at timestamp with time zone
);
CREATE TABLE public.items (
    connection_id text NOT NULL,
    id text NOT NULL,
    version text,
    title text,
    url text,
    kind text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    branch text DEFAULT ''::text NOT NULL,
    verdict text NOT NULL,
    detail text,
    document_id text,
    modified_at timestamp with time zone,
    seen_at timestamp with time zone NOT NULL,
    missing_at timestamp with time zone,
    given_tags text[],
    taken_tags text[] DEFAULT '{}'::text[] NOT NULL
);
CREATE TABLE public.judgements (
    connection_id text NOT NULL,
    item_id text NOT NULL,
    question bytea NOT NULL,
    keep boolean NOT NULL,
    reason text NOT NULL,
    said_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE VIEW public.kept_counts AS
 SELECT document_counts.org_id,
    document_counts.tag,
    document_counts.connection_id,
    document_counts.documents,
    document_counts.chunks
   FROM public.document_counts
  WHERE document_counts.folded
UNION ALL
 SELECT document_counts.org_id,
    document_counts.tag,
    document_counts.connection_id,
    document_counts.documents,
    document_counts.chunks
   FROM public.document_counts
  WHERE (NOT document_counts.folded);
CREATE UNLOGGED TABLE public.key_usage (
    key_id text NOT NULL,
    allowed integer NOT NULL,
    length interval NOT NULL,
    started_at timestamp with time zone NOT NULL,
    used integer NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.keys (
    id text NOT NULL,
    org_id text NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scope text NOT NULL,
    tags text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    rate_limit integer,
    rate_window interval,
    CONSTRAINT keys_rate_limit_check CHECK ((rate_limit > 0)),
    CONSTRAINT keys_rate_window_check CHECK ((rate_window > '00:00:00'::interval)),
    CONSTRAINT keys_scope_check CHECK ((scope = ANY (ARRAY['read'::text, 'write'::text, 'admin'::text]))),
    CONSTRAINT keys_tags_check CHECK ((cardinality(tags) > 0))
);
CREATE TABLE public.lineages (
    line text NOT NULL,
    word text DEFAULT gen_random_uuid() NOT NULL
);
CREATE TABLE public.memories (
    id text NOT NULL,
    org_id text NOT NULL,
    tag text NOT NULL,
    content text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    parent_id text,
    root_id text,
    is_latest boolean DEFAULT true NOT NULL,
    is_static boolean DEFAULT false NOT NULL,
    is_inference boolean DEFAULT false NOT NULL,
    buckets text[] DEFAULT '{}'::text[] NOT NULL,
    metadata jsonb,
    temporal jsonb,
    forget_after timestamp with time zone,
    forget_reason text,
    forgotten_at timestamp with time zone,
    forget_batch text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    terms integer[] NOT NULL,
    weights public.sparsevec(1000000000) NOT NULL,
    embedding public.halfvec,
    embedding_b public.halfvec,
    group_pairs jsonb,
    CONSTRAINT memories_content_check CHECK ((content <> ''::text)),
    CONSTRAINT memories_group_pairs_check CHECK ((jsonb_typeof(group_pairs) = 'object'::text)),
    CONSTRAINT memories_metadata_check CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT memories_temporal_check CHECK ((jsonb_typeof(temporal) = 'object'::text)),
    CONSTRAINT memories_version_check CHECK ((version > 0))
);
ALTER TABLE ONLY public.memories ALTER COLUMN embedding SET STORAGE MAIN;
ALTER TABLE ONLY public.memories ALTER COLUMN embedding_b SET STORAGE MAIN;
CREATE TABLE public.memory_reads (
    document_id text NOT NULL,
    hash bytea NOT NULL
);
CREATE TABLE public.memory_relations (
    memory_id text NOT NULL,
    target_id text NOT NULL,
    relation text NOT NULL,
    CONSTRAINT memory_relations_check CHECK ((target_id <> memory_id)),
    CONSTRAINT memory_relations_relation_check CHECK ((relation = ANY (ARRAY['extends'::text, 'derives'::text])))
);
CREATE TABLE public.memory_sources (
    memory_id text NOT NULL,
    document_id text NOT NULL,
    hash bytea NOT NULL,
    start_at integer NOT NULL,
    end_at integer NOT NULL,
    CONSTRAINT memory_sources_check CHECK ((end_at > start_at)),
    CONSTRAINT memory_sources_start_at_check CHECK ((start_at >= 0))
);
CREATE TABLE public.migrations (
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.oauth_clients (
    id text NOT NULL,
    name text NOT NULL,
    redirect_uris text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.orgs (
    id text NOT NULL,
    name text NOT NULL,
    plan text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    hidden boolean DEFAULT false NOT NULL,
    CONSTRAINT orgs_plan_check CHECK ((plan = ANY (ARRAY['free'::text, 'pro'::text, 'scale'::text, 'enterprise'::text])))
);
CREATE TABLE public.purges (
    id text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    changes bigint,
    report jsonb
);
CREATE TABLE public.pushes (
    provider text NOT NULL,
    key text NOT NULL,
    came_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.receipt_documents (
    document bytea NOT NULL,
    receipt_id text NOT NULL
);
CREATE TABLE public.receipts (
    id text NOT NULL,
    org_id text NOT NULL,
    key_id text,
    documents integer NOT NULL,
    chunks integer NOT NULL,
    files integer NOT NULL,
    deleted_at timestamp with time zone DEFAULT now() NOT NULL,
    purge_id text,
    purged_at timestamp with time zone
);
CREATE TABLE public.registrations (
    id text NOT NULL,
    connection_id text NOT NULL,
    resource text NOT NULL,
    secret text NOT NULL,
    url text NOT NULL,
    remote jsonb,
    expires_at timestamp with time zone,
    renew_at timestamp with time zone,
    retired boolean DEFAULT false NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.sessions (
    id bytea NOT NULL,
    key_id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    once boolean DEFAULT false NOT NULL
);
CREATE TABLE public.settings (
    org_id text NOT NULL,
    data jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.stage_health (
    stage text NOT NULL,
    failures integer NOT NULL,
    ok_at timestamp with time zone,
    failed_at timestamp with time zone,
    code text
)
WITH (fillfactor='50');
CREATE TABLE public.sync_changes (
    run_id text NOT NULL,
    document_id text NOT NULL,
    what text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    revision integer,
    texts integer,
    new_texts integer,
    CONSTRAINT sync_changes_check CHECK (((texts IS NULL) = (new_texts IS NULL))),
    CONSTRAINT sync_changes_what_check CHECK ((what = ANY (ARRAY['added'::text, 'changed'::text, 'removed'::text])))
);
CREATE TABLE public.sync_runs (
    id text NOT NULL,
    connection_id text NOT NULL,
    trigger text NOT NULL,
    status text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    added integer DEFAULT 0 NOT NULL,
    changed integer DEFAULT 0 NOT NULL,
    unchanged integer DEFAULT 0 NOT NULL,
    removed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    skipped jsonb DEFAULT '{}'::jsonb NOT NULL,
    error_code text,
    error_message text,
    notes text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT sync_runs_check CHECK (((finished_at IS NULL) = (status = 'running'::text))),
    CONSTRAINT sync_runs_status_check CHECK ((status = ANY (ARRAY['running'::text, 'completed'::text, 'partial'::text, 'failed'::text]))),
    CONSTRAINT sync_runs_trigger_check CHECK ((trigger = ANY (ARRAY['event'::text, 'cron'::text, 'manual'::text])))
);
CREATE TABLE public.tag_merges (
    id text NOT NULL,
    org_id text NOT NULL,
    sources text[] NOT NULL,
    target text NOT NULL,
    moved integer DEFAULT 0 NOT NULL,
    kept text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    reason text,
    CONSTRAINT tag_merges_sources_check CHECK ((cardinality(sources) > 0))
);
CREATE TABLE public.tags (
    org_id text NOT NULL,
    name text NOT NULL,
    entity_context text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    title text,
    profile_buckets jsonb,
    CONSTRAINT tags_entity_context_check CHECK ((char_length(entity_context) <= 1500))
);
CREATE TABLE public.tallies (
    name text NOT NULL,
    labels jsonb NOT NULL,
    value double precision NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.term_counts (
    org_id text NOT NULL,
    number integer NOT NULL,
    entries integer NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE public.test_questions (
    id text NOT NULL,
    org_id text NOT NULL,
    tag text NOT NULL,
    question text NOT NULL,
    document text,
    words text,
    made_from text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT test_questions_expect CHECK (((document IS NOT NULL) OR (words IS NOT NULL)))
);
CREATE TABLE public.test_results (
    run_id text NOT NULL,
    question_id text NOT NULL,
    place integer NOT NULL,
    asked_at timestamp with time zone,
    rank integer,
    CONSTRAINT test_results_rank_check CHECK ((rank > 0))
);
CREATE TABLE public.test_runs (
    id text NOT NULL,
    org_id text NOT NULL,
    tag text NOT NULL,
    rerank boolean NOT NULL,
    rewrite boolean NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone
);
CREATE TABLE public.vector_gaps (
    relation text NOT NULL,
    first text NOT NULL,
    last text NOT NULL,
    size integer NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    claims bigint DEFAULT 0 NOT NULL,
    noted bigint DEFAULT 0 NOT NULL,
    error_code text,
    error_message text,
    CONSTRAINT vector_gaps_relation_check CHECK ((relation = ANY (ARRAY['entries'::text, 'memories'::text])))
);
CREATE TABLE public.version_chunks (
    version_id bigint NOT NULL,
    "position" integer NOT NULL,
    start_at integer NOT NULL,
    end_at integer NOT NULL,
    hash bytea NOT NULL,
    place jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE public.version_entries (
    document_id text NOT NULL,
    hash bytea NOT NULL,
    text text NOT NULL,
    terms integer[] NOT NULL,
    weights public.sparsevec(1000000000) NOT NULL,
    embedding public.halfvec,
    embedding_b public.halfvec,
    model_a text,
    model_b text
);
CREATE TABLE public.versions (
    id bigint NOT NULL,
    document_id text NOT NULL,
    revision integer NOT NULL,
    kind text NOT NULL,
    title text,
    text text NOT NULL,
    characters integer NOT NULL,
    container_tags text[] NOT NULL,
    chunks integer NOT NULL,
    known_from timestamp with time zone NOT NULL,
    known_until timestamp with time zone NOT NULL,
    doomed boolean DEFAULT false NOT NULL
);
ALTER TABLE public.versions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.versions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE UNLOGGED TABLE public.watchers (
    id text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.word_refresh (
    relation text NOT NULL,
    version integer DEFAULT 0 NOT NULL,
    after text DEFAULT ''::text NOT NULL,
    CONSTRAINT word_refresh_relation_check CHECK ((relation = ANY (ARRAY['documents'::text, 'memories'::text])))
);
CREATE VIEW public_as_of.chunks AS
 SELECT document_id,
    "position",
    start_at,
    end_at,
    hash,
    place
   FROM public_as_of.known_chunks() known_chunks(document_id, "position", start_at, end_at, hash, place);
CREATE VIEW public_as_of.documents AS
 SELECT d.id,
    d.org_id,
    d.custom_id,
    d.container_tags,
    d.scope,
    d.kind,
    d.title,
    d.url,
    d.source,
    d.filepath,
    d.metadata,
    d.document_date,
    d.task_type,
    NULL::text AS content,
    d.content_hash,
    d.blob,
    d.blob_name,
    d.blob_mime,
    d.forced_kind,
    d.indexed_revision AS revision,
    'done'::text AS status,
    NULL::text AS stage,
    NULL::timestamp with time zone AS due_at,
    0 AS attempts,
    d.claims,
    NULL::text AS error_code,
    NULL::text AS error_message,
    d.indexed_revision,
    d.text,
    d.chunks,
    d.reused,
    d.embedded,
    d.removed,
    d.timings,
    d.warnings,
    d.created_at,
    d.updated_at,
    d.connection_id,
    d.source_id,
    d.dreaming,
    d.archive_id,
    d.archive_path,
    d.unpacked,
    d.gone_at,
    d.gone_by,
    d.group_pairs,
    d.text_since,
    d.given_title,
    NULL::text AS told_failure,
    NULL::text AS extractor
   FROM public.documents d
  WHERE ((d.indexed_revision IS NOT NULL) AND (d.text_since <= public_as_of.moment()))
UNION ALL
 SELECT d.id,
    d.org_id,
    d.custom_id,
    ARRAY( SELECT had.tag
           FROM unnest(d.container_tags) WITH ORDINALITY had(tag, nth)
          WHERE (had.tag = ANY (v.container_tags))
          ORDER BY had.nth) AS container_tags,
    d.scope,
    v.kind,
    v.title,
    d.url,
    d.source,
    d.filepath,
    d.metadata,
    d.document_date,
    d.task_type,
    NULL::text AS content,
    d.content_hash,
    d.blob,
    d.blob_name,
    d.blob_mime,
    d.forced_kind,
    v.revision,
    'done'::text AS status,
    NULL::text AS stage,
    NULL::timestamp with time zone AS due_at,
    0 AS attempts,
    d.claims,
    NULL::text AS error_code,
    NULL::text AS error_message,
    v.revision AS indexed_revision,
    v.text,
    v.chunks,
    0 AS reused,
    0 AS embedded,
    0 AS removed,
    '{}'::jsonb AS timings,
    '{}'::text[] AS warnings,
    d.created_at,
    v.known_from AS updated_at,
    d.connection_id,
    d.source_id,
    d.dreaming,
    d.archive_id,
    d.archive_path,
    NULL::jsonb AS unpacked,
    d.gone_at,
    d.gone_by,
    d.group_pairs,
    v.known_from AS text_since,
    d.given_title,
    NULL::text AS told_failure,
    NULL::text AS extractor
   FROM (public.versions v
     JOIN public.documents d ON ((d.id = v.document_id)))
  WHERE ((NOT v.doomed) AND (v.known_from <= public_as_of.moment()) AND (v.known_until > public_as_of.moment()) AND (d.container_tags && v.container_tags));
CREATE VIEW public_as_of.entries AS
 SELECT document_id,
    hash,
    text,
    terms,
    weights,
    embedding,
    embedding_b
   FROM public_as_of.known_entries() known_entries(document_id, hash, text, terms, weights, embedding, embedding_b);
CREATE VIEW public_as_of.facets AS
 SELECT id,
    org_id,
    container_tags,
    scope,
    filepath,
    metadata,
    group_pairs,
    gone_at,
    chunks,
    true AS settled
   FROM public_as_of.documents;
ALTER TABLE ONLY public.assistant_tokens
    ADD CONSTRAINT assistant_tokens_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY public.assistants
    ADD CONSTRAINT assistants_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.authorizations
    ADD CONSTRAINT authorizations_pkey PRIMARY KEY (state);
ALTER TABLE ONLY public.canary
    ADD CONSTRAINT canary_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (document_id, "position");
ALTER TABLE ONLY public.connections
    ADD CONSTRAINT connections_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.crawled_hosts
    ADD CONSTRAINT crawled_hosts_pkey PRIMARY KEY (host);
ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.doomed_blobs
    ADD CONSTRAINT doomed_blobs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.dreams
    ADD CONSTRAINT dreams_pkey PRIMARY KEY (document_id);
ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (document_id, hash);
ALTER TABLE ONLY public.farewells
    ADD CONSTRAINT farewells_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.folders
    ADD CONSTRAINT folders_pkey PRIMARY KEY (connection_id, id);
ALTER TABLE ONLY public.hook_secrets
    ADD CONSTRAINT hook_secrets_pkey PRIMARY KEY (provider, hash);
ALTER TABLE ONLY public.index_settings
    ADD CONSTRAINT index_settings_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (connection_id, id);
ALTER TABLE ONLY public.judgements
    ADD CONSTRAINT judgements_pkey PRIMARY KEY (connection_id, item_id, question);
ALTER TABLE ONLY public.key_usage
    ADD CONSTRAINT key_usage_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.lineages
    ADD CONSTRAINT lineages_pkey PRIMARY KEY (line);
ALTER TABLE ONLY public.memories
    ADD CONSTRAINT memories_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.memory_reads
    ADD CONSTRAINT memory_reads_pkey PRIMARY KEY (document_id, hash);
ALTER TABLE ONLY public.memory_relations
    ADD CONSTRAINT memory_relations_pkey PRIMARY KEY (memory_id, target_id);
ALTER TABLE ONLY public.memory_sources
    ADD CONSTRAINT memory_sources_pkey PRIMARY KEY (memory_id, document_id, hash, start_at);
ALTER TABLE ONLY public.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.oauth_clients
    ADD CONSTRAINT oauth_clients_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.orgs
    ADD CONSTRAINT orgs_name_key UNIQUE (name);
ALTER TABLE ONLY public.orgs
    ADD CONSTRAINT orgs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.purges
    ADD CONSTRAINT purges_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.pushes
    ADD CONSTRAINT pushes_pkey PRIMARY KEY (provider, key);
ALTER TABLE ONLY public.receipt_documents
    ADD CONSTRAINT receipt_documents_pkey PRIMARY KEY (document, receipt_id);
ALTER TABLE ONLY public.receipts
    ADD CONSTRAINT receipts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.registrations
    ADD CONSTRAINT registrations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (org_id);
ALTER TABLE ONLY public.stage_health
    ADD CONSTRAINT stage_health_pkey PRIMARY KEY (stage);
ALTER TABLE ONLY public.sync_changes
    ADD CONSTRAINT sync_changes_pkey PRIMARY KEY (run_id, document_id);
ALTER TABLE ONLY public.sync_runs
    ADD CONSTRAINT sync_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tag_merges
    ADD CONSTRAINT tag_merges_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_pkey PRIMARY KEY (org_id, name);
ALTER TABLE ONLY public.tallies
    ADD CONSTRAINT tallies_pkey PRIMARY KEY (name, labels);
ALTER TABLE ONLY public.term_counts
    ADD CONSTRAINT term_counts_pkey PRIMARY KEY (org_id, number);
ALTER TABLE ONLY public.test_questions
    ADD CONSTRAINT test_questions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.test_results
    ADD CONSTRAINT test_results_pkey PRIMARY KEY (run_id, question_id);
ALTER TABLE ONLY public.test_runs
    ADD CONSTRAINT test_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.vector_gaps
    ADD CONSTRAINT vector_gaps_pkey PRIMARY KEY (relation, first, last);
ALTER TABLE ONLY public.version_chunks
    ADD CONSTRAINT version_chunks_pkey PRIMARY KEY (version_id, "position");
ALTER TABLE ONLY public.version_entries
    ADD CONSTRAINT version_entries_pkey PRIMARY KEY (document_id, hash);
ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.watchers
    ADD CONSTRAINT watchers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.word_refresh
    ADD CONSTRAINT word_refresh_pkey PRIMARY KEY (relation);
CREATE INDEX assistant_tokens_assistant ON public.assistant_tokens USING btree (assistant_id);
CREATE INDEX assistant_tokens_expiry ON public.assistant_tokens USING btree (expires_at);
CREATE INDEX assistants_client ON public.assistants USING btree (client_id);
CREATE INDEX assistants_key ON public.assistants USING btree (key_id);
CREATE INDEX assistants_org ON public.assistants USING btree (org_id, created_at);
CREATE INDEX audit_log_at ON public.audit_log USING btree (at);
CREATE INDEX audit_log_org ON public.audit_log USING btree (org_id, id DESC);
CREATE INDEX authorizations_connection ON public.authorizations USING btree (connection_id);
CREATE INDEX authorizations_key ON public.authorizations USING btree (key_id);
CREATE INDEX chunks_by_hash ON public.chunks USING btree (document_id, hash);
CREATE INDEX connections_account ON public.connections USING btree (provider, account);
CREATE INDEX connections_due ON public.connections USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX connections_org ON public.connections USING btree (org_id, created_at DESC, id DESC);
CREATE INDEX crawled_hosts_next ON public.crawled_hosts USING btree (next_at);
CREATE INDEX deliveries_due ON public.deliveries USING btree (endpoint_id, due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX deliveries_ended ON public.deliveries USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX deliveries_listed ON public.deliveries USING btree (endpoint_id, created_at DESC, id DESC);
CREATE INDEX document_counts_empty ON public.document_counts USING btree (org_id) WHERE (folded AND (documents = 0) AND (chunks = 0));
CREATE UNIQUE INDEX document_counts_folded ON public.document_counts USING btree (org_id, connection_id, tag) WHERE folded;
CREATE INDEX document_counts_new ON public.document_counts USING btree (org_id, connection_id, tag) WHERE (NOT folded);
CREATE UNIQUE INDEX documents_archive ON public.documents USING btree (archive_id, archive_path) WHERE (archive_id IS NOT NULL);
CREATE INDEX documents_created ON public.documents USING btree (org_id, created_at DESC, id DESC) WHERE (gone_at IS NULL);
CREATE UNIQUE INDEX documents_custom_id ON public.documents USING btree (org_id, custom_id, (container_tags[1])) WHERE (custom_id IS NOT NULL);
CREATE INDEX documents_due ON public.documents USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX documents_failed ON public.documents USING btree (org_id, updated_at DESC, id DESC) WHERE ((status = 'failed'::text) AND (gone_at IS NULL));
CREATE INDEX documents_gone ON public.documents USING btree (gone_at, id) WHERE (gone_at IS NOT NULL);
CREATE INDEX documents_groups ON public.documents USING gin (((group_pairs || COALESCE(metadata, '{}'::jsonb))) jsonb_path_ops) WHERE (group_pairs IS NOT NULL);
CREATE INDEX documents_in_flight ON public.documents USING btree (org_id, content_hash) WHERE (due_at IS NOT NULL);
CREATE INDEX documents_metadata ON public.documents USING gin (metadata jsonb_path_ops);
CREATE INDEX documents_scope ON public.documents USING gin (scope);
CREATE UNIQUE INDEX documents_source ON public.documents USING btree (connection_id, source_id) WHERE (connection_id IS NOT NULL);
CREATE INDEX documents_turns ON public.documents USING btree (org_id, (container_tags[1]), due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX documents_updated ON public.documents USING btree (org_id, updated_at DESC, id DESC) WHERE (gone_at IS NULL);
CREATE INDEX doomed_blobs_since ON public.doomed_blobs USING btree (doomed_at);
CREATE INDEX dreams_due ON public.dreams USING btree (org_id, due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX endpoints_org ON public.endpoints USING btree (org_id);
CREATE INDEX entries_terms ON public.entries USING gin (terms);
CREATE INDEX farewells_due ON public.farewells USING btree (due_at);
CREATE INDEX items_document ON public.items USING btree (document_id) WHERE (document_id IS NOT NULL);
CREATE INDEX items_unseen ON public.items USING btree (connection_id, seen_at);
CREATE INDEX items_verdict ON public.items USING btree (connection_id, verdict, id);
CREATE INDEX keys_org ON public.keys USING btree (org_id);
CREATE INDEX memories_chain ON public.memories USING btree (root_id) WHERE (root_id IS NOT NULL);
CREATE INDEX memories_content ON public.memories USING btree (org_id, tag, md5(content)) WHERE is_latest;
CREATE INDEX memories_parent ON public.memories USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX memories_root ON public.memories USING btree (COALESCE(root_id, id));
CREATE INDEX memories_tag ON public.memories USING btree (org_id, tag, updated_at DESC, id DESC);
CREATE INDEX memories_terms ON public.memories USING gin (terms);
CREATE INDEX memory_relations_target ON public.memory_relations USING btree (target_id);
CREATE INDEX memory_sources_document ON public.memory_sources USING btree (document_id, hash);
CREATE INDEX oauth_clients_age ON public.oauth_clients USING btree (created_at);
CREATE INDEX pushes_came ON public.pushes USING btree (came_at);
CREATE INDEX receipt_documents_receipt ON public.receipt_documents USING btree (receipt_id);
CREATE INDEX receipts_recent ON public.receipts USING btree (org_id, deleted_at);
CREATE INDEX receipts_unpurged ON public.receipts USING btree (deleted_at) WHERE (purged_at IS NULL);
CREATE INDEX registrations_connection ON public.registrations USING btree (connection_id);
CREATE INDEX sessions_key ON public.sessions USING btree (key_id);
CREATE INDEX sync_changes_open ON public.sync_changes USING btree (document_id) WHERE ((texts IS NULL) AND (revision IS NOT NULL));
CREATE INDEX sync_runs_connection ON public.sync_runs USING btree (connection_id, started_at DESC, id DESC);
CREATE INDEX tag_merges_unfinished ON public.tag_merges USING btree (org_id) WHERE (finished_at IS NULL);
CREATE INDEX test_questions_made_from ON public.test_questions USING btree (made_from) WHERE (made_from IS NOT NULL);
CREATE INDEX test_questions_tag ON public.test_questions USING btree (org_id, tag, created_at, id);
CREATE INDEX test_results_question ON public.test_results USING btree (question_id);
CREATE INDEX test_runs_tag ON public.test_runs USING btree (org_id, tag, created_at DESC, id);
CREATE INDEX vector_gaps_due ON public.vector_gaps USING btree (due_at);
CREATE INDEX versions_document ON public.versions USING btree (document_id, known_until);
CREATE INDEX versions_doomed ON public.versions USING btree (id) WHERE doomed;
CREATE TRIGGER connection_lost AFTER UPDATE OF state ON public.connections FOR EACH ROW WHEN (((old.state IS DISTINCT FROM new.state) AND (new.state = 'needs_auth'::text))) EXECUTE FUNCTION public.connection_lost();
CREATE TRIGGER count_added AFTER INSERT ON public.documents FOR EACH ROW WHEN ((new.gone_at IS NULL)) EXECUTE FUNCTION public.count_new_document();
CREATE TRIGGER count_changed AFTER UPDATE ON public.documents FOR EACH ROW WHEN (((current_setting('recollect.counted'::text, true) IS DISTINCT FROM 'at once'::text) AND ((((((old.gone_at IS NULL) IS DISTINCT FROM (new.gone_at IS NULL)) OR (old.org_id IS DISTINCT FROM new.org_id)) OR (old.container_tags IS DISTINCT FROM new.container_tags)) OR (old.connection_id IS DISTINCT FROM new.connection_id)) OR (old.chunks IS DISTINCT FROM new.chunks)))) EXECUTE FUNCTION public.count_document();
CREATE TRIGGER count_removed AFTER DELETE ON public.documents FOR EACH ROW WHEN ((old.gone_at IS NULL)) EXECUTE FUNCTION public.count_document();
CREATE TRIGGER document_came AFTER UPDATE OF container_tags ON public.documents FOR EACH ROW WHEN (((old.container_tags IS DISTINCT FROM new.container_tags) AND (old.status = new.status) AND (new.status = ANY (ARRAY['done'::text, 'failed'::text])))) EXECUTE FUNCTION public.document_ended();
CREATE TRIGGER document_ended AFTER UPDATE OF status ON public.documents FOR EACH ROW WHEN (((old.status IS DISTINCT FROM new.status) AND ((new.status = 'done'::text) OR ((new.status = 'failed'::text) AND (new.error_code IS DISTINCT FROM new.told_failure))))) EXECUTE FUNCTION public.document_ended();
CREATE TRIGGER documents_gone AFTER DELETE ON public.documents REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.documents_gone();
CREATE TRIGGER forget_deleted BEFORE INSERT OR UPDATE ON public.items FOR EACH ROW WHEN (((new.verdict = 'document'::text) AND (new.document_id IS NULL))) EXECUTE FUNCTION public.forget_item();
CREATE TRIGGER forget_failure BEFORE UPDATE OF status, revision ON public.documents FOR EACH ROW WHEN (((old.told_failure IS NOT NULL) AND ((new.status = 'done'::text) OR (new.revision IS DISTINCT FROM old.revision)))) EXECUTE FUNCTION public.forget_failure();
CREATE TRIGGER forget_merges AFTER DELETE ON public.tags FOR EACH ROW EXECUTE FUNCTION public.forget_merges();
CREATE TRIGGER forget_unsourced AFTER DELETE ON public.memory_sources REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.forget_unsourced();
CREATE TRIGGER keep_all_audit BEFORE TRUNCATE ON public.audit_log FOR EACH STATEMENT EXECUTE FUNCTION public.keep_audit();
CREATE TRIGGER keep_audit BEFORE DELETE OR UPDATE ON public.audit_log FOR EACH ROW EXECUTE FUNCTION public.keep_audit();
CREATE TRIGGER know_tags AFTER INSERT OR UPDATE OF container_tags ON public.documents FOR EACH ROW EXECUTE FUNCTION public.know_tags();
CREATE TRIGGER leave_memories AFTER UPDATE OF finished_at ON public.tag_merges FOR EACH ROW WHEN (((old.finished_at IS NULL) AND (new.finished_at IS NOT NULL))) EXECUTE FUNCTION public.leave_memories();
CREATE TRIGGER mend_versions AFTER DELETE ON public.memories REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.mend_versions();
CREATE TRIGGER move_memories AFTER UPDATE OF container_tags ON public.documents FOR EACH ROW WHEN ((old.container_tags IS DISTINCT FROM new.container_tags)) EXECUTE FUNCTION public.move_memories();
CREATE TRIGGER queue_dream AFTER UPDATE OF status, indexed_revision, task_type ON public.documents FOR EACH ROW WHEN (((new.indexed_revision IS NOT NULL) AND ((old.indexed_revision IS DISTINCT FROM new.indexed_revision) OR ((old.status IS DISTINCT FROM new.status) AND (new.status = 'done'::text)) OR (old.task_type IS DISTINCT FROM new.task_type)))) EXECUTE FUNCTION public.queue_dream();
CREATE TRIGGER queue_new_dream AFTER INSERT ON public.documents FOR EACH ROW WHEN ((new.indexed_revision IS NOT NULL)) EXECUTE FUNCTION public.queue_dream();
CREATE TRIGGER sync_ended AFTER UPDATE OF status ON public.sync_runs FOR EACH ROW WHEN (((old.status = 'running'::text) AND (new.status <> 'running'::text))) EXECUTE FUNCTION public.sync_ended();
CREATE TRIGGER tell_added AFTER INSERT OR DELETE ON public.documents FOR EACH ROW EXECUTE FUNCTION public.tell_document();
CREATE TRIGGER tell_changed AFTER UPDATE OF status, stage ON public.documents FOR EACH ROW WHEN (((old.status IS DISTINCT FROM new.status) OR (old.stage IS DISTINCT FROM new.stage))) EXECUTE FUNCTION public.tell_document();
CREATE TRIGGER tell_moved AFTER UPDATE OF container_tags ON public.documents FOR EACH ROW WHEN ((old.container_tags IS DISTINCT FROM new.container_tags)) EXECUTE FUNCTION public.tell_moved();
ALTER TABLE ONLY public.assistant_tokens
    ADD CONSTRAINT assistant_tokens_assistant_id_fkey FOREIGN KEY (assistant_id) REFERENCES public.assistants(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.assistants
    ADD CONSTRAINT assistants_client_id_fkey FOREIGN KEY (client_id) REFERENCES public.oauth_clients(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.assistants
    ADD CONSTRAINT assistants_key_id_fkey FOREIGN KEY (key_id) REFERENCES public.keys(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.assistants
    ADD CONSTRAINT assistants_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.authorizations
    ADD CONSTRAINT authorizations_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.authorizations
    ADD CONSTRAINT authorizations_key_id_fkey FOREIGN KEY (key_id) REFERENCES public.keys(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.connections
    ADD CONSTRAINT connections_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES public.endpoints(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_archive_id_fkey FOREIGN KEY (archive_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE SET NULL;
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.dreams
    ADD CONSTRAINT dreams_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.dreams
    ADD CONSTRAINT dreams_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.folders
    ADD CONSTRAINT folders_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE SET NULL;
ALTER TABLE ONLY public.judgements
    ADD CONSTRAINT judgements_connection_id_item_id_fkey FOREIGN KEY (connection_id, item_id) REFERENCES public.items(connection_id, id) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE ONLY public.key_usage
    ADD CONSTRAINT key_usage_key_id_fkey FOREIGN KEY (key_id) REFERENCES public.keys(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.memories
    ADD CONSTRAINT memories_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.memory_reads
    ADD CONSTRAINT memory_reads_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.memory_relations
    ADD CONSTRAINT memory_relations_memory_id_fkey FOREIGN KEY (memory_id) REFERENCES public.memories(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.memory_relations
    ADD CONSTRAINT memory_relations_target_id_fkey FOREIGN KEY (target_id) REFERENCES public.memories(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.memory_sources
    ADD CONSTRAINT memory_sources_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.memory_sources
    ADD CONSTRAINT memory_sources_memory_id_fkey FOREIGN KEY (memory_id) REFERENCES public.memories(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.receipt_documents
    ADD CONSTRAINT receipt_documents_receipt_id_fkey FOREIGN KEY (receipt_id) REFERENCES public.receipts(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.receipts
    ADD CONSTRAINT receipts_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.registrations
    ADD CONSTRAINT registrations_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_key_id_fkey FOREIGN KEY (key_id) REFERENCES public.keys(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sync_changes
    ADD CONSTRAINT sync_changes_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.sync_runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sync_runs
    ADD CONSTRAINT sync_runs_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.tag_merges
    ADD CONSTRAINT tag_merges_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.term_counts
    ADD CONSTRAINT term_counts_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.test_questions
    ADD CONSTRAINT test_questions_made_from_fkey FOREIGN KEY (made_from) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.test_questions
    ADD CONSTRAINT test_questions_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.test_questions
    ADD CONSTRAINT test_questions_org_id_tag_fkey FOREIGN KEY (org_id, tag) REFERENCES public.tags(org_id, name) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE ONLY public.test_results
    ADD CONSTRAINT test_results_question_id_fkey FOREIGN KEY (question_id) REFERENCES public.test_questions(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.test_results
    ADD CONSTRAINT test_results_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.test_runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.test_runs
    ADD CONSTRAINT test_runs_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.test_runs
    ADD CONSTRAINT test_runs_org_id_tag_fkey FOREIGN KEY (org_id, tag) REFERENCES public.tags(org_id, name) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE ONLY public.version_chunks
    ADD CONSTRAINT version_chunks_version_id_fkey FOREIGN KEY (version_id) REFERENCES public.versions(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.version_entries
    ADD CONSTRAINT version_entries_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
