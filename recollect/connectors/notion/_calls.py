"""The calls that a pass makes, and Notion's clock as they tell it."""

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from recollect.connectors.api import RATE_LIMITED
from recollect.connectors.base import Source
from recollect.connectors.notion._blocks import PAGE_SIZE
from recollect.errors import Transient
from recollect.fetch import EndpointAnswer

SMALL_PAGE = 20
NEWEST_FIRST = {"timestamp": "last_edited_time", "direction": "descending"}


class NotionCalls:
    """They all read, so they may be repeated."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = PAGE_SIZE
        self.count = 0
        self.now = source.since
        """by Notion's clock, because its times are compared with it"""

    def is_there(self) -> EndpointAnswer:
        return self.call("POST", "/v1/search", json={"page_size": 1})

    def search(self, at: str | None) -> EndpointAnswer:
        """A page of everything, what was edited last first; `at`: where it begins."""
        return self._list("/v1/search", {"sort": NEWEST_FIRST}, at)

    def search_trash(self, at: str | None) -> EndpointAnswer:
        return self._list("/v1/search", {"sort": NEWEST_FIRST, "filter": {"in_trash": True}}, at)

    def query(self, id: str, at: str | None, since: str | None) -> EndpointAnswer:
        """A page of a data source's rows, what was created first first, from `since` on."""
        body: dict[str, Any] = {"sorts": [{"timestamp": "created_time", "direction": "ascending"}]}
        if since is not None:
            created = {"on_or_after": since}
            body["filter"] = {"timestamp": "created_time", "created_time": created}
        return self._list(f"/v1/data_sources/{id}/query", body, at)

    def _list(self, path: str, body: Mapping[str, Any], at: str | None) -> EndpointAnswer:
        asked = {**body, "page_size": self._size, **({"start_cursor": at} if at else {})}
        try:
            return self.call("POST", path, json=asked)
        except Transient as error:
            asked_to_wait = error.code == RATE_LIMITED or error.after is not None
            if asked_to_wait or self._size == SMALL_PAGE:
                raise
            # Full pages of some workspaces are answered with 504 (dust-tt/dust pull request 5133).
            self._size = SMALL_PAGE
            return self._list(path, body, at)

    def call(self, method: str, path: str, **asked: Any) -> EndpointAnswer:
        self.count += 1
        answer = self._source.api.call(method, path, repeat=True, **asked)
        try:
            self.now = parsedate_to_datetime(answer.headers.get("date", ""))
        except (ValueError, OverflowError):
            self.now = max(self.now, self._source.since)
        if self.now.tzinfo is None:
            self.now = self.now.replace(tzinfo=UTC)
        return answer
