"""Which part of a page is its content: what authors mark as such, else where the prose stands.

Whatever is left out here is lost to readers, so each rule asks for two signs: how something is
named, or where it stands, and that it is mostly links or short. Where a rule would leave too
little, it does nothing.
"""

import re
from collections.abc import Container, Iterable, Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

_MARKED = ("main", "[role=main]")
_NAMED = (
    "article",
    '[itemprop~="articleBody"]',
    "#mw-content-text",
    ".markdown-body, .post-content, .entry-content, .article-content, .article-body",
    "#main-content, #content, #main",
)
_CORE = (
    *_NAMED[:4],
    ".article__body, .post-body, .story-body, .entry, .post",
)
"""Within one that is marked: without what stands around it there."""
_SUBSTANCE = 200
"""Characters of text from which on a marked container counts as main without comparison."""
_COVERS = 0.3
"""Share of the prose of a page that a named container has to hold."""
_DOMINATES = 0.6
_ENOUGH = 300
"""Characters of prose that have to stay when links or a discussion are dropped."""
_MOST_LOST = 0.85
_LEVELS = 25
_LINKED = 0.5
_BRIEF = 300

_DISCUSSIONS = '[class*="comment" i], [id*="comment" i], [id*="disqus" i], #respond'
_DISCUSSION = frozenset(
    [
        "article-comments",
        "comment-area",
        "comment-list",
        "comment-respond",
        "comment-section",
        "comment-thread",
        "commentlist",
        "comments",
        "comments-area",
        "comments-container",
        "comments-list",
        "comments-section",
        "comments-wrapper",
        "disqus",
        "disqus_thread",
        "post-comments",
        "respond",
    ]
)
_NAMEABLE = "div, section, ul, ol, dl, p, table, header, span, li"
# Words of which names of classes and ids are made; of the first list only where it is mostly links.
_LINK_LISTS = (
    "banner|breadcrumbs?|carousel|crumbs?|footer|latest|menu|most|nav|navbar|navigation|pager|"
    "pagination|popular|promos?|rail|recent|recommend(?:ed|ations?)|relateds?|rss|share|sharing|"
    "side|sidebar|slider|social|strip|tags?|teasers?|toc|toolbar|trending|widget"
)
_ADDITIONS = (
    "ads?|advert(?:isement)?|breadcrumbs?|copyright|login|newsletter|pager|pagination|popular|"
    "promos?|recommend(?:ed|ations?)|related|share|sharedaddy|sharing|sign-?up|signature|skip|"
    "social|subscribe|subscription|tags?|teasers?|toolbar|trending|widget"
)
_LINK_LIST = re.compile(rf"(?<![a-z])(?:{_LINK_LISTS})(?![a-z])")
_ADDITION = re.compile(rf"(?<![a-z])(?:{_ADDITIONS})(?![a-z])")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STRUCTURE = "h1, main, article"


def find(page: LexborHTMLParser, *, fetched: bool) -> list[LexborNode]:
    """The container or containers of the content, rid of what stands around it.

    A page that marks none is its body: all of it, unless it was `fetched`, that is, is known to
    be a page of a site and no fragment. Takes the tree apart on its way.
    """
    body = page.body
    if body is None:
        return []
    _drop_discussion(body)
    found = _contained(body)
    if not found and not fetched:
        return [body]
    found = found or [body]
    for node in found:
        _drop_furniture(node)
        if fetched:
            _drop_links_around(node)
    return found


def remove(nodes: Iterable[LexborNode]) -> int:
    """Take nodes out of the tree; how many characters of text went with them.

    Last first, so that none is touched after an ancestor of it was freed: a selection is in
    document order, but a node that matches twice is in it twice.
    """
    characters = 0
    for node in reversed({node.mem_id: node for node in nodes}.values()):
        characters += len("".join(node.text().split()))
        node.decompose()
    return characters


def length(node: LexborNode | None) -> int:
    """Characters of text."""
    if node is None:
        return 0
    return len(" ".join(node.text().split()))


def _linked(node: LexborNode) -> int:
    return sum(length(link) for link in node.css("a"))


def _prose(node: LexborNode) -> int:
    """Characters of text that lead nowhere."""
    return length(node) - _linked(node)


