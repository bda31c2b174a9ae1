-- A session that nobody has yet: the first browser that brings its token gets one of its own.
alter table sessions add column once boolean not null default false;
