-- Which documents a sync added, changed and removed. Neither titles nor addresses are kept here: what
-- is deleted leaves nothing but its random id. No foreign key to documents, so that it may.
create table sync_changes (
  run_id      text not null references sync_runs on delete cascade,
  document_id text not null,
  what        text not null check (what in ('added', 'changed', 'removed')),
  at          timestamptz not null default now(),
  revision    int,   -- of the document, with that change; null: removed
  texts       int,   -- of its chunks, each once; null: not processed yet
  new_texts   int,   -- of these: that the index did not hold before
  primary key (run_id, document_id),
  check ((texts is null) = (new_texts is null))
);
create index sync_changes_open on sync_changes (document_id)
  where texts is null and revision is not null;
