-- What a document supports follows the tags that it has, as in 0034, in a function of its own: home
-- is where it comes to. In a merge of tags all goes along, so that those that come later find it.
-- Of a chain that stays, or goes with others, a document takes what it supports itself: also a
-- version that only others replaced, since nobody knows of them in the tag that it comes to.
create function follow_tags(one text, tags text[], home text, sources text[], target text)
returns void language plpgsql as $$
declare
  moved text[];
  copied text[];
begin
  -- Whole chains, in the order in which everybody locks them, and those that say the same where
  -- they may come to.
  perform from memories m
   where coalesce(m.root_id, m.id) in (
           select coalesce(t.root_id, t.id) from memories t
            where t.id in (select s.memory_id from memory_sources s where s.document_id = one)
               or (t.org_id = (select d.org_id from documents d where d.id = one)
                   and t.tag = any (tags) and t.is_latest
                   and md5(t.content) in (select md5(o.content) from memories o
                        join memory_sources s on s.memory_id = o.id
                       where s.document_id = one and o.tag <> all (tags))))
   order by coalesce(m.root_id, m.id), m.version, m.id for update;
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
end $$;

create or replace function move_memories() returns trigger language plpgsql as $$
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

-- What a merge leaves in a source (its customId is taken in the target, it came late, or the merge
-- was given up) gets back what went along with others.
create function leave_memories() returns trigger language plpgsql as $$
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
  return null;
end $$;

create trigger leave_memories after update of finished_at on tag_merges
  for each row when (old.finished_at is null and new.finished_at is not null)
  execute function leave_memories();

-- As in 0007, but a version that counts again is forgotten if the one that had replaced it was: who
-- forgot it meant the memory. Where its text became known again meanwhile, the two are one. One that
-- returns beside a latest version is a memory of its own: a text that is gone had made them one, and
-- an id of either would else mean the other.
create or replace function mend_versions() returns trigger language plpgsql as $$
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

-- What merges of earlier versions left in tags of which its documents are not.
do $$
declare
  one record;
begin
  for one in
    select d.id, d.container_tags from documents d
     where d.gone_at is null and exists (
           select from memory_sources s join memories m on m.id = s.memory_id
            where s.document_id = d.id and m.tag <> all (d.container_tags))
     order by d.id
  loop
    perform follow_tags(one.id, one.container_tags, one.container_tags[1], null, null);
  end loop;
end $$;
