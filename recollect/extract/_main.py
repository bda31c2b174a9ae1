"""Which part of a page is its content: what authors mark as such, else where the prose stands.

Whatever is left out here is lost to readers, so each rule asks for two signs: how something is
named, or where it stands, and that it is mostly links or short. Where a rule would leave too
little, it does nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

_MARKED = ("main", "[role=main]")
_NAMED = (
    "article",
    '[itemprop~="articleBody"]',
    "#mw-content-text, #doc-content, .manual-text",
    ".markdown-body, .post-content, .entry-content, .article-content, .article-body",
    "#main-content, #content, #main",
)
_CORES = "div, section, article, td"
_CORE = re.compile(
    r"(?<![a-z])(?:markdown-body|mw-content-text|wikitext|body-?copy|body-?text|full-?text"
    r"|(?:article|entry|news|page|post|single|story|text)[-_]{0,2}(?:main[-_]|single[-_]|the[-_])?"
    r"(?:body|content|copy|text)|(?:content|text)[-_]{1,2}(?:body|text)|the-content"
    r"|(?<![^ ])(?:article|entry|post|story)(?![^ ]))(?![a-z])"
)
"""What holds nothing but the text is named so."""
_SUBSTANCE = 200
"""Characters of text from which on a marked container counts as main without comparison."""
_COVERS = 0.3
"""Share of the prose of a page that a named container has to hold."""
_DOMINATES = 0.6
_ENOUGH = 300
"""Characters of prose that have to stay when links or a discussion are dropped."""
_MOST_LOST = 0.85
_MOST_LOST_OF_MARKED = 0.5
_LEVELS = 25
_CORE_LEVELS = 3
_LINKED = 0.5
_BRIEF = 300

_DISCUSSIONS = '[class*="comment" i], [id*="comment" i], [id*="disqus" i], #respond'
_DISCUSSION = re.compile(
    r"(?<!\S)(?:(?:article|post)-comments|comment-(?:area|list|respond|section|thread)|commentlist"
    r"|comments(?:-(?:area|container|list|section|wrapper))?|disqus(?:_thread)?|respond)(?!\S)"
)
_COMMENT = re.compile("comment")
_COMMENTED = 'article, time, div[class*="comment" i]'
_NAMEABLE = "div, section, ul, ol, dl, p, table, header, span, li"
# Words of which names of classes and ids are made; of the first list only where it is mostly links.
_LINK_LISTS = (
    "banner|breadcrumbs?|carousel|crumbs?|footer|latest|menu|most|nav|navbar|navigation|pager|"
    "pagination|player|popular|promos?|rail|recent|recirc|recirculation|rollover|similar|swiper|viewed|"
    "upsell|recommend(?:ed|ations?)|relateds?|rss|share|sharing|"
    "side|sidebar|slider|social|strip|tags?|teasers?|toc|toolbar|trending|widget"
)
_ADDITIONS = (
    "ads?|advert(?:isement)?|bottom-?nav|breadcrumbs?|copyright|doc-info|docnav|login|navfooter|"
    "navheader|newsletter|page-id|pager|"
    "pagination|popular|promos?|recommend(?:ed|ations?)|related|share|sharedaddy|sharing|sign-?up|"
    "(?<!-)signature|(?<![-_])footer(?![-_])|(?:global|main|page|site)-footer|skip|social|"
    "sub-?nav|subscribe|subscription|tags?|teasers?|toolbar|top-?nav|trending|widget"
)
# `Bl-tag` is a list of a manual page: its options and what they mean. LaTeXML has its numbers of
# sections, theorems and formulas in an `ltx_tag`.
_LEADING = r"(?<![a-z])(?<!\bbl-)(?<!\bltx_(?=tag))(?<!\bltx_ref_)"
_LINK_LIST = re.compile(rf"{_LEADING}(?:{_LINK_LISTS})(?![a-z])")
_ADDITION = re.compile(rf"{_LEADING}(?:{_ADDITIONS})(?![a-z])")
_LABELS = (
    "control|copyrights|count|disclaimer|donate|outbrain|player|sponsor(?:ed|s)?|subvert|taboola|"
    "about-author|author|authors|bio|by-?lines?|credits?|date|dateline|datetime|edit|info|meta|"
    "metadata|post-?meta|post-?metadata|posted|print|pub-?date|published|rating|source|timestamp|time|"
    "tools|updated|views"
)
# Of what an author sets apart these words say the kind.
_NOTICES = "admonition|alert|callout|custom-block|hint|message|notice"
_LABEL = re.compile(
    rf"(?!.*(?<![a-z])(?:{_NOTICES})(?![a-z])).*(?<![a-z])(?:{_LABELS})(?![a-z])", re.DOTALL
)
_FEW = 4
"""A page about one thing has up to this many of one label; a page that lists things has more."""
_POINTABLE = "p, h2, h3, h4, h5, h6, li, strong, span, div, b"
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_SENTENCES = frozenset({"p", "dt", "dd", "li"})
_TITLE_LENGTH = 60
_POINTER = re.compile(
    r"\W*(?:(?:also )?read(?: (?:more|also|next)\b|:)|related(?: \w+)?:|don['\u2019]t miss|"
    r"watch:|more:|see more|click here|"
    r"lea(?: \w+)?:|le[aé]r? (?:tamb|más)|mirá |v[eé]a tamb|ver también|leia (?:também|mais)|"
    r"lire aussi|à lire|voir aussi|leggi anche|weiterlesen|lesen sie|mehr zum thema|mehr dazu|"
    r"lees ook|läs (?:också|mer)|czytaj|zobacz|przeczytaj|читайте|相关|延伸)",
    re.IGNORECASE,
)
_RELATED = re.compile(
    r"\W*(?:(?:related|recommended|trending|popular|most (?:read|popular|watched|viewed)|"
    r"more (?:from|stories|news|in|articles|posts)|you (?:may|might)|(?:our )?latest|"
    r"read (?:more|next)|"
    r"don['\u2019]t miss|recent (?:posts|articles|stories)|share|up next|similar)\b(?![.(])|"
    r"weitere (?:artikel|beiträge|meldungen|nachrichten|themen)|das könnte|ähnliche|verwandte|"
    r"mehr (?:zum|aus|von|zu)|meistgelesen|auch interessant|passend(?:e)? zum|lesen sie|"
    r"(?:à )?lire aussi|articles? (?:similaires|liés|connexes|récents)|sur le même|"
    r"también te|te puede|te recomendamos|notas? relacionad|noticias relacionad|"
    r"artículos relacionad|"
    r"lo más|veja também|leia também|mais lidas|potrebbe|leggi anche|articoli correlat|"
    r"zobacz|czytaj|polecane|powiązane|関連|相关|相關|延伸|читайте|похожие|по теме)",
    re.IGNORECASE,
)
_PARTS = "p, pre, table, div, h1, h2, li"
_MOST_RELATED = 20
_HEADING_LEVELS = 4
_OPENING_NODES = 700
_SPACIOUS, _INDENT = 4, 2_000
"""Characters that are looked at for one that counts, and on top."""
_ALL_LINKED = 0.9
_MOST_ASIDE = 0.3
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w")
_HOST = re.compile(r"(?:https?:)?//([^/?#:]*)", re.IGNORECASE)
_BOXES = frozenset({"div", "section", "article", "main", "td", "table", "tbody", "tr", "center"})
_SENTENCE = 30
"""Characters of a piece of text from which on it is not a label."""
_HEARTFELT = 0.8
_HEART_SHARE = 0.1
_LEADABLE = "p, h2, h3, h4, div, section, article, td, strong"
_LEAD = re.compile(
    r"(?<![a-z])(?:abstract|chapo|deck?|excerpt|ingress|intro|introduction|lead|lede|leadtext|perex|"
    r"standfirst|sub-?title|summary|teaser-text|vorspann)(?![a-z])"
)
_LEAD_LEAST = 60
_LEAD_MOST = 1_500
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STRUCTURE = "h1, main, article"
_BELOW = "h2, h3, h4, h5, h6"


def find(page: LexborHTMLParser, *, fetched: bool, story: str | None) -> list[LexborNode]:
    """The container or containers of the content, rid of what stands around it.

    A page that marks none is its body: all of it, unless it was `fetched`, that is, is known to
    be a page of a site and no fragment. Takes the tree apart on its way.
    """
    body = page.body
    if body is None:
        return []
    _drop_discussion(body)
    found = _contained(body, levels=1 if story is None else _CORE_LEVELS)
    if not found and not fetched:
        return [body]
    found = found or ([body] if story is None else _heart(body))
    for node in found:
        _drop_furniture(node, labels=story is not None)
        if fetched:
            _drop_links_around(node, is_marked=story is None and node.tag != "body")
            _drop_pointers(node)
            if story is not None:
                _drop_asides(node, story)
    return found


def remove(nodes: Iterable[LexborNode]) -> int:
    """Take nodes out of the tree; how many characters of text went with them.

    Never the page as a whole: one that is hidden so is shown by its scripts, once it is loaded.
    Last first, so that none is touched after an ancestor of it was freed: a selection is in
    document order, but a node that matches twice is in it twice.
    """
    characters = 0
    found = {node.mem_id: node for node in nodes if node.tag not in ("html", "body")}
    for node in reversed(found.values()):
        characters += len("".join(node.text().split()))
        node.decompose()
    return characters


def length(node: LexborNode | None) -> int:
    """Characters of text."""
    return len(" ".join(node.text().split())) if node is not None else 0


def _linked(node: LexborNode) -> int:
    return sum(length(link) for link in node.css("a[href]"))


def _prose(node: LexborNode) -> int:
    """Characters of text outside of links."""
    return length(node) - _linked(node)


def _drop_discussion(body: LexborNode) -> None:
    """Readers' comments below a page, unless they are the page."""
    headed = holders(body.css("h1"))
    talks = [
        talk
        for talk in outermost(
            node
            for node in body.css(_DISCUSSIONS)
            if node.tag not in ("body", "main")
            and _DISCUSSION.search(_names(node).lower())
            and node.mem_id not in headed
        )
        if talk.css_first(_BELOW) is None
        or talk.css_first(_COMMENTED) is not None
        or not _is_of_manual(talk, _COMMENT)
    ]
    if talks and _prose(body) - sum(_prose(node) for node in talks) >= _ENOUGH:
        remove(talks)


