-- Questions with what should be found, by tag, and how the search fared at them. They go with their
-- tag; those that were made from a document go with it, and take what was noted of them along.
create table test_questions (
  id          text primary key,
  org_id      text not null references orgs on delete cascade,
  tag         text not null,
  question    text not null,
  document    text, -- id or customId of what should be found
  words       text, -- what a passage that is found should say
  made_from   text references documents on delete cascade,
  created_at  timestamptz not null default now(),
  updated_at  timestamptz not null default now(),
  constraint test_questions_expect check (document is not null or words is not null),
  foreign key (org_id, tag) references tags (org_id, name) on delete cascade on update cascade
);
create index test_questions_tag on test_questions (org_id, tag, created_at, id);
create index test_questions_made_from on test_questions (made_from) where made_from is not null;

create table test_runs (
  id          text primary key,
  org_id      text not null references orgs on delete cascade,
  tag         text not null,
  rerank      boolean not null,
  rewrite     boolean not null,
  created_at  timestamptz not null default now(),
  finished_at timestamptz,
  foreign key (org_id, tag) references tags (org_id, name) on delete cascade on update cascade
);
create index test_runs_tag on test_runs (org_id, tag, created_at desc, id);

create table test_results (
  run_id      text not null references test_runs on delete cascade,
  question_id text not null references test_questions on delete cascade,
  place       int not null,
  asked_at    timestamptz, -- null: it waits
  rank        int check (rank > 0), -- null: not among the first ten
  primary key (run_id, question_id)
);
create index test_results_question on test_results (question_id);
