-- What a model concluded from a memory tells what that said, so it stays only where that is known.
-- While tags are merged, one of the two may come later.
create function part_conclusions(near text[]) returns void language plpgsql as $$
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

-- As in 0047, but it looks only at the memories of the document, copies what memories follow from,
-- and parts conclusions from what stays.
create or replace function follow_tags(one text, tags text[], home text, sources text[], target text)
returns void language plpgsql as $$
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

-- As in 0047, but conclusions end that come to another tag than what they follow from.
create or replace function leave_memories() returns trigger language plpgsql as $$
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

-- As in 0048, but rows are locked before they are chosen.
create or replace function forget_unsourced() returns trigger language plpgsql as $$
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

-- As in 0034, but one that takes over what is said is not a conclusion any more, and what it is
-- related to is locked.
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

select part_conclusions(array(
  select r.memory_id from memory_relations r where r.relation = 'derives'));
