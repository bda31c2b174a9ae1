-- A second place for vectors, so that those of another model are made beside the ones that searches
-- use. `slot` names the column that is searched: a is `embedding`, b is `embedding_b`; a change of
-- the model ends with an update of this one row. See docs/decisions/0016-two-slots-for-vectors.md.
alter table entries add column embedding_b halfvec;
alter table memories add column embedding_b halfvec;

-- `choice`: how a model that `recollect embedder switch` named is reached; null: as the settings say.
alter table index_settings
  add column slot text not null default 'a' check (slot in ('a', 'b')),
  add column choice jsonb,
  add column other_embedder text,
  add column other_dimensions int,
  add column other_choice jsonb,
  add column phase text check (phase in ('building', 'kept', 'returned', 'clearing')),
  add column planned_at timestamptz,     -- since when vector_gaps lists all there is to embed
  add column total int not null default 0, -- texts that there were to embed
  add column flipped_at timestamptz,
  add column replaced text,              -- the model before, which settings may still name
  add check ((other_embedder is null) = (phase is null or phase = 'clearing')),
  add check ((other_embedder is null) = (other_dimensions is null));

-- Where a vector is missing in a slot that shall have it: ids of documents (for their entries) or of
-- memories, from the first to the last. A queue of its own; empty when no model is being changed.
create table vector_gaps (
  relation      text not null check (relation in ('entries', 'memories')),
  first         text not null,
  last          text not null,
  size          int not null,            -- texts, about
  due_at        timestamptz not null default now(), -- when to work it, or the end of the lease
  claims        bigint not null default 0,
  noted         bigint not null default 0, -- counts what came since
  error_code    text,
  error_message text,
  primary key (relation, first, last)
);
create index vector_gaps_due on vector_gaps (due_at);

-- The row as it is now and stays until the transaction ends: whoever writes vectors asks for it.
-- Each statement of a volatile function has a snapshot of its own, so the row is read after the
-- lock was waited for; a plain statement would have taken its snapshot before.
create function hold_index() returns setof index_settings language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('recollect.index', 0));
  return query select * from index_settings;
end $$;
