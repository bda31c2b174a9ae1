-- The tags that a user took off the document of a thing. Its connection may give one of them up and
-- give it again later: then nothing else tells that this document is to do without.
alter table items add column taken_tags text[] not null default '{}';