def _is_of_manual(node: LexborNode, word: re.Pattern[str]) -> bool:
    """Whether it is a section named for what it is about: manuals take ids from headings, but no
    classes."""
    classes = (node.attributes.get("class") or "").lower()
    is_section = node.tag == "section" or "section" in classes.split()
    return is_section and not word.search(classes)


def _names(node: LexborNode) -> str:
    given = node.attributes
    return f"{given.get('class') or ''} {given.get('id') or ''}"


def _contained(body: LexborNode, *, levels: int) -> list[LexborNode]:
    whole = length(body)
    prose = whole - _linked(body)
    for selector in (*_MARKED, *_NAMED, _CORES):
        nodes = outermost(body.css(selector) if selector is not _CORES else _cores(body))
        if selector == "article" and nodes and _is_entry(nodes[0]):
            continue
        sizes = list(map(length, nodes))
        if not nodes or sum(sizes) < min(_SUBSTANCE, whole / 2):
            continue
        shares = [size - _linked(node) for node, size in zip(nodes, sizes, strict=True)]
        if selector not in _MARKED and sum(shares) < prose * (
            _DOMINATES if selector is _CORES else _COVERS
        ):
            continue
        # One article with teasers of others beside it, or a list of articles.
        longest = max(range(len(nodes)), key=shares.__getitem__)
        if len(nodes) == 1 or shares[longest] * 2 > sum(shares):
            parts = _alike(nodes, shares, nodes[longest], levels)
            return parts if len(parts) > 1 else _narrowed(nodes[longest], shares[longest], levels)
        return nodes
    return []


