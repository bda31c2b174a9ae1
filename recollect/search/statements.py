"""The statements that find the candidates of a search; `candidates` fills their blanks."""

from psycopg import sql

# A scan of all tenants' entries is never best, but looks cheap to the planner, which does not know
# how long it takes to compare arrays, nor that the index mostly is in memory. Each session has the
# last two anyway, but not on the workers of Citus.
SETTINGS = sql.SQL(
    "set local enable_seqscan = off; set local random_page_cost = 1.1;"
    " set local hnsw.iterative_scan = relaxed_order; set local jit = off; "
)
PUBLISHED = sql.SQL(
    # What is stashed belongs to a document that is queued or being processed.
    "(d.settled or exists (select from chunks c where c.document_id = d.id and c.hash = {}))"
)
# The numbers of words are salted with the organisation: they alone keep tenants apart but for a
# collision, which the condition on the best finds.
PICK = sql.SQL("e.terms && %(picks)s::int4[]")
PAIRED = sql.SQL("e.terms && %(picks)s::int4[] and e.terms && %(beside)s::int4[]")
PICKED = sql.SQL(
    "select e.document_id, e.hash, e.weights <#> %(words)s as distance"
    " from entries e where e.terms @> %(within)s::int4[] and {picked}"
)
PICKED_NARROWED = sql.SQL(
    "select e.document_id, e.hash, e.weights <#> %(words)s as distance"
    " from {documents} join entries e on e.document_id = d.id"
    " where e.terms @> %(within)s::int4[] and {picked} and {condition} and {published}"
)
PICKED_SHARED = sql.SQL(
    "select document_id, hash, distance from ("
    "  select e.document_id, e.hash, e.weights <#> %(words)s as distance, row_number() over"
    "   (partition by e.document_id order by e.weights <#> %(words)s, e.hash) as nth"
    "  from {documents} join entries e on e.document_id = d.id"
    "  where e.terms @> %(within)s::int4[] and {picked} and {condition} and {published}"
    "  ) as all_picked"
    " where nth <= %(share)s"
)
# No condition on `terms`: it would tempt the planner to the GIN index and a sort of everything. The
# sum keeps who sorts again what was found from ending the walk with its first round. Documents are
# looked up apart, or a plan for any parameters begins with them and compares all of their entries.
WALKED = sql.SQL(
    "select e.document_id, e.hash,"
    " ((e.{column}::halfvec({dimensions})) <=> %(vector)s) + 0 as distance"
    " from entries e cross join lateral (select from facets d"
    "  where d.id = e.document_id and {condition} and {published} {apart}) as d"
    " order by (e.{column}::halfvec({dimensions})) <=> %(vector)s limit %(walked)s"
)
# From the documents that match to all of their entries. The sum keeps the planner from the vector
# index, which would miss entries of a small scope. An older text may have a vector of as many
# dimensions as its model gave before another `recollect reindex`.
COMPARED = sql.SQL(
    "select e.document_id, e.hash, (e.{column} <=> %(vector)s) + 0 as distance"
    " from {matching} join entries e on e.document_id = d.id"
    " where vector_dims(e.{column}) = {dimensions} and {published}"
)
MATCHING = sql.SQL("(select d.id, d.settled from facets d where {condition} {apart}) as d")
SIMILARITY = (
    "case when vector_dims(e.{column}) = {dimensions} then 1 - (e.{column} <=> %(vector)s) end"
)
SHARED = sql.SQL(
    "select document_id, hash, distance from (select document_id, hash, distance,"
    "  row_number() over (partition by document_id order by distance, hash) as nth"
    "  from ({all}) as near) as placed"
    " where nth <= %(share)s"
)
# Of equals at the end the newest are candidates, and of a document its first passages.
FIRST = sql.SQL(
    "select document_id, hash, distance from (with first_found as materialized ("
    "   select document_id, hash, distance from ({all}) as all_found"
    "   order by distance fetch first %(candidates)s rows with ties),"
    "  dated as materialized (select f.*, count(*) over (partition by f.document_id) as beside,"
    "   (select d.updated_at from documents d where d.id = f.document_id) as updated_at"
    "   from first_found f),"
    "  placed as materialized (select c.document_id, c.hash, min(c.position) as position"
    "   from dated f {placed} where f.beside > 1 group by c.document_id, c.hash)"
    " select f.*, p.position from dated f left join placed p using (document_id, hash)"
    ") as best order by distance, updated_at desc, position limit %(candidates)s"
)
NOTHING = sql.SQL(
    "select null::text as document_id, null::bytea as hash, 0::float8 as distance where false"
)
# What lies in the index and what does not are never joined but by what was found: they may lie on
# different servers (docs/decisions/0042).
FOUND = sql.SQL(
    """
with picked as materialized ({picked}),
lexical as (
  select p.document_id, p.hash from picked p
  join facets d on d.id = p.document_id
  where p.distance < 0 and {condition} and {published}
),
dense as materialized ({dense}),
candidates as materialized (
  select document_id, hash, bool_or(by_words) as by_words, bool_or(by_meaning) as by_meaning
  from (select document_id, hash, true as by_words, false as by_meaning from lexical
        union all select document_id, hash, false, true from dense) as sides
  group by document_id, hash
),
found as materialized (
  select k.*, c.position, c.start_at, c.end_at, c.place, e.text,
         -(e.weights <#> %(words)s) as points, {similarity} as similarity
  from candidates k
  {looked_up}
  join lateral (
    select position, start_at, end_at, place from chunks
    where document_id = e.document_id and hash = e.hash
    order by position + 0 limit 1 -- not by the primary key, through all chunks of the document
  ) as c on true
)
select f.*, d.updated_at, d.title, d.blob_name, (select count(*) from picked) as picked
from found f {dated}
"""
)
JOINED = {
    "placed": sql.SQL("join chunks c on c.document_id = f.document_id and c.hash = f.hash"),
    "looked_up": sql.SQL("join entries e on e.document_id = k.document_id and e.hash = k.hash"),
    "dated": sql.SQL("join documents d on d.id = f.document_id"),
}
# What was known then lies in several tables, of which a plain join reads all.
BY_ONE = {
    "placed": sql.SQL(
        "cross join lateral (select document_id, hash, position from chunks c"
        "  where c.document_id = f.document_id and c.hash = f.hash offset 0) as c"
    ),
    "looked_up": sql.SQL(
        "cross join lateral (select * from entries e"
        "  where e.document_id = k.document_id and e.hash = k.hash offset 0) as e"
    ),
    "dated": sql.SQL(
        "cross join lateral (select * from documents d where d.id = f.document_id offset 0) as d"
    ),
}

