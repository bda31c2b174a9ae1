-- The queue by organisation and container tag, each the longest waiting first: claims go round them.
create index documents_turns on documents (org_id, (container_tags[1]), due_at)
  where due_at is not null;
