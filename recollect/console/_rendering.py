"""A document's text as people read it: Markdown drawn, code in colours, everything else as it is.

Each passage is drawn by itself, so that one can be marked and scrolled to, and so that nothing in a
stranger's text makes a page slow: a passage has at most 1,600 characters. What a passage takes up
in the middle (a fence, a table) is carried over from the passages before.

Nothing that is stored becomes markup: the parser knows no HTML, a link leads to the web or is
dropped, and a picture is the link to it, never loaded.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from recollect import connectors, extract
from recollect.console._show import Piece, link
from recollect.console._syntax import Colour, colours
from recollect.ingest import positions
from recollect.model import Chunk, Document, StoredBlob

DEEPEST = 24
"""Levels of lists and quotes that are drawn; a passage of more is shown as its source."""
BRACKETS = 200
"""Of a passage that is drawn: what opens brackets without end costs the parser seconds a page."""
WIDEST = 400
"""Characters of white space that are taken for what indents a line."""
FULL = 50
"""Characters of a line that its writer, or a program, ended because it was full."""
HEADINGS_FROM = 3
"""The page and the section have the levels above."""
_NEXT_MESSAGE = re.compile(r"\n\n(?! )")
Marker = Callable[[str], list[Piece]]
TextShape = Literal["markdown", "code", "plain", "conversation"]

_PLAIN = frozenset({"records", "subtitles", "sheet"})
"""Extractors whose text has lines and no Markdown."""
_WRITTEN = frozenset({"text", "notebook"})
"""Extractors that pass on the Markdown of people."""
_MARKDOWN = frozenset({".md", ".markdown", ".mdx", ".mdown", ".mkd"})
_PROSE = frozenset({".txt", ".text", ".log"})


@dataclass(frozen=True, slots=True)
class Look:
    """How a text is drawn; `language` of code."""

    shape: TextShape
    language: str = ""
    literal: bool = False
    """of Markdown: it was read out of something else, so that nobody wrote `\\.` for a dot"""


@dataclass(frozen=True, slots=True)
class Carried:
    """What a passage is in the middle of: the line that opened a fence, the head of a table."""

    fence: str = ""
    table: tuple[str, ...] = ()


def look(document: Document, blob: StoredBlob | None) -> Look:
    """By the name of the file, else by where the text came from."""
    name = (blob.name if blob else None) or document.filepath or document.title or ""
    ending = PurePath(name).suffix.lower()
    is_file = document.kind == "text" or connectors.kinds().get(document.kind) == "file"
    is_text = blob is not None or is_file
    if blob is None and positions.turns(document.text or ""):
        return Look("conversation")
    if not is_text or document.kind == "webpage":
        return Look("markdown", literal=connectors.kinds().get(document.kind) != "page")
    # A script tells what it is; of other texts only the name does.
    head = b"#!/" if (document.text or "").startswith("#!") else b""
    found = extract.detect(head, name=name, mime=blob.mime if blob else None)
    reader = found.extractor if found else ""
    if reader == "code":
        return Look("code", ending.removeprefix("."))
    if reader == "text" and (ending in _PROSE or (blob and ending not in _MARKDOWN)):
        return Look("plain")
    return Look("plain") if reader in _PLAIN else Look("markdown", literal=reader not in _WRITTEN)


def drawn(
    text: str, chunks: Sequence[Chunk], first: int, last: int, look: Look, mark: Marker
) -> list[Markup]:
    """The passages from `first` up to `last` (chunks of the text, in order)."""
    match look.shape:
        case "code":
            return _code(text, chunks[first:last], look.language, mark)
        case "plain":
            return [prose(_lines(text, chunk), mark) for chunk in chunks[first:last]]
        case "markdown":
            return list(_passages(text, chunks[:last], first, look, mark))
        case "conversation":
            return list(_messages(text, chunks[:last], first, mark))


def passage(text: str, look: Look, mark: Marker) -> Markup:
    """One passage without those around it."""
    match look.shape:
        case "code":
            return _block(text, look.language, mark)
        case "plain":
            return prose(text, mark)
        case "markdown" | "conversation":
            return markdown(text, mark, literal=look.literal)


def _passages(
    text: str, chunks: Sequence[Chunk], first: int, look: Look, mark: Marker
) -> Iterator[Markup]:
    carried = Carried()
    for at, chunk in enumerate(chunks):
        if at >= first:
            body = _lines(text, chunk) if carried.fence else chunk.text
            source = "\n".join([*_head(carried, body), body])
            yield markdown(source, mark, literal=look.literal)
        carried = carry(chunk.text, carried)


def _messages(text: str, chunks: Sequence[Chunk], first: int, mark: Marker) -> Iterator[Markup]:
    """Each message in a block of its own: what someone quotes in one does not look like another."""
    carried = Carried()
    for at, chunk in enumerate(chunks):
        blocks: list[Markup] = []
        for part in _NEXT_MESSAGE.split(_lines(text, chunk)):
            if positions.TURN.match(part):
                carried = Carried()
            body = "\n".join(line.removeprefix("  ") for line in part.split("\n"))
            if at >= first:
                said = markdown("\n".join([*_head(carried, body), body]), mark)
                blocks.append(Markup('<div class="message">{}</div>').format(said))
            carried = carry(body, carried)
        if at >= first:
            yield Markup().join(blocks)


def _head(carried: Carried, body: str) -> Sequence[str]:
    if carried.fence:
        return [carried.fence]
    return carried.table if "|" in body.partition("\n")[0] else ()


def carry(text: str, before: Carried) -> Carried:
    """What is open at the end of the text."""
    fence, table, last = before.fence, before.table, ""
    for line in text.split("\n"):
        sign = line.strip()[:3]
        if fence:
            if _closes(line, fence):
                fence = ""
        elif sign in ("```", "~~~") and (sign == "~~~" or "`" not in line.strip().lstrip("`")):
            fence, table = line, ()
        elif "|" not in line:
            table = ()
        elif not table and "-" in line and set(line) <= set("|:- \t") and "|" in last:
            table = (last, line)
        last = line
    return Carried(fence, table)


def _closes(line: str, fence: str) -> bool:
    opened, here = fence.strip(), line.strip()
    length = len(opened) - len(opened.lstrip(opened[0]))
    return len(here) >= length and not here.strip(opened[0])


def _lines(text: str, chunk: Chunk) -> str:
    """The chunk with what indents its first line, if the text is the one it was cut from."""
    if text[chunk.start : chunk.end] != chunk.text:
        return chunk.text
    return text[_cut(text, chunk) : chunk.end]


# --- Markdown -----------------------------------------------------------------------------------


def markdown(text: str, mark: Marker, *, literal: bool = False) -> Markup:
    """Drawn, with words marked; as its source where it has more levels or brackets than that.

    `literal`: backslashes and entities stand as they are."""
    if text.count("[") > BRACKETS:
        return prose(text, mark)
    tokens = (_LITERAL if literal else _PARSER).parse(text)
    if any(token.nesting == 1 and token.level + 2 >= DEEPEST for token in tokens):
        return prose(text, mark)
    return _html(tokens, mark)


def _html(tokens: Sequence[Token], mark: Marker) -> Markup:
    return Markup(Drawing(mark).render(tokens, _PARSER.options, {}))  # noqa: S704 escaped in there


def drawn_by(text: str, drawing: "Drawing") -> Markup:
    """A whole text of ours, by a drawing of its own; not for a stranger's, which has no bound."""
    return Markup(drawing.render(_PARSER.parse(text), _PARSER.options, {}))  # noqa: S704 escaped in there


