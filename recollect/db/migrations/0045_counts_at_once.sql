-- Who takes many documents out of all lists counts them in one statement (`documents.take_off`), and
-- says so by a setting of its transaction: one by one, that took twice as long as all else of it.
drop trigger count_changed on documents;
create trigger count_changed after update on documents
  for each row when (current_setting('recollect.counted', true) is distinct from 'at once'
    and (old.gone_at is null, old.org_id, old.container_tags, old.connection_id, old.chunks)
    is distinct from (new.gone_at is null, new.org_id, new.container_tags, new.connection_id, new.chunks))
  execute function count_document();

-- What is counted, as lists read it: each half has an index of its own. Without, a table that grew by
-- a million documents at once was read whole for each page, though it had a few hundred rows.
create view kept_counts as
  select org_id, tag, connection_id, documents, chunks from document_counts where folded
  union all
  select org_id, tag, connection_id, documents, chunks from document_counts where not folded;
