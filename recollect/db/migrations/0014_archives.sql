-- The files of an archive are documents of their own that know where they came from. `unpacked` is
-- what an archive held when it was last read (path → SHA-256), so that only what changed in it since
-- is done, and a file whose document was deleted here stays away. Null: the document is no archive.
alter table documents
  add column archive_id   text references documents on delete cascade,
  add column archive_path text,
  add column unpacked     jsonb check (jsonb_typeof(unpacked) = 'object'),
  add constraint documents_member check
    ((archive_id is null) = (archive_path is null) and (archive_id is null or unpacked is null));
create unique index documents_archive on documents (archive_id, archive_path)
  where archive_id is not null;
