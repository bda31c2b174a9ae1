-- Who takes many documents out of all lists counts them in one statement (`documents.take_off`), and
-- says so by a setting of its transaction: one by one, that took twice as long as all else of it.
drop trigger count_changed on documents;
create trigger count_changed after update on documents
  for each row when (current_setting('recollect.counted', true) is distinct from 'at once'
    and (old.gone_at is null, old.org_id, old.container_tags, old.connection_id, old.chunks)
    is distinct from (new.gone_at is null, new.org_id, new.container_tags, new.connection_id, new.chunks))
  execute function count_document();
