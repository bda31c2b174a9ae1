-- Which documents a language model is to read, to draw memories from them: a queue of its own, so
-- that documents are searchable meanwhile and whatever happens to the model. A document stands in
-- it once it is indexed, whether or not a model is configured, so that one that comes later finds
-- what there is to read. Triggers put it there, whoever writes the document.
create table dreams (
  document_id   text primary key references documents on delete cascade,
  org_id        text not null references orgs on delete cascade,
  due_at        timestamptz,            -- when to read, or the end of the lease; null: it is over
  held          boolean not null default false, -- by a worker
  claims        bigint not null default 0, -- counts every claim: the fence
  wanted        bigint not null default 0, -- counts what came since, also while it is held
  since         timestamptz not null default now(), -- when it began to wait
  attempts      int not null default 0, -- that came to nothing, in a row
  error_code    text,
  error_message text,
  check (due_at is not null or not held)
);
create index dreams_due on dreams (org_id, due_at) where due_at is not null;

-- `instant`: at once; `dynamic`: a few seconds later, so that what is appended is read together.
alter table documents add column dreaming text not null default 'dynamic'
  check (dreaming in ('dynamic', 'instant'));

create function queue_dream() returns trigger language plpgsql as $$
declare
  due timestamptz := now() + case new.dreaming when 'instant' then interval '0'
                                               else interval '5 seconds' end;
begin
  if new.task_type = 'memory' and new.source <> 'memories' and new.indexed_revision is not null
     and not exists (select from orgs where id = new.org_id and hidden) then
    insert into dreams (document_id, org_id, due_at) values (new.id, new.org_id, due)
    on conflict (document_id) do update set
      due_at = case when dreams.held then dreams.due_at
        -- Who appends without end is read all the same.
        else least(due, greatest(now(), case when dreams.due_at is null then now()
          else dreams.since end + interval '1 minute')) end,
      since = case when dreams.due_at is null or dreams.held then now() else dreams.since end,
      wanted = dreams.wanted + 1, attempts = 0, error_code = null, error_message = null;
  else
    delete from dreams where document_id = new.id;
  end if;
  return null;
end $$;

create trigger queue_dream after update of status, indexed_revision, task_type on documents
  for each row when (new.indexed_revision is not null and (
    old.indexed_revision is distinct from new.indexed_revision
    or old.status is distinct from new.status and new.status = 'done'
    or old.task_type is distinct from new.task_type))
  execute function queue_dream();

create trigger queue_new_dream after insert on documents
  for each row when (new.indexed_revision is not null) execute function queue_dream();

insert into dreams (document_id, org_id, due_at)
select d.id, d.org_id, now() from documents d join orgs o on o.id = d.org_id and not o.hidden
 where d.indexed_revision is not null and d.task_type = 'memory' and d.source <> 'memories';
