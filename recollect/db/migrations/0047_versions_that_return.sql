-- As in 0007, but a version that counts again is forgotten if the one that had replaced it was: who
-- forgot it meant the memory. And where its text became known again meanwhile, the two are one.
create or replace function mend_versions() returns trigger language plpgsql as $$
declare
  returned text[];
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
  update memories m set forgotten_at = g.forgotten_at, forget_reason = g.forget_reason,
         forget_batch = g.forget_batch
    from gone g
   where m.id = any (returned) and m.forgotten_at is null and g.is_latest
     and g.forgotten_at is not null and coalesce(g.root_id, g.id) = coalesce(m.root_id, m.id);
  perform unite_memories(returned);
  return null;
end $$;
