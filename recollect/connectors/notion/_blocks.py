"""Blocks: what is found below a page, and its content as Markdown where Notion gives none.

Facts: developers.notion.com/reference/block. A list of children has at most 100 blocks; blocks
within blocks take a call each.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from recollect.connectors._json import as_object, as_objects
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Turning, as_json, field_of
from recollect.connectors.notion._files import Hosted
from recollect.connectors.notion._values import (
    SITE,
    address,
    file_name,
    id_of,
    link,
    marked,
    plain,
    tidy,
)
from recollect.errors import Permanent, Transient
from recollect.fetch import EndpointAnswer

Call = Callable[..., EndpointAnswer]
"""`Api.call`, or what stands in front of it"""
PAGE_SIZE = 100
"""the most that Notion gives at a time"""
MOST_CALLS = 1_500
"""for one page: more than eight minutes at three calls a second"""
DEEPEST = 30
"""levels of blocks within blocks"""
GONE = frozenset({404})

CHILD_PAGE, CHILD_DATABASE = "child_page", "child_database"
STRUCTURE = frozenset(
    {"column_list", "column", "synced_block", "tab", "divider", "breadcrumb", "table_of_contents"}
)
"""say nothing by themselves"""
SILENT = frozenset({"breadcrumb", "table_of_contents"})
WORDS = frozenset(
    {
        "paragraph", "bulleted_list_item", "numbered_list_item", "to_do", "toggle", "quote",
        "callout", "heading_1", "heading_2", "heading_3", "heading_4", "code", "template",
    }
)  # fmt: skip
"""have rich text"""
FILES = {"image": "Image", "video": "Video", "audio": "Audio", "file": "File", "pdf": "PDF"}
READABLE = frozenset({"file", "pdf"})
"""of these what is in them is read, too"""
HEADINGS = {"heading_1": "#", "heading_2": "##", "heading_3": "###", "heading_4": "####"}
ITEMS = frozenset({"bulleted_list_item", "numbered_list_item", "to_do"})
MEETINGS = frozenset({"transcription", "meeting_notes"})
"""the same block, before and since API version 2026-03-11"""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of any of Notion's lists."""

    results: list[dict[str, Any]]
    next: str | None
    whole: bool
    """False: Notion says that it leaves some out (10,000 results)"""


@dataclass(frozen=True, slots=True)
class PageContents:
    """What a look through a page finds."""

    children: list[tuple[str, str]]
    """kind (`page`, `database`) and id of what stands below it"""
    blank: bool
    """there is nothing to read in it"""


def pages(
    ask: Callable[[str | None], EndpointAnswer], start: str | None = None
) -> Iterator[ListPage]:
    """All pages of a list; raises Transient for one that has no end."""
    turning = Turning("Notion", start)
    at = start
    while True:
        said = as_json(ask(at))
        results = as_objects(field_of(said, "results", list))
        more = field_of(said, "has_more", bool)
        ids = (result.get("id") for result in results)
        at = turning.turn(said.get("next_cursor"), ids) if more else None
        if more and at is None:
            raise Transient("Notion has more, but does not say where", code=PROVIDER_UNAVAILABLE)
        whole = as_object(said.get("request_status")).get("type") != "incomplete"
        yield ListPage(results, at, whole)
        if at is None:
            return


@dataclass
class BlockReader:
    """Reads the blocks of one page, with so many calls at most."""

    call: Call
    left: int = MOST_CALLS
    lacking: list[str] = field(default_factory=list[str])
    """sentences about what could not be read"""
    shown: list[Hosted] = field(default_factory=list[Hosted])
    """files that Notion stores, as far as pieces of the page were rendered"""

    def children(self, id: str) -> list[dict[str, Any]]:
        """Raises Permanent (`no_access`) when there is no such block, or none for us."""

        def ask(at: str | None) -> EndpointAnswer:
            if self.left <= 0:
                raise Permanent("it has too many blocks to read them all", code="too_large")
            self.left -= 1
            params = {"page_size": str(PAGE_SIZE), **({"start_cursor": at} if at else {})}
            answer = self.call("GET", f"/v1/blocks/{id}/children", params=params, accept=GONE)
            if answer.status in GONE:
                raise Permanent("Notion does not show it", code="no_access")
            return answer

        return [block for page in pages(ask) for block in page.results]

    def part(self, id: str) -> list[dict[str, Any]]:
        """Children of something within the page: the rest can be read without them."""
        try:
            return self.children(id)
        except Permanent as error:
            self.lacking.append(f"A part of it is missing: {error}.")
            return []


