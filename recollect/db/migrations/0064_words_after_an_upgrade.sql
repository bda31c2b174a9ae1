-- How far documents and memories have the words that this version reads (`ops/rewording.py`): the
-- version that all have, and the last one, by its id, that has those of the next. No row: none has.
create table word_refresh (
  relation text primary key check (relation in ('documents', 'memories')),
  version integer not null default 0,
  after text not null default ''
);
