-- A row of entries is larger than what PostgreSQL keeps in line. It then moved out what takes most
-- places, often vectors and weights, so that each comparison looked into another table for them.
-- The text is what goes now: it is read of few. Old rows change with the next `vacuum full`.
alter table entries
  alter column terms set storage main,
  alter column weights set storage main,
  alter column embedding set storage main,
  alter column embedding_b set storage main;
alter table memories
  alter column embedding set storage main,
  alter column embedding_b set storage main;
