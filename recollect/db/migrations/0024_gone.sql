-- Documents of a large deletion: no answer shows them from its commit on, and workers remove them
-- some at a time. `gone_by` is the key that deleted them, for the receipt.
alter table documents add gone_at timestamptz, add gone_by text;
create index documents_gone on documents (gone_at, id) where gone_at is not null;

alter table documents drop constraint documents_check,
  add constraint documents_check
    check (gone_at is not null or (due_at is null) = (status in ('done', 'failed'))),
  -- Nothing of them is worked, found by its name, or counted for a connection.
  add constraint documents_gone check (gone_at is null
    or (due_at is null and custom_id is null and connection_id is null));

-- Counted and listed by these alone, without a look at the rows.
drop index documents_created, documents_updated, documents_failed;
create index documents_created on documents (org_id, created_at desc, id desc)
  where gone_at is null;
create index documents_updated on documents (org_id, updated_at desc, id desc)
  where gone_at is null;
create index documents_failed on documents (org_id, updated_at desc, id desc)
  where status = 'failed' and gone_at is null;
