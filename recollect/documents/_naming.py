"""The first passage of a document is found by the names of the document, too: its title, and that
of its file (docs/decisions/0054)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pgvector import SparseVector

from recollect import db
from recollect.db import Tx
from recollect.documents._rows import TERM_SPACE, names
from recollect.index import terms
from recollect.model import DocumentId, OrgId


def rename(tx: Tx, org: OrgId, id: DocumentId) -> Counter[int]:
    """Bring the words of a document's names up to date. Its row is locked. Returns by how much
    `term_counts` change."""
    row = tx.execute("select title, blob_name, scope from documents where id = %s", (id,))
    document = row.fetchone()
    first = first_hash(tx, id)
    if document is None or first is None:
        return Counter()
    return move_names(
        tx, org, id, document["scope"], (document["title"], document["blob_name"]), [first]
    )


def first_hash(tx: Tx, id: DocumentId) -> bytes | None:
    """The hash of the first passage, if there is one."""
    row = tx.execute("select hash from chunks where document_id = %s and position = 0", (id,))
    found = row.fetchone()
    return None if found is None else found["hash"]


def move_names(
    tx: Tx,
    org: OrgId,
    id: DocumentId,
    scope: Sequence[int],
    named: tuple[str | None, str | None],
    hashes: Sequence[bytes],
) -> Counter[int]:
    """Let the first of these entries have the words of the title and of the file's name, and the
    others none of them; as `rename`."""
    rows = tx.execute(
        "select hash, text, terms from entries where document_id = %s and hash = any(%s)",
        (id, list(hashes)),
    ).fetchall()
    words: dict[bytes, Mapping[int, float]] = {}
    for row in rows:
        told = names(*named, row["text"]) if row["hash"] == hashes[0] else ""
        weights = terms.weigh(org, row["text"], told)
        if {*scope, *weights} != set(row["terms"]):
            words[row["hash"]] = weights
    return replace_words(tx, id, scope, words)


def replace_words(
    tx: Tx, id: DocumentId, scope: Sequence[int], words: Mapping[bytes, Mapping[int, float]]
) -> Counter[int]:
    """Give entries, by their hash, other words; as `rename`."""
    delta = Counter[int]()
    if words:
        db.fence(tx)
    for hash, weights in words.items():
        one = {"id": id, "hash": hash}
        old = tx.execute(
            "select terms from entries where document_id = %(id)s and hash = %(hash)s for update",
            one,
        ).fetchone()
        if old is None:
            continue
        numbers = [*scope, *weights]
        vector = SparseVector({number - 1: w for number, w in weights.items()}, TERM_SPACE)
        tx.execute(
            "update entries set terms = %(terms)s, weights = %(weights)s"
            " where document_id = %(id)s and hash = %(hash)s",
            {**one, "terms": numbers, "weights": vector},
        )
        delta.update(numbers)
        delta.subtract(old["terms"])
    return delta