def _is_entry(article: LexborNode) -> bool:
    """Whether it is about one of many things on its page, as a function in a manual is: below the
    title of the page and text that has headings of its own."""
    if article.css_first("h1") is not None:
        return False
    prose, is_headed = 0, False
    node: LexborNode | None = article
    while node is not None and node.tag != "body":
        ahead = node.prev
        while ahead is not None:
            if ahead.tag == "h1" or ahead.css_first("h1") is not None:
                return is_headed and prose >= _SUBSTANCE
            is_headed = is_headed or ahead.tag in _HEADINGS or ahead.css_first(_BELOW) is not None
            prose += _prose(ahead)
            ahead = ahead.prev
        node = node.parent
    return False


def _heart(body: LexborNode) -> list[LexborNode]:
    """Where most of the sentences of an unmarked page stand, with its heading; else all of it."""
    weights: Counter[int] = Counter()
    parents: list[tuple[int, int]] = []
    for node in body.traverse(include_text=True):
        parent = node.parent
        if parent is None:
            continue
        if node.is_text_node:
            size = len(" ".join((node.text_content or "").split()))
            weights[parent.mem_id] += size if size >= _SENTENCE and parent.tag != "a" else 0
        else:
            parents.append((node.mem_id, parent.mem_id))
    for child, parent in reversed(parents):
        weights[parent] += weights[child]
    node = body
    while part := max(node.iter(), key=lambda part: weights[part.mem_id], default=None):
        if part.tag not in _BOXES or weights[part.mem_id] < _HEARTFELT * weights[node.mem_id]:
            break
        if _is_furniture(part):
            return [body]
        node = part
    kept = weights[node.mem_id]
    if kept < max(_ENOUGH, _HEARTFELT * weights[body.mem_id], _HEART_SHARE * length(body)):
        return [body]
    headings = body.css("h1")
    apart = len(headings) == 1 and not node.css_first("h1")
    return [*(headings if apart else []), node]