def inline(text: str) -> Markup:
    """A sentence of ours: emphasis and code, without a paragraph around it."""
    return _html(_PARSER.parseInline(text), lambda said: [(said, False)])


def _parser() -> MarkdownIt:
    options = {"html": False, "maxNesting": DEEPEST}
    # Definitions of links stay visible as text: a reader of one passage would miss them.
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    return parser.disable(["reference", "lheading"])


_PARSER = _parser()
_LITERAL = _parser().disable(["escape", "entity"])


class Drawing(RendererHTML):
    """Tokens as HTML of a few known elements. Made for one text; keeps which link is open."""

    def __init__(self, mark: Marker) -> None:
        super().__init__()
        self.mark = mark
        self.linked: list[bool] = []

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _marked(tokens[idx].content, self.mark)

    def softbreak(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        """A line that was full goes on; a short one (of a list, an address, a poem) ends."""
        length = 0
        for token in reversed(tokens[:idx]):
            if token.type in ("softbreak", "hardbreak"):
                break
            length += len(token.content)
        return "\n" if length >= FULL else "<br>\n"

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"<code>{_marked(tokens[idx].content, self.mark)}</code>"

    def code_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return str(_block(tokens[idx].content, "", self.mark))

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        language = (tokens[idx].info.split() or [""])[0].lower()
        return str(_block(tokens[idx].content, language, self.mark))

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"<{_level(tokens[idx])}>"

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"</{_level(tokens[idx])}>\n"

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        target = link(str(tokens[idx].attrGet("href") or ""))
        self.linked.append(target is not None)
        return _opened(target) if target else ""

    def link_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return "</a>" if self.linked.pop() else ""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A picture elsewhere would tell its host who reads what: the link to it, in words."""
        token = tokens[idx]
        said = _marked(token.content.strip() or "picture", self.mark)
        target = link(str(token.attrGet("src") or ""))
        if target is None or any(self.linked):
            return f'<span class="picture">{said}</span>'
        return f"{_opened(target, 'picture')}{said}</a>"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<th scope="col">'

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "<td>"


def _level(token: Token) -> str:
    return f"h{min(6, int(token.tag[1]) + HEADINGS_FROM - 1)}"


def _opened(target: str, sort: str = "") -> str:
    named = f' class="{sort}"' if sort else ""
    return f'<a{named} href="{escape(target)}" rel="noopener noreferrer nofollow external">'


def _marked(text: str, mark: Marker) -> str:
    return "".join(
        f"<mark>{escape(words)}</mark>" if is_marked else escape(words)
        for words, is_marked in mark(text)
    )


def prose(text: str, mark: Marker) -> Markup:
    """As it is, line by line, with words marked."""
    return Markup('<div class="prose">{}</div>').format(Markup(_marked(text, mark)))  # noqa: S704


# --- code ---------------------------------------------------------------------------------------


def _code(text: str, chunks: Sequence[Chunk], language: str, mark: Marker) -> list[Markup]:
    """Passages of a file of code, with the blank lines between them, coloured as a whole."""
    if not chunks:
        return []
    if any(text[chunk.start : chunk.end] != chunk.text for chunk in chunks):
        return [_block(chunk.text, language, mark) for chunk in chunks]
    cuts = [_cut(text, chunk) for chunk in chunks] + [chunks[-1].end]
    base = cuts[0]
    found = colours(text[base : cuts[-1]], language)
    return [
        _framed(_coloured(text[start:end], start - base, found, mark))
        for start, end in pairwise(cuts)
    ]


def _cut(text: str, chunk: Chunk) -> int:
    """Where the chunk begins with what indents its first line."""
    reach = max(0, chunk.start - WIDEST)
    line = text.rfind("\n", reach, chunk.start) + 1 or reach
    return chunk.start if text[line : chunk.start].strip() else line


def _block(code: str, language: str, mark: Marker) -> Markup:
    return _framed(_coloured(code, 0, colours(code, language), mark))


def _framed(code: str) -> Markup:
    return Markup('<pre class="source"><code>{}</code></pre>').format(Markup(code))  # noqa: S704


def _coloured(code: str, base: int, found: Sequence[Colour], mark: Marker) -> str:
    """The code with its colours, which are counted from `base` characters before it."""
    drawn: list[str] = []
    done = 0
    first = bisect_right(found, base, key=lambda one: one[1])
    last = bisect_right(found, base + len(code) - 1, key=lambda one: one[0])
    for start, end, sort in found[first:last]:
        start, end = max(start - base, 0), min(end - base, len(code))
        drawn.append(_marked(code[done:start], mark))
        drawn.append(f'<span class="{sort}">{_marked(code[start:end], mark)}</span>')
        done = end
    return "".join([*drawn, _marked(code[done:], mark)])