def _drop_discussion(body: LexborNode) -> None:
    """What readers wrote below a page; not where that is the page."""
    talks = outermost(
        node
        for node in body.css(_DISCUSSIONS)
        if node.tag not in ("body", "main")
        and not _DISCUSSION.isdisjoint(_names(node).lower().split())
        and not node.css_first("h1")
    )
    if talks and _prose(body) - sum(_prose(node) for node in talks) >= _ENOUGH:
        remove(talks)


def _names(node: LexborNode) -> str:
    given = node.attributes
    return f"{given.get('class') or ''} {given.get('id') or ''}"


def _contained(body: LexborNode) -> list[LexborNode]:
    whole = length(body)
    prose = whole - _linked(body)
    for selector in (*_MARKED, *_NAMED):
        nodes = outermost(body.css(selector))
        sizes = list(map(length, nodes))
        if not nodes or sum(sizes) < min(_SUBSTANCE, whole / 2):
            continue
        shares = [size - _linked(node) for node, size in zip(nodes, sizes, strict=True)]
        if selector not in _MARKED and sum(shares) < _COVERS * prose:
            continue
        # One article with teasers of others beside it, or a list of articles.
        longest = max(range(len(nodes)), key=shares.__getitem__)
        if len(nodes) == 1 or shares[longest] * 2 > sum(shares):
            return _narrowed(nodes[longest], shares[longest])
        return nodes
    return []


def _narrowed(container: LexborNode, prose: int) -> list[LexborNode]:
    """What holds nearly all of a container's prose, with the heading of the page."""
    for selector in _CORE:
        nodes = outermost(
            node for node in container.css(selector) if node.mem_id != container.mem_id
        )
        shares = list(map(_prose, nodes))
        most = max(shares, default=0)
        if nodes and most >= _DOMINATES * prose:
            core = nodes[shares.index(most)]
            headings = container.css("h1")
            apart = len(headings) == 1 and not core.css_first("h1")
            return [*(headings if apart else []), core]
    return [container]


def outermost(nodes: Iterable[LexborNode]) -> list[LexborNode]:
    """Those that stand within no other of them. (`css_matches` asks a node's descendants, too.)"""
    found = {node.mem_id: node for node in nodes}
    return [node for node in found.values() if not any(_ancestors_in(node, found))]


def _ancestors_in(node: LexborNode, found: Container[int]) -> Iterator[bool]:
    parent = node.parent
    while parent is not None:
        yield parent.mem_id in found
        parent = parent.parent


def _drop_furniture(container: LexborNode) -> None:
    """Lists of links and short additions that are named as such."""
    whole = length(container)
    # They may stand within each other: so much is read and no more.
    budget = 10 * whole + 100_000
    dropped: list[LexborNode] = []
    for part in container.css(_NAMEABLE):
        name = _HUMP.sub("-", _names(part)).lower()
        is_addition = _ADDITION.search(name) is not None
        if not (is_addition or _LINK_LIST.search(name)) or part.css_first(_STRUCTURE):
            continue
        size = length(part)
        budget -= size
        if budget < 0:
            break
        is_brief = is_addition and size < _BRIEF
        if size * 2.5 <= whole and (is_brief or _linked(part) >= _LINKED * size):
            dropped.append(part)
    if not dropped:
        return
    lost = sum(map(_prose, outermost(dropped)))
    if whole - _linked(container) - lost >= _ENOUGH:
        remove(dropped)


def _drop_links_around(container: LexborNode) -> None:
    """Blocks that are mostly links, beside the way down to where most of the prose stands."""
    node, whole = container, length(container)
    dropped: list[LexborNode] = []
    for _ in range(_LEVELS):
        parts = [(part, size := length(part), size - _linked(part)) for part in node.iter()]
        prose = sum(share for _, _, share in parts)
        heart, _, most = max(parts, key=lambda part: part[2], default=(node, 0, 0))
        # Where the prose itself stands, lists of links may belong to it.
        if not prose or most < _DOMINATES * prose:
            break
        dropped += [
            part
            for part, size, share in parts
            if part.mem_id != heart.mem_id and size and share <= (1 - _LINKED) * size
        ]
        node = heart
    lost = sum(map(length, dropped))
    if lost <= _MOST_LOST * whole and _prose(container) >= _ENOUGH:
        remove(dropped)
