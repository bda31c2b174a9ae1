-- A document is read in passes. One goes over all chunks that are not read, a few at a time, also
-- over those behind one that got no answer; the next begins anew with what is left.
alter table dreams
  add column place    int not null default -1, -- position of the last chunk asked in this pass
  add column passes   int not null default 0,  -- that left something without an answer
  add column fruitful boolean not null default false, -- something was read in this pass
  add column seen     bigint not null default 0; -- `wanted` that the three belong to; else they are over

-- As in 0007, but that it locks before it changes: in the order of the ids, as everybody does who
-- takes several memories, else two that meet wait for each other.
create or replace function move_memories() returns trigger language plpgsql as $$
declare
  added text := (select t.tag from unnest(new.container_tags) with ordinality as t (tag, n)
                 where t.tag <> all (old.container_tags) order by t.n limit 1);
begin
  perform from memories m
   where m.id in (select s.memory_id from memory_sources s where s.document_id = new.id)
   order by m.id for update;
  update memories m set tag = added
   where added is not null and m.tag <> all (new.container_tags)
     and exists (select from memory_sources s where s.memory_id = m.id and s.document_id = new.id)
     and (exists (select from tag_merges g where g.org_id = new.org_id and g.finished_at is null
                  and g.target = added and m.tag = any (g.sources))
          or not exists (select from memory_sources s join documents d on d.id = s.document_id
                         where s.memory_id = m.id and m.tag = any (d.container_tags)));
  delete from memory_sources s using memories m
   where s.document_id = new.id and m.id = s.memory_id and m.tag <> all (new.container_tags);
  return null;
end $$;