COUNTS = sql.SQL(
    "select number, entries, null as shards from term_counts"
    " where org_id = %(org)s and number = any(%(numbers)s)"
    " union all select null, entries, shards from index_shape()"
)
WITHIN = sql.SQL(
    "select c.number, count(*) as entries from term_counts c"
    " join entries e on e.terms @> (%(scope)s::int4[] || c.number)"
    " where c.org_id = %(org)s and c.number = any(%(numbers)s) group by c.number"
)
TOGETHER = sql.SQL("select count(*) as entries from entries e where e.terms @> %(scope)s::int4[]")
HOLDING = sql.SQL(
    "select e.document_id, e.hash, e.text from entries e join facets d on d.id = e.document_id"
    " where {held} and {condition} and {published}"
    " order by e.weights <#> %(words)s, e.hash limit %(most)s"
)
NAMED = (
    "with first as materialized (select document_id, hash from chunks"
    "  where document_id = any(%s) and position = 0)"
    " select f.*, d.title, d.blob_name from first f join documents d on d.id = f.document_id"
)
# Entries by themselves, so that the index of their terms can find the documents.
OF_HOLDING = sql.SQL("d.id in (select e.document_id from entries e where {held})")
NOT_HOLDING = sql.SQL(
    "not exists (select from entries e where e.document_id = d.id and {held} and {published})"
)