def _is_furniture(node: LexborNode) -> bool:
    name = _HUMP.sub("-", _names(node)).lower()
    return bool(_LINK_LIST.search(name) or _ADDITION.search(name))


def _narrowed(container: LexborNode, prose: int, levels: int) -> list[LexborNode]:
    """What holds nearly all of a container's prose, with the heading of the page."""
    core, parts = container, [container]
    for _ in range(levels):
        nodes = outermost(node for node in _cores(core) if node.mem_id != core.mem_id)
        shares = list(map(_prose, nodes))
        most = max(shares, default=0)
        if not most or most < _DOMINATES * prose:
            break
        core = nodes[shares.index(most)]
        parts = _alike(nodes, shares, core, levels)
        if len(parts) > 1:
            break
    if core is container:
        return [container]
    headings = container.css("h1")
    apart = len(headings) == 1 and not core.css_first("h1")
    return [*(headings if apart else []), *_leads(container, core), *parts]


def _alike(
    nodes: Sequence[LexborNode], shares: Sequence[int], core: LexborNode, levels: int
) -> list[LexborNode]:
    """The parts of one text: what is named as its core is, but for a number, or shares a name with
    it that says so. Teasers beside a story are short; so are replies in a forum."""
    is_forum = levels == 1 and bool(_names(core).strip())
    least = 1 if is_forum else min(_SUBSTANCE, max(shares))
    kinds = _kinds(core)
    return [
        node
        for node, share in zip(nodes, shares, strict=True)
        if share >= least and not kinds.isdisjoint(_kinds(node))
    ]


def _kinds(node: LexborNode) -> set[str]:
    names = _names(node)
    words = _HUMP.sub("-", names).lower().split()
    whole = f"{node.tag} {_NUMBER.sub('', names)}"
    return {whole, *(word for word in words if "-" in word and _CORE.search(word))}


def _leads(container: LexborNode, core: LexborNode) -> list[LexborNode]:
    """The paragraph that many pages set apart ahead of their text."""
    for node in container.css(_LEADABLE):
        if node.mem_id == core.mem_id:
            break
        if not _LEAD.search(_names(node).lower()):
            continue
        text = opening(node, _LEAD_MOST)
        if text and len(text) - _linked(node) >= _LEAD_LEAST:
            return [] if any(part.mem_id == core.mem_id for part in node.css(_CORES)) else [node]
    return []


def _cores(node: LexborNode) -> list[LexborNode]:
    return [
        part
        for part in node.css(_CORES)
        if part.tag == "article"
        or part.attributes.get("itemprop") == "articleBody"
        or _CORE.search(_HUMP.sub("-", _names(part)).lower())
    ]


