-- Who reads the file, as was found by its bytes when it was taken in. The first claim takes it away, so
-- that a later attempt, of a version that knows more kinds, looks for itself.
alter table documents add column extractor text;

-- Clearing asks for those that were given up lately; a long outage of the store leaves many.
create index doomed_blobs_since on doomed_blobs (doomed_at);

-- As in `0057_old_secrets_and_told_failures`, with the new column.
do $do$
declare
  ours text := quote_ident(current_schema());
  past text := quote_ident(current_schema() || '_as_of');
begin
  execute format($sql$
    create or replace view %2$s.documents as
      select d.id, d.org_id, d.custom_id, d.container_tags, d.scope, d.kind, d.title, d.url,
             d.source, d.filepath, d.metadata, d.document_date, d.task_type, null::text as content,
             d.content_hash, d.blob, d.blob_name, d.blob_mime, d.forced_kind,
             d.indexed_revision as revision, 'done'::text as status, null::text as stage,
             null::timestamptz as due_at, 0 as attempts, d.claims, null::text as error_code,
             null::text as error_message, d.indexed_revision, d.text, d.chunks, d.reused,
             d.embedded, d.removed, d.timings, d.warnings, d.created_at, d.updated_at,
             d.connection_id, d.source_id, d.dreaming, d.archive_id, d.archive_path, d.unpacked,
             d.gone_at, d.gone_by, d.group_pairs, d.text_since,
             d.given_title, null::text as told_failure, null::text as extractor
        from %1$s.documents d
       where d.indexed_revision is not null and d.text_since <= %2$s.moment()
      union all
      select d.id, d.org_id, d.custom_id,
             array(select had.tag from unnest(d.container_tags) with ordinality as had (tag, nth)
                    where had.tag = any (v.container_tags) order by had.nth),
             d.scope, v.kind, v.title, d.url,
             d.source, d.filepath, d.metadata, d.document_date, d.task_type, null::text,
             d.content_hash, d.blob, d.blob_name, d.blob_mime, d.forced_kind,
             v.revision, 'done', null::text, null::timestamptz, 0, d.claims, null::text,
             null::text, v.revision, v.text, v.chunks, 0, 0, 0, '{}'::jsonb, '{}'::text[],
             d.created_at, v.known_from, d.connection_id, d.source_id, d.dreaming, d.archive_id,
             d.archive_path, null::jsonb, d.gone_at, d.gone_by, d.group_pairs, v.known_from,
             d.given_title, null::text, null::text
        from %1$s.versions v join %1$s.documents d on d.id = v.document_id
       where not v.doomed and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment()
         and d.container_tags && v.container_tags
  $sql$, ours, past);
end
$do$;
