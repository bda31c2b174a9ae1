-- Lower case, by the rules of Unicode where the server has them (from PostgreSQL 17 on, and before with
-- ICU), whatever the database's locale: by the locale C only A to Z had a case.
do $do$
begin
  execute format(
    'create function fold_case(said text) returns text language sql immutable parallel safe'
    ' as ''select lower(said collate %s)''',
    coalesce(
      (select 'pg_catalog.' || quote_ident(collname) from pg_collation
        where collname in ('pg_c_utf8', 'und-x-icu') and collnamespace = 'pg_catalog'::regnamespace
        order by collname limit 1),
      'pg_catalog."default"'));
end $do$;
