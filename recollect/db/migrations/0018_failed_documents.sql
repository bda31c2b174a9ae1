-- Failures are few and must not be overlooked: counted and listed exactly, however many documents
-- there are.
create index documents_failed on documents (org_id, updated_at desc, id desc)
  where status = 'failed';
