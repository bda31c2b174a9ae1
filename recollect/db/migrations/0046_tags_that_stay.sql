-- As in 0027, but the tags are held until the document is there: who ends one meanwhile waits, and
-- sees it. Else the tag was gone that a new document carried, and nothing listed or ended it.
create or replace function know_tags() returns trigger language plpgsql as $$
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
