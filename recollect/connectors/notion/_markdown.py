"""Notion's enhanced Markdown → plain Markdown: its tags and attributes would be found as words.

Facts: developers.notion.com/guides/data-apis/enhanced-markdown. What users wrote is escaped there,
so a bare `<` begins a tag; blocks within blocks are indented by tabs.
"""

import re

from recollect.connectors.notion._blocks import READABLE, table
from recollect.connectors.notion._files import Hosted
from recollect.connectors.notion._values import SIGNED, address, link, name_of_link, tidy

CONTAINERS = (
    "callout|columns|column|details|synced_block|synced_block_reference"
    "|meeting-notes|summary|notes|transcript"
)
OPENING = re.compile(rf"<(?:{CONTAINERS})(?:\s[^<>]*)?>")
CLOSING = re.compile(rf"</(?:{CONTAINERS})>")
DIV = re.compile(r":{3,}(?:\s*\w.*)?")
DROPPED = re.compile(r"<(?:empty-block|table_of_contents|breadcrumb)\b[^<>]*/?>|<colgroup>.*")
ATTRIBUTES = re.compile(r"""(?<!\\)\s{0,3}\{(?:\s*[\w-]+="[^"]*")+\s*\}\s*$""")
# No part goes over what begins the next match, so that a text of beginnings stays linear.
IMAGE = re.compile(r"(?<!\\)!\[((?:\\.|[^\[\]\\]|(?!)){0,2000}+)\]\(([^()\s]*+)\)")
LINK = re.compile(r"(?<!\\)(?<!!)\[((?:\\.|[^\[\]\\]|(?!)){0,2000}+)\]\(([^()\s]*+)\)")
TAG = re.compile(
    r"""(?<!\\)<(?P<name>[a-zA-Z_-]+)(?P<given>(?:\s+[\w-]+(?:="[^"]*")?)*)\s*"""
    r"""(?:/>|>(?P<text>(?:\\.|[^<\\])*)</(?P=name)>)"""
)
ATTRIBUTE = re.compile(r"""(?<![\w-])([\w-]++)="([^"]*+)\"""")
BARE = re.compile(r"(?<!\\)</?(?:span|u|td|th|tr|col|colgroup|thead|tbody)\b[^<>]*>")
BREAK = re.compile(r"(?<!\\)<br\s*/?>")
ESCAPED = re.compile(r"\\([\\*~`$\[\]<>{}|^])")
CODE = re.compile(r"(`+[^`]*`+)")
FENCE = re.compile(r"`{3,}|~{3,}")
CELL = re.compile(r"<t[dh](?:\s[^<>]*)?>((?:[^<]|<(?!/?t[dh][\s>])|(?!))*+)</t[dh]>")
ROW = re.compile(r"<tr(?:\s[^<>]*)?>((?:[^<]|<(?!/?tr[\s>])|(?!))*+)</tr>")
FILES = {"image": "Image", "video": "Video", "audio": "Audio", "file": "File", "pdf": "PDF"}
NESTED = 8
"""tags within tags"""


def has_unknown(markdown: str) -> bool:
    """Whether it leaves blocks out: bookmarks, embeds, what was too much."""
    return re.search(r"(?<!\\)<unknown\b", markdown) is not None


def shown_files(markdown: str) -> list[Hosted]:
    """Those that Notion stores; an address within code is not a file."""
    found: list[Hosted] = []
    fence: str | None = None
    for line in tidy(markdown).split("\n"):
        text = line.strip()
        if fence is not None:
            if text.startswith(fence) and not text.strip(fence[0]):
                fence = None
        elif opened := FENCE.match(text):
            fence = opened[0]
        else:
            for tag in TAG.finditer(CODE.sub("", text)):
                given = dict(ATTRIBUTE.findall(tag["given"]))
                url = (given.get("src") or "").replace("&amp;", "&")
                if tag["name"].lower() in READABLE and SIGNED.search(url):
                    found.append(Hosted(name_of_link(url), url))
    return found


