-- A merge whose batch the database refuses each time ends, and keeps no other merge waiting.
alter table tag_merges
  add column failures integer not null default 0,
  add column reason text;
