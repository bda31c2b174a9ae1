"""What other rooms say, in the words of this door: it names no field that its clients lack."""

import re
from collections.abc import Mapping

from recollect.errors import Issue, RequestError

NAMES: Mapping[str, str] = {
    "GET /v3/documents/{id}": "GET /ns/{namespace}/document/{id}",
    "change those with PATCH /v4/memories": "forget those instead",
    "name the containerTag, or use the id": "use the id that the service gave it",
    "searchMode documents": "searchMode chunks",
    "Container tag": "Namespace",
    "container tags": "namespaces",
    "container tag": "namespace",
    "Connection not found": "Connector not found",
    "no connection": "no connector",
    "containerTags": "namespace",
    "containerTag": "namespace",
    "customId": "id",
    "entityContext": "supportingContext",
    "filterByMetadata": "group",
    "documentDate": "date",
    "filterPrompt": "organizationalContext",
}
FIELDS: Mapping[str, str] = {
    "aggregate": "rerank",
    "filters": "filter",
    "q": "query",
    "resources": "selection",
}
"""Fields of the older API whose names are words as well: what a text about one begins with."""
_NAME = re.compile(
    r"(?<!\w)(?:GET /v3/documents/\{id\}|change those with PATCH /v4/memories"
    r"|name the containerTag, or use the id|searchMode documents|containerTags?|customId"
    r"|Container tag|container tags?|Connection not found|no connection(?= $)"
    r"|entityContext|filterByMetadata|documentDate|filterPrompt)(?!\w|: unknown field)"
)
_FIELD = re.compile(r"(^|; )([A-Za-z]+)(?=[.:\[])(?!: unknown field)")
_QUOTED = re.compile(r"""((?<!\w)(?:'[^']*+'|"[^"]*+")(?!\w))""")


def in_words(told: str, fields: Mapping[str, str] = FIELDS) -> str:
    """The text without names of the older API. What is quoted is someone's own and stays, and so
    does an unknown field. `fields`: by `FIELDS` and more."""
    parts = _QUOTED.split(told)
    for at in range(0, len(parts), 2):
        ours = _FIELD.sub(lambda found: found[1] + fields.get(found[2], found[2]), parts[at])
        parts[at] = _NAME.sub(lambda found: NAMES[found[0]], ours)
    return "".join(parts)


class DoorError(RequestError):
    """What another room refused, with a status and in the words of this door."""

    def __init__(self, error: RequestError, status: int, fields: Mapping[str, str]) -> None:
        ours = {**NAMES, **fields}
        super().__init__(
            in_words(error.message, fields),
            None if error.details is None else in_words(error.details, fields),
            [
                Issue(
                    [*(ours.get(str(part), part) for part in one.path[:1]), *one.path[1:]],
                    in_words(one.message, fields),
                )
                for one in error.issues
            ],
        )
        self.status = status
        self.permanent = error.permanent
