-- Each secret that was replaced signs until its own time: {secret, until}, sealed, the newest first.
alter table endpoints add column old_secrets jsonb not null default '[]';
update endpoints
set old_secrets = jsonb_build_array(jsonb_build_object('secret', old_secret, 'until', old_until))
where old_secret is not null and old_until > now();
alter table endpoints drop column old_secret, drop column old_until;

-- The reason for which a document failed and is tried again by the service itself: a failure with
-- the same one is not told again.
alter table documents add column told_failure text;

create function forget_failure() returns trigger language plpgsql as $$
begin
  new.told_failure := null;
  return new;
end $$;

create trigger forget_failure before update of status, revision on documents for each row
  when (old.told_failure is not null
    and (new.status = 'done' or new.revision is distinct from old.revision))
  execute function forget_failure();

drop trigger document_ended on documents;
create trigger document_ended after update of status on documents for each row
  when (old.status is distinct from new.status and (new.status = 'done'
    or new.status = 'failed' and new.error_code is distinct from new.told_failure))
  execute function document_ended();

-- As in `0042_given_titles`, with the new column.
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
             d.given_title, null::text as told_failure
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
             d.given_title, null::text
        from %1$s.versions v join %1$s.documents d on d.id = v.document_id
       where not v.doomed and v.known_from <= %2$s.moment() and v.known_until > %2$s.moment()
         and d.container_tags && v.container_tags
  $sql$, ours, past);
end
$do$;
