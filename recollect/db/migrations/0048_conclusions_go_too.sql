-- As in 0007, but what a model concluded from a memory goes with it, since it tells what that said.
-- What a person said or corrected since stays: it is not a conclusion any more.
create or replace function forget_unsourced() returns trigger language plpgsql as $$
declare
  ended text[];
begin
  -- Two that take the last two sources away at the same time must see each other.
  perform from memories m where m.id in (select memory_id from gone) order by m.id for update;
  with recursive ending (id) as (
    select m.id from memories m where m.id in (select memory_id from gone)
       and not exists (select from memory_sources s where s.memory_id = m.id)
    union
    select m.id from ending e
      join memory_relations r on r.target_id = e.id and r.relation = 'derives'
      join memories m on m.id = r.memory_id and m.is_inference)
  select array_agg(id) into ended from ending;
  perform from memories m where m.id = any (ended) order by m.id for update;
  delete from memories m where m.id = any (ended);
  return null;
end $$;
