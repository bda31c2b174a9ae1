-- What was deleted, for whoever has to prove it. No content: a document is named by the SHA-256 of
-- its id, which is random.
create table receipts (
  id         text primary key,
  org_id     text not null references orgs on delete cascade,
  key_id     text,                      -- of whoever asked; null: the service, after its source
  documents  int not null,
  chunks     int not null,
  files      int not null,
  deleted_at timestamptz not null default now(),
  purge_id   text,                      -- the purge that removes what remains, or did
  purged_at  timestamptz
);
create index receipts_unpurged on receipts (deleted_at) where purged_at is null;

create table receipt_documents (
  document   bytea not null,
  receipt_id text not null references receipts on delete cascade,
  primary key (document, receipt_id)
);
create index receipt_documents_receipt on receipt_documents (receipt_id);

-- Runs of `purge`. `changes`: what the server had counted of deleted and changed rows, to tell
-- whether there is anything new to purge.
create table purges (
  id          text primary key,
  started_at  timestamptz not null default now(),
  finished_at timestamptz,
  changes     bigint,
  report      jsonb
);

-- A document that was deleted here stays away, so its item is kept; what was said of it is not.
create function forget_item() returns trigger language plpgsql as $$
begin
  new.title := null;
  new.url := null;
  new.kind := null;
  new.detail := 'deleted here; it stays away';
  new.metadata := '{}';
  new.tags := '{}';
  new.extra := '{}';
  -- Nor what a model said of it.
  delete from judgements where connection_id = new.connection_id and item_id = new.id;
  return new;
end $$;

create trigger forget_deleted before insert or update on items
  for each row when (new.verdict = 'document' and new.document_id is null)
  execute function forget_item();

-- The record of a merge names its tags; with the tag that they became, it goes, too.
create function forget_merges() returns trigger language plpgsql as $$
begin
  delete from tag_merges m where m.org_id = old.org_id and m.target = old.name
    and m.finished_at is not null;
  return null;
end $$;

create trigger forget_merges after delete on tags
  for each row execute function forget_merges();
