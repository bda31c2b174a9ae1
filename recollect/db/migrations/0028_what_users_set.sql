-- The tags that a sync last gave the document of a thing: with them, and with `metadata` and
-- `version`, the next sync can tell what a user has set since then, and leaves that alone.
alter table items add column given_tags text[];

-- Until now syncs left nothing of a user's, so documents have what they were given: the tags of
-- their connection, or, where those were changed and nothing was listed since, older ones.
update items i
   set given_tags = case when c.cursor is null then d.container_tags
                         else c.container_tags || i.tags end
  from connections c, documents d
 where c.id = i.connection_id and d.id = i.document_id;

-- Documents of connections that an import brought: their text is what was read where they come
-- from. Without a source their address was fetched, which only holds for a content that is one.
update documents
   set source_id = id
 where connection_id is null and source_id is null and url is not null and blob is null
   and content is not null and content !~* '^\s*https?://\S+\s*$';
