-- Whoever joins memories that say the same asks for whole chains by their first version. Without
-- this index each of these questions read all memories of the service.
create index memories_root on memories (coalesce(root_id, id));
