"""One pass over a workspace: what the search says is new, and now and then a complete check.

Search is quick and not to be relied on: its index is late, it has gaps, and it ends at 10,000
results. So a check walks: from each page to the pages and databases in it, from each database to
its rows; and of whatever is known and was not met, it asks Notion one by one. That is why no
listing is ever taken for complete here: a document goes only because Notion said of it that it is
in the trash, or, twice, that there is no such thing.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, cast

from recollect.connectors._json import as_object
from recollect.connectors.api import Patience, as_json, field_of
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Gone,
    Item,
    Missing,
    Source,
    Trouble,
    Verdict,
)
from recollect.connectors.notion._blocks import (
    MOST_CALLS,
    BlockReader,
    look_through,
    pages,
)
from recollect.connectors.notion._calls import NotionCalls
from recollect.connectors.notion._state import (
    DATABASE,
    PAGE,
    SEARCH,
    UNSETTLED,
    VERIFY,
    WALK,
    Check,
    KnownObject,
    State,
)
from recollect.connectors.notion._told import (
    PageLook,
    described,
    edited_at,
    is_over,
    mark_of,
    object_of,
    parent_of,
    stamp,
)
from recollect.connectors.notion._values import (
    SITE,
    address,
    id_of,
    plain,
    tidy,
    time_of,
    title_of,
)
from recollect.errors import Permanent, Transient

KIND = "notion_doc"
"""type of the documents"""
OVERLAP = timedelta(minutes=2)
"""Times are rounded down to the minute, and the index is late: this much is looked at again. A page
that was edited within it may have been edited again in the same minute, without a trace."""
MOST_UNSETTLED = 200
MOST_MISSING = 1_000
MOST_PENDING = 200
BATCH = 50
"""things between two checkpoints, where each takes calls of its own; and calls, where it takes
many"""
NEWS_AFTER = 600
"""calls of a check until it looks for news in between"""
PER_SECOND = 3
SHARE = 20
"""A check may take the twentieth part of what Notion allows …"""
OFTENEST, SELDOMEST = timedelta(hours=1), timedelta(days=1)
"""… but happens this often. One that a user asks for waits only as long as the last one took."""
ASKED_AGAIN = timedelta(minutes=1)
"""after which what was not found is asked for once more"""
SOONEST = timedelta(seconds=10)
"""that a sync follows another by itself"""
SOURCE = "data_source"
DOUBTFUL = "doubtful"
GONE = frozenset({404})
TRASHED = "gone"
RESTRICTED = "restricted_resource"
ROWS = "Its rows are documents of their own."
NO_ACCESS = (
    "Notion does not find it: it was deleted, or is not shared with the connection any more."
)


class Pass:
    """One call of `changes`; `run` yields what it says."""

    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        self._source = source
        self._state = State.of(cursor)
        self._notion = NotionCalls(source)
        self._news_at = 0
        self._patience = Patience(self._notion.is_there)
        self._met: set[str] = set()
        """ids that were looked at in this pass"""
        self._said: dict[str, str] = {}
        """id → edit of which something was said in this pass"""
        self._waiting: deque[tuple[str, str]] = deque()
        """kind and id of what was heard of: it is looked at if it is not known"""
        self._doubtful: deque[str] = deque()
        """ids of what is known and may be gone: it is asked for"""
        self._walked = 0
        """calls that looked through pages; a page is looked through once per edit"""
        self._titles: dict[str, str] = {}
        """of pages and data sources"""
        self._roomy = True
        self._kept_at = 0
        """how many calls there were at the last checkpoint"""
        for kind, _, id in (each.partition(":") for each in self._state.pending):
            if kind == DOUBTFUL:
                self._doubtful.append(id)
            else:
                self._waiting.append((kind, id))

    def run(self) -> Iterator[Change]:
        try:
            yield from self._changes()
        except Permanent as error:
            if error.code != RESTRICTED:
                raise
            yield Trouble(str(error), error.code)
        yield self._checkpoint()

    def _changes(self) -> Iterator[Change]:
        if self._state.edited is not None:
            yield from self._news()
            yield from self._ask_again()
            yield self._checkpoint()
        if self._state.check is not None or self._is_due():
            yield from self._check()

    def _is_due(self) -> bool:
        state, since = self._state, self._source.since
        if state.checked is None:
            return True
        if self._source.asked and since > time_of(state.checked):
            state.wanted = True
        if state.wanted:
            return since >= self._may_check_at(state.checked)
        wait = timedelta(seconds=state.calls / PER_SECOND * SHARE)
        wait = min(max(wait, OFTENEST), SELDOMEST)
        return since >= time_of(state.checked) + wait

    def _may_check_at(self, checked: str) -> datetime:
        return time_of(checked) + timedelta(seconds=self._state.calls / PER_SECOND)

    def _again(self) -> timedelta | None:
        """When to come back for what is not settled, by their clock."""
        state = self._state
        times = [time_of(edited) + OVERLAP for edited in state.unsettled.values()]
        if state.missing:
            times.append(self._notion.now + ASKED_AGAIN)
        if state.wanted and state.checked is not None:
            times.append(self._may_check_at(state.checked))
        return max(min(times) - self._notion.now, SOONEST) if times else None

    def _checkpoint(self) -> Checkpoint:
        self._kept_at = self._notion.count
        check = self._state.check
        # What a check hears of while it searches, it walks to afterwards.
        heard = () if check is not None and check.phase == SEARCH else self._heard()
        self._state.pending = list(islice(heard, MOST_PENDING))
        return Checkpoint(self._state.cursor(), self._again())

    def _heard(self) -> Iterator[str]:
        yield from (f"{kind}:{id}" for kind, id in self._waiting)
        yield from (f"{DOUBTFUL}:{id}" for id in self._doubtful)

    # --- what is new ---

    def _news(self) -> Iterator[Change]:
        """What the search reports since the last time, newest first."""
        self._news_at = self._notion.count
        before = self._state.edited or ""
        until = time_of(before) - OVERLAP
        newest = before
        latest = ""
        for page in pages(self._notion.search):
            if not page.whole:
                self._state.checked = None  # more is new than the search can tell
            newest = max([newest, *(edited_at(found) for found in page.results)])
            latest = latest or stamp(self._notion.now)
            yield from self._look_at(page.results)
            yield from self._follow()
            yield self._checkpoint()
            if is_over(page, until):
                break
        for page in pages(self._notion.search_trash):
            yield from self._bury(page.results)
            if is_over(page, until):
                break
        self._state.edited = min(newest, latest)

    def _bury(self, trashed: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
        """Say that pages in the trash are gone, and ask for what stood in them: it may have
        moved."""
        ids = [id_of(found.get("id")) for found in trashed]
        for known in self._known(ids).values():
            if self._said.get(known.row.id) != TRASHED:
                yield from self._gone(known)
                yield from self._follow()

    def _gone(self, known: KnownObject) -> Iterator[Change]:
        self._said[known.row.id] = TRASHED
        self._forget(known.row.id)
        yield Gone(known.row.id)
        self._doubt(known)

    def _doubt(self, known: KnownObject) -> None:
        """Mark what stood in an object that is gone, to be asked for."""
        self._doubtful.extend(id for kind, id in known.children if kind == PAGE)
        containers = {id for kind, id in known.children if kind == DATABASE}
        if containers or known.object == DATABASE:
            self._doubtful.extend(
                row.id
                for row in self._source.remembered()
                if row.extra.get("parent") == known.row.id
                or row.extra.get("container") in containers
            )

    def _ask_again(self) -> Iterator[Change]:
        """Ask again for what was not found the last time, and for what had just been edited
        then."""
        for id in list(self._state.missing):
            if id not in self._met:
                self._state.missing.remove(id)
                yield from self._ask_for_known([id], again=True)
        for id, edited in list(self._state.unsettled.items()):
            if id in self._met or self._notion.now < time_of(edited) + OVERLAP:
                continue
            del self._state.unsettled[id]
            self._doubtful.append(id)
        yield from self._follow()

    # --- the complete check ---

    def _check(self) -> Iterator[Change]:
        check = self._state.check
        if check is None:
            check = self._state.check = Check(self._source.since.isoformat())
            self._state.wanted = False
        before = self._spent() - check.calls
        if check.phase == SEARCH:
            yield from self._search_all(check, before)
        if check.phase == WALK:
            yield from self._walk(check, before)
        yield from self._verify(check, before)
        self._state.check = None
        self._state.checked = check.began
        self._state.calls = self._spent() - before

    def _spent(self) -> int:
        """Calls so far that every check takes."""
        return self._notion.count - self._walked

    def _search_all(self, check: Check, before: int) -> Iterator[Change]:
        resumed = check.at is not None
        try:
            for page in pages(self._notion.search, check.at):
                if self._state.edited is None:
                    # What changes from now on is news.
                    edits = [*(edited_at(found) for found in page.results), ""]
                    now = stamp(self._notion.now)
                    self._state.edited = min(max(edits) or now, now)
                for at in range(0, len(page.results), BATCH):
                    yield from self._look_at(page.results[at : at + BATCH], always=True)
                    yield self._checkpoint()
                check.at = page.next
                yield from self._between(check, before)
        except Permanent as error:
            if not resumed or error.code != "http_400":
                raise
            # Nobody says how long a place in a search is good for.
            check.at = None
            yield from self._search_all(check, before)
            return
        check.phase, check.at = WALK, None
        yield self._checkpoint()

    def _walk(self, check: Check, before: int) -> Iterator[Change]:
        """Look at all that was found, then at what stands in it, and so on."""
        began = time_of(check.began)
        calls = self._notion.count
        for row in self._source.remembered():
            if row.seen_at < began:
                continue
            known = KnownObject(row)
            self._waiting.extend(known.children)
            if known.object == DATABASE and row.extra.get("listed") != check.began:
                yield from self._guarded(self._rows_of(row.id, always=True), row.id)
                extra = {**row.extra, "listed": check.began}
                yield Verdict(row.id, DATABASE, ROWS, extra=extra, url=row.url, title=row.title)
            yield from self._follow()
            if self._notion.count - calls > BATCH:
                calls = self._notion.count
                yield from self._between(check, before)
        check.phase = VERIFY
        yield from self._between(check, before)

    def _verify(self, check: Check, before: int) -> Iterator[Change]:
        """Ask for each thing that is known and was not found in this check."""
        began = time_of(check.began)
        yield self._checkpoint()
        unmet = (row.id for row in self._source.remembered() if row.seen_at < began)
        while ids := list(islice(unmet, BATCH)):
            yield from self._ask_for_known(id for id in ids if id not in self._said)
            yield from self._follow()
            yield from self._between(check, before)

    def _between(self, check: Check, before: int) -> Iterator[Change]:
        check.calls = self._spent() - before
        yield self._checkpoint()
        if self._notion.count - self._news_at > NEWS_AFTER:
            yield from self._news()
            yield self._checkpoint()

    # --- one thing ---

    def _look_at(
        self, found: Sequence[Mapping[str, Any]], *, always: bool = False
    ) -> Iterator[Change]:
        """Say of pages and data sources what is new of them; with `always`, of each something."""
        ids = [id_of(one.get("id")) for one in found]
        parents = [parent for one in found if (parent := parent_of(one)) is not None]
        known = self._known([*ids, *parents])
        self._titles |= {id: one.row.title or "" for id, one in known.items()}
        self._roomy = self._source.room() > 0
        for id, one in zip(ids, found, strict=True):
            self._met.add(id)
            if id in self._said and self._said[id] == edited_at(one):
                continue
            steps = (
                self._database(id, one, known.get(id), always)
                if one.get("object") == SOURCE
                else self._page(id, one, known.get(id), always)
            )
            yield from self._guarded(steps, id)
            if self._notion.count - self._kept_at > BATCH:
                yield self._checkpoint()

    def _page(
        self, id: str, page: Mapping[str, Any], known: KnownObject | None, always: bool
    ) -> Iterator[Change]:
        if page.get("in_trash") or page.get("archived"):
            if known is not None:
                yield from self._gone(known)
            return
        if "last_edited_time" not in page:
            raise Permanent("Notion gives only its id", code="partial_object")
        edited = edited_at(page)
        settled = self._notion.now >= time_of(edited) + OVERLAP
        always = always or id in self._state.missing
        self._forget(id)
        if not settled and len(self._state.unsettled) < MOST_UNSETTLED:
            self._state.unsettled[id] = edited
        version = edited if settled else edited + UNSETTLED
        title = title_of(page.get("properties"))
        self._titles[id] = title
        url = address(page.get("url")) or SITE + id
        metadata, lines = described(page, self._name_of_database)
        mark = mark_of(title, url, metadata, lines)
        if known is not None and known.unchanged(version, mark) and not always:
            return
        look = yield from self._look_through(id, version, known)
        self._waiting.extend(look.children)
        self._said[id] = edited
        empty = look.blank and not lines
        # One answer without blocks may be a mistake of Notion's; another one tells.
        doubted = empty and not (known is not None and known.was_blank(edited))
        if doubted and len(self._state.unsettled) < MOST_UNSETTLED:
            self._state.unsettled[id] = edited
        extra = {
            "object": PAGE,
            "edited": version,
            "mark": mark,
            "walked": version if look.whole and not doubted else None,
            "children": [f"{kind}:{child}" for kind, child in look.children],
            "blank": look.blank,
            "parent": parent_of(page),
            "lines": lines,
        }
        if empty:
            yield Verdict(
                id,
                "empty_page",
                "Nothing is written on it yet.",
                extra=extra,
                confirm=True,
                url=url,
                title=title or None,
            )
            return
        yield Item(
            id=id,
            version=version,
            title=title or None,
            url=url,
            kind=KIND,
            metadata=metadata,
            extra=extra,
            modified_at=time_of(edited),
        )

    def _database(
        self, id: str, found: Mapping[str, Any], known: KnownObject | None, always: bool
    ) -> Iterator[Change]:
        """A data source: a table, whose rows are the documents."""
        if found.get("in_trash") or found.get("archived"):
            if known is not None:
                yield from self._gone(known)
            return
        title = plain(found.get("title"))
        self._titles[id] = title
        edited = edited_at(found)
        url = address(found.get("url")) or SITE + id
        mark = mark_of(title, url, {}, [])
        if known is not None and known.unchanged(edited, mark) and not always:
            return
        self._said[id] = edited
        self._forget(id)
        check = self._state.check
        listed = None if known is None else known.row.extra.get("listed")
        extra = {
            "object": DATABASE,
            "edited": edited,
            "mark": mark,
            "container": tidy(as_object(found.get("parent")).get("database_id")).replace("-", ""),
            "listed": listed,
        }
        # What a check finds by its search, it lists afterwards.
        late = check is not None and check.phase != SEARCH and listed != check.began
        if known is None or late:
            # It is known once its rows are: else they would wait for a check if we are cut off.
            yield from self._rows_of(id, always=always)
            if check is not None:
                extra["listed"] = check.began
        yield Verdict(id, DATABASE, ROWS, extra=extra, url=url, title=title or None)

    def _rows_of(self, id: str, *, always: bool) -> Iterator[Change]:
        """All rows, in windows of their creation where they are more than one query tells."""
        since: str | None = None
        while True:
            last, whole = since, True
            for page in pages(lambda at, since=since: self._notion.query(id, at, since)):
                for at in range(0, len(page.results), BATCH):
                    yield from self._look_at(page.results[at : at + BATCH], always=always)
                    yield self._checkpoint()
                whole = page.whole
                last = max([last or "", *(tidy(r.get("created_time")) for r in page.results)])
            if whole:
                return
            if not last or last == since:
                raise Permanent(
                    "more rows were created in one minute than Notion lists. What was read of"
                    " it before stays",
                    code="too_large",
                )
            since = last

    def _name_of_database(self, id: str) -> str:
        """Rows may be told of before their database is."""
        if id not in self._titles:
            answer = self._notion.call("GET", f"/v1/data_sources/{id}", accept=GONE)
            found = {} if answer.status in GONE else as_object(as_json(answer))
            self._titles[id] = plain(found.get("title"))
            self._waiting.append((SOURCE, id))
        return self._titles[id]

    def _look_through(
        self, id: str, version: str, known: KnownObject | None
    ) -> Generator[Change, None, "PageLook"]:
        """Look for what stands in a page, unless that is known or of no use."""
        before = PageLook([] if known is None else known.children, blank=False, whole=False)
        if known is not None and known.walked(version):
            return PageLook(before.children, bool(known.row.extra.get("blank")), whole=True)
        if not self._roomy and (known is None or known.row.document_id is None):
            return before
        reader = BlockReader(self._notion.call)
        try:
            found = look_through(reader, id)
        except (Permanent, Transient) as error:
            yield self._trouble(error, id)
            return before
        finally:
            self._walked += MOST_CALLS - reader.left
        return PageLook(found.children, found.blank and not reader.lacking, not reader.lacking)

    # --- what was heard of ---

    def _follow(self) -> Iterator[Change]:
        """Look at what waits, and at what stands in it, and so on."""
        while self._waiting or self._doubtful:
            doubtful = list(islice(self._doubtful, BATCH))
            yield from self._ask_for_known(id for id in doubtful if id not in self._said)
            batch = list(islice(self._waiting, BATCH))
            known = self._known([id for _, id in batch])
            for kind, id in dict.fromkeys(batch):
                if id not in self._met and id not in known:
                    self._met.add(id)
                    yield from self._guarded(self._ask_for(kind, id), id)
            # Not before: there may have been checkpoints in between.
            for _ in doubtful:
                self._doubtful.popleft()
            for _ in batch:
                self._waiting.popleft()
            yield self._checkpoint()

    def _ask_for(self, kind: str, id: str) -> Iterator[Change]:
        """Something that was not known so far; what is not shared with us is ignored."""
        if kind == DATABASE:
            # A view of a database elsewhere is answered with 400 or 404.
            answer = self._notion.call("GET", f"/v1/databases/{id}", accept=GONE | {400})
            if answer.status == 200:
                found = field_of(as_json(answer), "data_sources", list)
                sources = [id_of(as_object(one).get("id")) for one in cast("list[Any]", found)]
                self._waiting.extend((SOURCE, one) for one in sources)
            return
        path = "data_sources" if kind == SOURCE else "pages"
        answer = self._notion.call("GET", f"/v1/{path}/{id}", accept=GONE)
        if answer.status == 200:
            yield from self._look_at([object_of(answer)])

    def _ask_for_known(self, ids: Iterable[str], *, again: bool = False) -> Iterator[Change]:
        """Things that are known, one by one."""
        for id, known in self._known(list(ids)).items():
            yield from self._guarded(self._ask_for_one(known, again), id)

    def _ask_for_one(self, known: KnownObject, again: bool) -> Iterator[Change]:
        id = known.row.id
        path = "data_sources" if known.object == DATABASE else "pages"
        answer = self._notion.call("GET", f"/v1/{path}/{id}", accept=GONE)
        if answer.status == 200:
            yield from self._look_at([object_of(answer)], always=True)
            return
        self._met.add(id)
        self._said[id] = TRASHED
        self._forget(id)
        if not again and len(self._state.missing) < MOST_MISSING:
            self._state.missing.append(id)
        yield Missing(id, NO_ACCESS)
        self._doubt(known)

    # --- trouble ---

    def _guarded(self, steps: Iterator[Change], id: str) -> Iterator[Change]:
        """Report an error of one thing, and go on with the others."""
        before = self._patience.in_a_row
        try:
            yield from steps
        except (Permanent, Transient) as error:
            yield self._trouble(error, id)
            return
        if self._patience.in_a_row == before:
            self._patience.succeeded()

    def _trouble(self, error: Permanent | Transient, id: str) -> Trouble:
        """Report an error that concerns this thing alone; raise any other again."""
        if isinstance(error, Transient) or error.code == RESTRICTED:
            self._patience.failed(error)
        return Trouble(f"{id}: {error}. What was read of it before stays.", error.code)

    # --- what is known ---

    def _known(self, ids: Sequence[str]) -> dict[str, KnownObject]:
        if not ids:
            return {}
        return {
            row.id: KnownObject(row) for row in self._source.remembered(list(dict.fromkeys(ids)))
        }

    def _forget(self, id: str) -> None:
        """Ask for it no more: it was found, or is gone."""
        self._state.unsettled.pop(id, None)
        if id in self._state.missing:
            self._state.missing.remove(id)
