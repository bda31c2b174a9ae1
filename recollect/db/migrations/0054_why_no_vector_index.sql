-- Why the last try to build the vector index of another model failed.
alter table index_settings add column build_failure jsonb;
