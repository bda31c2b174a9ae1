-- Runs outlive the documents that they brought, so their sentences call things by the provider's id
-- now. What earlier versions wrote called them by name.
update sync_runs set
  notes = array(select said from unnest(notes) as said
                 where said not like '“%' and said not like '%, which is shared with the account,%'),
  error_message = case
    when error_message like '“%' or error_message like '%, which is shared with the account,%'
    then 'Some things could not be read. What is known of them stays.' else error_message end
 where array_to_string(notes, ' ') ~ '“|, which is shared with the account,'
    or error_message ~ '“|, which is shared with the account,';
update items set detail = 'It stands for another file.'
 where verdict = 'shortcut' and detail like 'It stands for %';

-- Tags that connections filled again after their end: the trigger know_tags sees only what comes.
insert into tags (org_id, name)
  select distinct d.org_id, carried.tag from documents d
    cross join lateral unnest(d.container_tags) as carried (tag)
   order by 1, 2
  on conflict do nothing;