def outermost(nodes: Iterable[LexborNode]) -> list[LexborNode]:
    """Those that stand within no other of them. (`css_matches` asks a node's descendants, too.)

    Each ancestor is looked at once, however many nodes it has and however deep it stands.
    """
    found = {node.mem_id: node for node in nodes}
    is_within: dict[int, bool] = {}
    kept: list[LexborNode] = []
    for node in found.values():
        passed: list[int] = []
        parent = node.parent
        while parent is not None and parent.mem_id not in found and parent.mem_id not in is_within:
            passed.append(parent.mem_id)
            parent = parent.parent
        within = parent is not None and is_within.get(parent.mem_id, True)
        is_within |= dict.fromkeys(passed, within)
        if not within:
            kept.append(node)
    return kept


def around(nodes: Iterable[LexborNode]) -> set[int]:
    """All that stands around one of them, by `mem_id`."""
    found: set[int] = set()
    for node in nodes:
        parent = node.parent
        while parent is not None and parent.mem_id not in found:
            found.add(parent.mem_id)
            parent = parent.parent
    return found


def holders(nodes: Sequence[LexborNode]) -> set[int]:
    """The same, and they themselves."""
    return around(nodes) | {node.mem_id for node in nodes}


def opening(node: LexborNode, most: int) -> str | None:
    """All of a text up to a number of characters; None for a longer one, without reading it.

    Nodes may stand within each other by the thousand: none is looked at to its end.
    """
    words: list[str] = []
    size = 0
    for seen, part in enumerate(node.traverse(include_text=True)):
        if part.is_text_node:
            # There may be much space around and between words.
            text = part.text_content or ""
            words += (near := text[: _SPACIOUS * most + _INDENT]).split()
            size += len(" ".join(near.split()))
            if len(text) > len(near) and not text[len(near) :].isspace():
                return None
        if size > most or seen >= _OPENING_NODES:
            return None
    return " ".join(words)


def _drop_furniture(container: LexborNode, *, labels: bool) -> None:
    """Lists of links and short additions that are named as such."""
    whole = length(container)
    # They may stand within each other: so much is read and no more.
    budget = 10 * whole + 100_000
    dropped: list[LexborNode] = []
    named = [(part, _HUMP.sub("-", _names(part)).lower()) for part in container.css(_NAMEABLE)]
    often = Counter(name for _, name in named)
    holding, headed = holders(container.css(_STRUCTURE)), holders(container.css(_BELOW))
    coded = holders(container.css("pre"))
    for part, name in named:
        is_addition = (
            _ADDITION.search(name) is not None
            and not (part.mem_id in headed and _is_of_manual(part, _ADDITION))
        ) or (
            labels
            and _LABEL.match(name) is not None
            and often[name] <= _FEW
            and part.mem_id not in coded
        )
        if not (is_addition or _LINK_LIST.search(name)) or part.mem_id in holding:
            continue
        if part.tag == "span" and _is_in_sentence(part):
            continue
        if part.tag == "p" and often[name] > _FEW:
            continue
        size = length(part)
        budget -= size
        if budget < 0:
            break
        is_brief = is_addition and size < _BRIEF
        if size * 2.5 <= whole and (is_brief or _linked(part) >= _LINKED * size):
            dropped.append(part)
    lost = sum(map(_prose, outermost(dropped)))
    if dropped and whole - _linked(container) - lost >= _ENOUGH:
        remove(dropped)


def _drop_links_around(container: LexborNode, *, is_marked: bool) -> None:
    """Blocks that are mostly links, beside the way down to where most of the prose stands.

    Fewer of them in a main part that its authors mark, but for stories: manuals list chapters and
    functions there, and some parts are mostly links.
    """
    node, whole = container, length(container)
    dropped: list[LexborNode] = []
    for _ in range(_LEVELS):
        texts = [part for part in node.iter(include_text=True) if part.is_text_node]
        if any(_WORD.search(part.text_content or "") for part in texts):
            break  # Links in a sentence are words of it.
        parts = [(part, size := length(part), size - _linked(part)) for part in node.iter()]
        prose = sum(share for _, _, share in parts)
        heart, _, most = max(parts, key=lambda part: part[2], default=(node, 0, 0))
        # Where the prose itself stands, lists of links may belong to it.
        is_paragraph = heart.tag not in _BOXES or [part.tag for part in heart.iter()] == ["p"]
        if not prose or most < _DOMINATES * prose or (is_marked and is_paragraph):
            break
        kind = _kind_of_section(heart) if is_marked else None
        dropped += [
            part
            for part, size, share in parts
            if part.mem_id != heart.mem_id
            and size
            and share <= (1 - (_ALL_LINKED if part.tag in _SENTENCES else _LINKED)) * size
            and part.tag not in _HEADINGS
            and not (is_marked and part.tag == "table" and part.css_first("th") is not None)
            and not (kind is not None and _kind_of_section(part) == kind)
        ]
        node = heart
    lost = sum(map(length, dropped))
    most_lost = _MOST_LOST_OF_MARKED if is_marked else _MOST_LOST
    if lost <= most_lost * whole and _prose(container) >= _ENOUGH:
        remove(dropped)


