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
