-- Searches ask for the place of a text in its document, and whether it has one: an entry without a
-- chunk belongs to a revision that is still being written. In a document of 10,000 chunks neither
-- may read all of them.
create index chunks_by_hash on chunks (document_id, hash);