def simplified(markdown: str) -> str:
    """The same as plain Markdown, without links that are good for an hour only."""
    done: list[str] = []
    fence: str | None = None
    depth = 0
    rows: list[str] | None = None
    for line in tidy(markdown).split("\n"):
        text = line.strip()
        if rows is not None:
            rows.append(text)
            if text.endswith("</table>"):
                done.append(_table(rows))
                rows = None
        elif fence is not None:
            done.append(_dedented(line, depth))
            if text.startswith(fence) and not text.strip(fence[0]):
                fence = None
        elif text.startswith("<table") and not text.startswith("<table_"):
            rows = [text]
            if text.endswith("</table>"):
                done.append(_table(rows))
                rows = None
        else:
            if opened := FENCE.match(text):
                fence = opened[0]
                done.append(_dedented(line, depth))
                continue
            depth, kept = _structure(line, depth)
            done += kept
    if rows is not None:
        done.append(_table(rows))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(done)).strip()


def _structure(line: str, depth: int) -> tuple[int, list[str]]:
    """How deep what follows stands in containers, and what is left of a line."""
    text = line.strip()
    if DIV.fullmatch(text) or DROPPED.fullmatch(text):
        return depth, [""]
    if found := re.fullmatch(r"<summary>(.*)</summary>", text):
        return depth, [_inline(found[1]), ""]
    opening = OPENING.match(text)
    if opening is not None:
        rest = text[opening.end() :]
        closing = CLOSING.search(rest)
        if closing is None:
            return depth + 1, ["", *([_inline(rest)] if rest else [])]
        return depth, [_inline(rest[: closing.start()])]
    if CLOSING.fullmatch(text):
        return max(depth - 1, 0), [""]
    kept = _dedented(line, depth)
    indent = kept[: len(kept) - len(kept.lstrip("\t"))]
    further = f"\n{indent}> " if text.startswith(">") else f"\n{indent}"
    return depth, [indent + _inline(kept.strip()).replace("\n", further)]


def _dedented(line: str, depth: int) -> str:
    return re.sub(rf"^\t{{0,{depth}}}", "", line)


def _inline(text: str) -> str:
    text = ATTRIBUTES.sub("", text)
    # Code is literal.
    parts = CODE.split(text)
    return "".join(part if at % 2 else _words(part) for at, part in enumerate(parts))


def _words(text: str) -> str:
    text = IMAGE.sub(lambda found: _file("Image", found[1], found[2]), text)
    text = LINK.sub(lambda found: link(found[1], found[2]), text)
    for _ in range(NESTED):
        text, changed = TAG.subn(_tag, text)
        if not changed:
            break
    text = BREAK.sub("\n", BARE.sub("", text))
    return ESCAPED.sub(r"\1", text)


def _tag(found: re.Match[str]) -> str:
    name, text = found["name"].lower(), found["text"] or ""
    given = dict(ATTRIBUTE.findall(found["given"]))
    if name in FILES:
        return _file(FILES[name], text, given.get("src") or given.get("url") or "")
    if name in ("page", "database", "mention-page", "mention-database", "mention-data-source"):
        return link(text, given.get("url"))
    if name == "mention-date":
        return " to ".join(given[key] for key in ("start", "end") if given.get(key))
    if name == "br":
        return "\n"
    return text


def _file(label: str, caption: str, url: str) -> str:
    """A hosted file by its caption, one from elsewhere with its address."""
    kept = address(url)
    name = url.partition("?")[0].rpartition("/")[2]
    if kept is None:
        return f"{label}: {caption or name}" if caption or name else ""
    return f"{label}: {link(caption or name, kept)}"


def _table(lines: list[str]) -> str:
    whole = "\n".join(lines)
    rows = [
        [" ".join(_inline(cell).split()).replace("|", "\\|") for cell in CELL.findall(row)]
        for row in ROW.findall(whole)
    ]
    headed = re.match(r"""<table[^<>]*header-row="true\"""", whole) is not None
    return "\n" + table([row for row in rows if row], headed=headed) + "\n"
