-- As in 0007, but what a model concluded from a memory goes with it, since it tells what that said.
-- What a person said or corrected since stays: it is not a conclusion any more.
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

-- As in 0034, but one that takes over what is said is not a conclusion any more.
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