# --- looking through ---------------------------------------------------------------------------


def look_through(reader: BlockReader, page: str) -> PageContents:
    """Which pages and databases stand in a page, at any depth; raises what `BlockReader` raises."""
    children: dict[str, str] = {}
    blank = True
    entered = {page}
    waiting = [(page, 0)]
    while waiting:
        id, depth = waiting.pop()
        for block in reader.children(id) if depth == 0 else reader.part(id):
            kind = tidy(block.get("type"))
            blank = blank and not _says_something(kind, as_object(block.get(kind)))
            if kind in (CHILD_PAGE, CHILD_DATABASE):
                children[id_of(block.get("id"))] = kind.removeprefix("child_")
            elif _may_hold_pages(kind, block) and depth < DEEPEST:
                inner = id_of(block.get("id"))
                if inner not in entered:
                    entered.add(inner)
                    waiting.append((inner, depth + 1))
    return PageContents([(kind, id) for id, kind in children.items()], blank)


def _says_something(kind: str, content: Mapping[str, Any]) -> bool:
    if kind in WORDS:
        return bool(plain(content.get("rich_text")).strip())
    return kind not in STRUCTURE


def _may_hold_pages(kind: str, block: Mapping[str, Any]) -> bool:
    if not block.get("has_children") or kind == "table":
        return False
    # What stands in a copy stands in the original.
    return kind != "synced_block" or as_object(block.get(kind)).get("synced_from") is None


# --- as Markdown -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    item: bool = False
    """an item of a list, next to which others stand without a blank line"""


def render(reader: BlockReader, page: str) -> str:
    """The content of a page; raises what `BlockReader` raises."""
    return _together(_pieces(reader, reader.children(page), (page,)))


def _together(pieces: list[Piece]) -> str:
    text = ""
    before: Piece | None = None
    for piece in pieces:
        if not piece.text.strip():
            continue
        glue = "" if before is None else "\n" if before.item and piece.item else "\n\n"
        text += glue + piece.text
        before = piece
    return text


def _pieces(
    reader: BlockReader, blocks: list[dict[str, Any]], above: tuple[str, ...]
) -> list[Piece]:
    found: list[Piece] = []
    number = 0
    for block in blocks:
        kind = tidy(block.get("type"))
        number = number + 1 if kind == "numbered_list_item" else 0
        found += _block(reader, block, kind, number, above)
    return found


def _block(
    reader: BlockReader, block: dict[str, Any], kind: str, number: int, above: tuple[str, ...]
) -> list[Piece]:
    content = as_object(block.get(kind))
    if kind in SILENT:
        return []
    if kind in READABLE and content.get("type") == "file":
        url = tidy(as_object(content.get("file")).get("url"))
        reader.shown += [Hosted(file_name(content), url)] if url else []
    if kind == "table":
        return [Piece(_table(content, _below(reader, block, above)))]
    if kind in ITEMS:
        inner = _together(_pieces_below(reader, block, above))
        return [Piece(_item(kind, content, number) + _indented(inner), item=True)]
    inner = _pieces_below(reader, block, above)
    if kind == "quote":
        whole = _together([Piece(marked(content.get("rich_text"))), *inner])
        return [Piece("\n".join(f"> {line}".rstrip() for line in whole.splitlines()))]
    return [Piece(_own(kind, content, block)), *inner]


def _pieces_below(
    reader: BlockReader, block: dict[str, Any], above: tuple[str, ...]
) -> list[Piece]:
    source = _source(block)
    inside = (*above, source) if source else above
    return _pieces(reader, _below(reader, block, above), inside)


