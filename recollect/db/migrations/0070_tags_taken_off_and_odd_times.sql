-- The tags that a user took off the document of a thing. Its connection may give one of them up and
-- give it again later: then nothing else tells that this document is to do without.
alter table items add column taken_tags text[] not null default '{}';

-- Times of providers that can be stored in UTC, but never be read again, ended each sync.
update items set modified_at = null
 where modified_at not between '0001-01-02 00:00:00+00' and '9999-12-30 00:00:00+00';
