"""The two roles of the bundled PostgreSQL, and what the service's one owns."""

SUPERUSER, SERVICE = "recollect", "recollect_service"
"""The roles of the server. Data folders of earlier versions have the first, whose powers PostgreSQL
does not let us take away: it is the one that initdb made."""

HAND_OVER = f"""
create extension if not exists vector schema public;
do $$
declare
  statement text;
begin
  if exists (select from pg_db_role_setting where setrole = '{SERVICE}'::regrole
    and setdatabase <> 0) then
    execute format('alter role {SERVICE} in database %I reset all', current_database());
  end if;
  if not has_database_privilege('{SERVICE}', current_database(), 'create') then
    execute format('grant create on database %I to {SERVICE}', current_database());
  end if;
  if not has_schema_privilege('{SERVICE}', 'public', 'create') then
    grant all on schema public to {SERVICE};
  end if;
  -- Indexes, sequences of columns and types of rows belong to the owner of their table.
  for statement in
    with own as (
      select 'pg_class'::regclass as kind, c.oid, c.relowner as owner, c.relnamespace as schema,
        case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'm' then
          'materialized view' else 'table' end as word, c.oid::regclass::text as name
      from pg_class c where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
      union all
      select 'pg_proc'::regclass, p.oid, p.proowner, p.pronamespace, 'routine',
        p.oid::regprocedure::text
      from pg_proc p
      union all
      select 'pg_type'::regclass, t.oid, t.typowner, t.typnamespace, 'type', t.oid::regtype::text
      from pg_type t where t.typtype in ('d', 'e') or t.typtype = 'c' and exists (
        select from pg_class c where c.oid = t.typrelid and c.relkind = 'c')
      union all
      select 'pg_namespace'::regclass, n.oid, n.nspowner, n.oid, 'schema', format('%I', n.nspname)
      from pg_namespace n where n.nspname <> 'public'
    )
    select format('alter %s %s owner to {SERVICE}', word, name) from own
    where owner = '{SUPERUSER}'::regrole
      and schema::regnamespace::text !~ '^(pg_|information_schema$)'
      and not exists (select from pg_depend d where d.classid = own.kind and d.objid = own.oid
        and (d.deptype = 'e' or word = 'sequence' and d.deptype in ('a', 'i')))
  loop
    execute statement;
  end loop;
end $$;
"""
"""By the superuser, in a database that is to be the service's."""
