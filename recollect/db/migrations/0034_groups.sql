-- A document may have a group: pairs that keep what is drawn from it apart (`filterByMetadata`,
-- `group`). A memory has the group of the document that it was drawn from; the same text in
-- another group is another memory. Null: no group.
alter table documents add column group_pairs jsonb
  constraint documents_group_pairs_check check (jsonb_typeof(group_pairs) = 'object');
alter table memories add column group_pairs jsonb
  constraint memories_group_pairs_check check (jsonb_typeof(group_pairs) = 'object');

-- Filters see the group as if it were metadata, and metadata wins. Few documents have one.
create index documents_groups on documents
  using gin ((group_pairs || coalesce(metadata, '{}'::jsonb)) jsonb_path_ops)
  where group_pairs is not null;

-- As in 0027, by group.
create or replace function unite_memories(ids text[]) returns void language plpgsql as $$
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
    insert into memory_relations (memory_id, target_id, relation)
      select one.kept, r.target_id, r.relation from memory_relations r
       where r.memory_id = any (one.others) and r.target_id <> one.kept
         and r.target_id <> all (one.others)
      union
      select r.memory_id, one.kept, r.relation from memory_relations r
       where r.target_id = any (one.others) and r.memory_id <> one.kept
         and r.memory_id <> all (one.others)
      on conflict do nothing;
    update memories m set is_latest = false where m.id = any (one.others);
    update memories m set root_id = coalesce(k.root_id, k.id)
      from memories k
     where k.id = one.kept and m.id <> coalesce(k.root_id, k.id)
       and coalesce(m.root_id, m.id) in
           (select coalesce(o.root_id, o.id) from memories o where o.id = any (one.others));
  end loop;
end $$;

-- As in 0027; a copy has the group of its original.
create or replace function move_memories() returns trigger language plpgsql as $$
declare
  merge record;
  moved text[];
  copied text[];
begin
  select g.target, g.sources into merge from tag_merges g
   where g.org_id = new.org_id and g.finished_at is null
     and g.target = any (new.container_tags) and g.sources && old.container_tags
   order by g.created_at limit 1;
  -- Whole chains, in the order in which everybody locks them, and those that say the same where
  -- they may come to.
  perform from memories m
   where coalesce(m.root_id, m.id) in (
           select coalesce(t.root_id, t.id) from memories t
            where t.id in (select s.memory_id from memory_sources s where s.document_id = new.id)
               or (t.org_id = new.org_id and t.tag = any (new.container_tags) and t.is_latest
                   and md5(t.content) in (select md5(o.content) from memories o
                        join memory_sources s on s.memory_id = o.id
                       where s.document_id = new.id and o.tag <> all (new.container_tags))))
   order by coalesce(m.root_id, m.id), m.version, m.id for update;
  with leaving as (
    select distinct coalesce(m.root_id, m.id) as root, m.tag from memories m
      join memory_sources s on s.memory_id = m.id
     where s.document_id = new.id and m.tag <> all (new.container_tags)),
  alone as (
    select l.root, l.tag from leaving l
     where l.tag = any (merge.sources) or not exists (
           select from memories v join memory_sources s on s.memory_id = v.id
             join documents d on d.id = s.document_id
            where (v.root_id = l.root or v.id = l.root) and l.tag = any (d.container_tags)))
  , gone as (
    update memories m
       set tag = case when a.tag = any (merge.sources) then merge.target
                      else new.container_tags[1] end
      from alone a
     where (m.root_id = a.root or m.id = a.root) and m.tag = a.tag
    returning m.id)
  select array_agg(id) into moved from gone;
  with copies as (
    select m.id as original, replace(gen_random_uuid()::text, '-', '') as id from memories m
     where m.is_latest and m.tag <> all (new.container_tags)
       and exists (select from memory_sources s
                    where s.memory_id = m.id and s.document_id = new.id)),
  made as (
    insert into memories (id, org_id, tag, content, is_static, is_inference, buckets, metadata,
        temporal, forget_after, forget_reason, forgotten_at, created_at, updated_at,
        terms, weights, embedding, embedding_b, group_pairs)
      select c.id, m.org_id, new.container_tags[1], m.content, m.is_static, m.is_inference,
             m.buckets, m.metadata, m.temporal, m.forget_after, m.forget_reason, m.forgotten_at,
             m.created_at, m.updated_at, m.terms, m.weights, m.embedding, m.embedding_b,
             m.group_pairs
        from copies c join memories m on m.id = c.original
    returning id),
  cited as (
    insert into memory_sources (memory_id, document_id, hash, start_at, end_at)
      select c.id, s.document_id, s.hash, s.start_at, s.end_at
        from copies c join memory_sources s
          on s.memory_id = c.original and s.document_id = new.id),
  lacking as ( -- a vector that the original waits for
    insert into vector_gaps (relation, first, last, size)
      select 'memories', c.id, c.id, 1 from copies c
       where exists (select from vector_gaps g where g.relation = 'memories'
                     and c.original between g.first and g.last)
      on conflict do nothing)
  select array_agg(id) into copied from made;
  delete from memory_sources s using memories m
   where s.document_id = new.id and m.id = s.memory_id and m.tag <> all (new.container_tags);
  perform unite_memories(array_cat(moved, copied));
  return null;
end $$;