def _kind_of_section(node: LexborNode) -> str | None:
    classes = _NUMBER.sub("", node.attributes.get("class") or "")
    is_section = (classes or node.tag == "section") and node.css_first(_BELOW) is not None
    return f"{node.tag} {classes}" if is_section else None


def _is_in_sentence(part: LexborNode) -> bool:
    around = (part.prev, part.next)
    texts = (node.text_content or "" for node in around if node is not None and node.is_text_node)
    return any(map(_WORD.search, texts))


def _drop_pointers(container: LexborNode) -> None:
    """Links to other pages that are announced as such: "Read more: …", a heading "Related
    articles".
    """
    whole, prose = length(container), _prose(container)
    dropped: list[LexborNode] = []
    related = 0
    for part in container.css(_POINTABLE):
        text = opening(part, _BRIEF)
        if not text or any(node.mem_id != part.mem_id for node in part.css(_PARTS)):
            continue
        if _POINTER.match(text) and _linked(part) >= _LINKED * len(text):
            dropped.append(part)
        elif (
            len(text) < _TITLE_LENGTH
            and _RELATED.match(text)
            and not text.endswith(".")
            and related < _MOST_RELATED
        ):
            related += 1
            dropped += _led_by(part, container, whole)
    if prose - sum(_prose(node) for node in outermost(dropped)) >= _ENOUGH:
        remove(dropped)


def _led_by(heading: LexborNode, container: LexborNode, whole: int) -> list[LexborNode]:
    """The heading and what it leads: all of its box, or what comes behind it."""
    box = heading
    # Up to where something stands beside the heading.
    for _ in range(_HEADING_LEVELS):
        parent = box.parent
        if parent is None or parent.mem_id == container.mem_id:
            break
        if box.next is not None and length(parent) > length(box):
            break
        box = parent
    parent = box.parent
    if parent is None or _is_in_sentence(box):
        return []
    if parent.mem_id != container.mem_id:
        first = next((node for node in parent.iter() if length(node)), None)
        size = length(parent)
        if (
            first is not None
            and first.mem_id == box.mem_id
            and size * 4 <= whole
            and _linked(parent) >= _LINKED * (size - length(box))
        ):
            return [parent]
    behind: list[LexborNode] = [box]
    node = box.next
    while node is not None:
        if node.is_element_node and (size := length(node)):
            if node.tag in _HEADINGS and node.tag <= (heading.tag or ""):
                break
            if _linked(node) < _LINKED * size:
                break
            behind.append(node)
        node = node.next
    return behind if len(behind) > 1 else []


def _drop_asides(container: LexborNode, host: str) -> None:
    """In a story, paragraphs and lists that are nothing but links to other stories of the site."""
    whole, linked = length(container), _linked(container)
    dropped = [
        part
        for part in outermost(container.css("p, ul, ol, h2, h3, h4, h5, h6, table"))
        if part.tag != "table"
        and part.css_first("a") is not None
        and (size := length(part)) >= _SENTENCE / 2
        and _linked(part) >= _ALL_LINKED * size
        and all(_is_own(link, host) for link in part.css("a"))
    ]
    lost = sum(map(length, dropped))
    # One that tells of links is about them.
    if lost <= _MOST_ASIDE * whole and whole - linked >= _ENOUGH:
        remove(dropped)


def _is_own(link: LexborNode, host: str) -> bool:
    address = link.attributes.get("href") or ""
    if address.startswith("#"):
        return False
    match = _HOST.match(address)
    if match is None:
        return not address.startswith(("mailto:", "tel:"))
    # The last two labels: subdomains of a publisher are one site.
    return match[1].lower().endswith(".".join(host.lower().split(".")[-2:]))
