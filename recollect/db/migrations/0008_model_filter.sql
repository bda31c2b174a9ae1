-- What the model of the filter said of a thing, by the SHA-256 of all that it was told: nothing is
-- asked twice. It goes with the thing.
create table judgements (
  connection_id text not null,
  item_id       text not null,
  question      bytea not null,
  keep          boolean not null,
  reason        text not null,
  said_at       timestamptz not null default now(),
  primary key (connection_id, item_id, question),
  foreign key (connection_id, item_id) references items (connection_id, id)
    on update cascade on delete cascade
);
