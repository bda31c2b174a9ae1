"""What a caller may see, said once: rows of its organisation, within the tags of its key.

The predicates take the parameters of `bounds`. A row with several tags is seen by a key that has
one of them (`with_any`), or only by one that has all (`with_all`); rows of one tag are `with_one`.
"""

from typing import LiteralString

from recollect.model import Tenant


def bounds(tenant: Tenant) -> dict[str, object]:
    """The parameters `org` and `reach` (the tags of a limited key; None: all)."""
    return {"org": tenant.id, "reach": None if tenant.tags is None else list(tenant.tags)}


def with_any(tags: LiteralString, org: LiteralString) -> LiteralString:
    """Rows that carry one of the key's tags; the arguments are columns."""
    return _of(org, f"{tags} && %(reach)s::text[]")


def with_all(tags: LiteralString, org: LiteralString) -> LiteralString:
    """Rows all of whose tags are the key's; the arguments are columns."""
    return _of(org, f"{tags} <@ %(reach)s::text[]")


def with_one(tag: LiteralString, org: LiteralString) -> LiteralString:
    """Rows whose one tag is among the key's; the arguments are columns."""
    return _of(org, f"{tag} = any(%(reach)s::text[])")


def _of(org: LiteralString, within: LiteralString) -> LiteralString:
    return f"{org} = %(org)s and (%(reach)s::text[] is null or {within})"