def _below(
    reader: BlockReader, block: dict[str, Any], above: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The blocks within a block; those of the original, where it is a copy."""
    source = _source(block)
    # A copy can stand within its own original.
    if source is None or source in above:
        return []
    if len(above) > DEEPEST:
        reader.lacking.append("What is nested too deeply in it is missing.")
        return []
    return reader.part(source)


def _source(block: dict[str, Any]) -> str | None:
    kind = block.get("type")
    if kind in (CHILD_PAGE, CHILD_DATABASE):
        return None
    if kind == "synced_block":
        original = as_object(as_object(block.get("synced_block")).get("synced_from")).get(
            "block_id"
        )
        if original is not None:
            return id_of(original)
    return id_of(block.get("id")) if block.get("has_children") else None


def _item(kind: str, content: Mapping[str, Any], number: int) -> str:
    text = marked(content.get("rich_text")).replace("\n", "\n    ")
    if kind == "numbered_list_item":
        return f"{number}. {text}"
    if kind == "to_do":
        return f"- [{'x' if content.get('checked') else ' '}] {text}"
    return f"- {text}"


def _indented(text: str) -> str:
    return "".join(f"\n    {line}".rstrip(" ") for line in text.splitlines())


def _own(kind: str, content: Mapping[str, Any], block: Mapping[str, Any]) -> str:  # one table
    """What a block says by itself."""
    if kind in HEADINGS:
        return f"{HEADINGS[kind]} {_line(content)}" if _line(content) else ""
    if kind in FILES:
        return _file(FILES[kind], content)
    if kind in STRUCTURE:
        return "---" if kind == "divider" else ""
    if kind in MEETINGS:
        return marked(content.get("title"))
    match kind:
        case "code":
            return _code(content)
        case "equation":
            return f"$$\n{tidy(content.get('expression'))}\n$$"
        case "bookmark" | "embed" | "link_preview":
            return link(plain(content.get("caption")), content.get("url"))
        case "child_page" | "child_database":
            return link(tidy(content.get("title")) or "Untitled", SITE + id_of(block.get("id")))
        case "link_to_page":
            target = content.get(tidy(content.get("type")))
            return address(SITE + tidy(target).replace("-", "")) or ""
        case "callout":
            icon = tidy(as_object(content.get("icon")).get("emoji"))
            return f"{icon} {marked(content.get('rich_text'))}".strip()
        case _ if "rich_text" in content:
            return marked(content.get("rich_text"))
        case _:
            name = tidy(content.get("block_type")) or kind or "unknown"
            return f"({name.replace('_', ' ')}: not shown by Notion's API)"


def _line(content: Mapping[str, Any]) -> str:
    return " ".join(marked(content.get("rich_text")).split())


def _code(content: Mapping[str, Any]) -> str:
    text = plain(content.get("rich_text"))
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    language = tidy(content.get("language"))
    said = f"{fence}{'' if language == 'plain text' else language}\n{text}\n{fence}"
    caption = marked(content.get("caption"))
    return f"{said}\n\n{caption}" if caption else said


def _file(label: str, content: Mapping[str, Any]) -> str:
    """Caption and name; the address only of what lies elsewhere, because that of a hosted file is
    good for an hour."""
    caption, name = marked(content.get("caption")), file_name(content)
    words = " ".join(f"{caption} ({name})".split()) if caption and name else caption or name
    if content.get("type") == "external":
        words = link(words, as_object(content.get("external")).get("url"))
    return f"{label}: {words}" if words else ""


def _table(content: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    found = [
        [
            marked(cell).replace("|", "\\|").replace("\n", " ")
            for cell in cast("list[Any]", as_object(row.get("table_row")).get("cells") or [])
        ]
        for row in rows
    ]
    return table(found, headed=bool(content.get("has_column_header")))


def table(rows: list[list[str]], *, headed: bool) -> str:
    """Rows as a Markdown table, which always has a head: an empty one, if need be."""
    if not rows:
        return ""
    width = max(len(row) for row in rows)
    head = rows[0] if headed else [""] * width
    lines = [head, ["---"] * width, *(rows[1:] if headed else rows)]
    return "\n".join("| " + " | ".join([*row, *[""] * (width - len(row))]) + " |" for row in lines)
