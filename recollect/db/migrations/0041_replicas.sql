-- What a streaming replica shows to prove that it follows this very database: a word that the
-- primary writes into its own log. Of the same line are those who read it there. A replica that
-- became a primary writes another timeline, a restored copy is another system or database: they
-- get words of their own.
create table lineages (
  line text primary key, -- system, database and timeline
  word text not null default gen_random_uuid()
);
