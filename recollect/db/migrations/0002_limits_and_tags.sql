-- Scoped keys bring a limit of their own; others have that of the settings.
alter table keys
  add column rate_limit  int check (rate_limit > 0),
  add column rate_window interval check (rate_window > interval '0');

-- How much of its limit a key has used in the running window. Unlogged: a crash forgives a minute.
create unlogged table key_usage (
  key_id     text primary key references keys on delete cascade,
  allowed    int not null,
  length     interval not null,
  started_at timestamptz not null,
  used       int not null
) with (fillfactor = 50);

alter table tags
  add column title           text,
  add column profile_buckets jsonb;
