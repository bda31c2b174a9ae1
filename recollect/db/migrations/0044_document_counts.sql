-- How many documents, and how many chunks, an organisation, a tag and a connection have: each page of
-- a list says so. A change of documents adds rows of differences, so that no writer waits for another;
-- a worker adds them up (`documents.fold_counts`). The sum is exact at any time.
create table document_counts (
  org_id        text not null,
  tag           text not null default '', -- both empty: of the whole organisation
  connection_id text not null default '',
  documents     bigint not null,
  chunks        bigint not null,
  folded        boolean not null default false
);
create unique index document_counts_folded on document_counts (org_id, connection_id, tag)
  where folded;
create index document_counts_new on document_counts (org_id, connection_id, tag) where not folded;
create index document_counts_empty on document_counts (org_id)
  where folded and documents = 0 and chunks = 0;

create function counted_under(tags text[], connection text)
  returns table (tag text, connection_id text) language sql immutable as $$
  select '', '' union all select distinct one, '' from unnest(tags) as one
  union all select '', connection where connection is not null
$$;

create function count_document() returns trigger language plpgsql as $$
begin
  insert into document_counts (org_id, tag, connection_id, documents, chunks)
  select changed.org_id, changed.tag, changed.connection_id, sum(n), sum(n * changed.chunks)
    from (
      select one.org_id, one.chunks, one.n, of.tag, of.connection_id
        from (values (old.org_id, old.container_tags, old.connection_id, old.chunks, old.gone_at, -1),
                     (new.org_id, new.container_tags, new.connection_id, new.chunks, new.gone_at, 1))
             as one (org_id, tags, connection, chunks, gone_at, n)
       cross join counted_under(one.tags, one.connection) as of
       where one.org_id is not null and one.gone_at is null) as changed
   group by 1, 2, 3
  having sum(n) <> 0 or sum(n * changed.chunks) <> 0;
  return null;
end $$;

-- The same for a new document alone: every add pays for it.
create function count_new_document() returns trigger language plpgsql as $$
begin
  insert into document_counts (org_id, tag, connection_id, documents, chunks)
  select new.org_id, of.tag, of.connection_id, 1, new.chunks
    from counted_under(new.container_tags, new.connection_id) as of;
  return null;
end $$;

create trigger count_added after insert on documents
  for each row when (new.gone_at is null) execute function count_new_document();
create trigger count_changed after update on documents
  for each row when ((old.gone_at is null, old.org_id, old.container_tags, old.connection_id, old.chunks)
    is distinct from (new.gone_at is null, new.org_id, new.container_tags, new.connection_id, new.chunks))
  execute function count_document();
create trigger count_removed after delete on documents
  for each row when (old.gone_at is null) execute function count_document();

insert into document_counts (org_id, tag, connection_id, documents, chunks, folded)
select d.org_id, of.tag, of.connection_id, count(*), sum(d.chunks), true
  from documents d cross join counted_under(d.container_tags, d.connection_id) as of
 where d.gone_at is null
 group by 1, 2, 3;
