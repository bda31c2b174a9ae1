-- Where a chunk stands in the original: page, sheet and row, time, message, path of headings.
alter table chunks add column place jsonb not null default '{}';
