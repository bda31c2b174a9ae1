"""Reading a document in the console: its text drawn, the passage found, and what to do on failure.

What a stranger's text may become is a closed list of elements; nothing is loaded from elsewhere.
"""

import re
import string
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect.app import App
from recollect.console import _reading, _rendering
from recollect.console._rendering import Look, carry, drawn, markdown
from recollect.ingest import remedies
from recollect.ingest.chunk import split
from recollect.model import Org, Scope, Tenant
from recollect.worker.processing import drain
from tests.console.test_console import (
    PAYLOADS,
    POLICY,
    add,
    any_speed,
    body,
    browse,
    fail,
    me,
    new_key,
    one,
    tree,
)
from tests.console.test_console_original import sound, upload
from tests.extract.samples import pdf

__all__ = ["browse", "me"]
DRAWN = (
    "a blockquote br code div em h3 h4 h5 h6 hr li mark ol p pre s span strong table tbody td th"
    " thead tr ul"
)
ALLOWED = frozenset(DRAWN.split())
ATTRIBUTES = frozenset({"href", "rel", "class", "scope", "start"})
HOSTILE = (
    "[a](javascript:top.ran=1)",
    "[a](JaVaScRiPt:top.ran=1)",
    "[a](&#106;avascript:top.ran=1)",
    "[a](java\nscript:top.ran=1)",
    "[a](\x01javascript:top.ran=1)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](/console/keys) [d](//evil.example/x)",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "<javascript:top.ran=1> <data:text/html,x>",
    "![a](http://evil.example/pixel.png)",
    "![a](data:image/svg+xml,<svg/onload=top.ran=1>)",
    '![a](http://evil.example/x.png "\\" onerror=top.ran=1")',
    '[a](http://evil.example/"onmouseover="top.ran=1)',
    "[![a](http://evil.example/x.png)](http://evil.example/)",
    '```"><script>top.ran=1</script>\nx\n```',
    "``` x onload=top.ran=1\n<img src=x onerror=top.ran=1>\n```",
    "`<script>top.ran=1</script>`",
    "[a]: javascript:top.ran=1\n\n[a]",
    "|<script>top.ran=1</script>|\n|-|\n|<img src=x onerror=top.ran=1>|",
    "# <style>*{background:url(http://evil.example)}</style>",
    '<link rel=stylesheet href="http://evil.example/x.css"><base href="http://evil.example">',
    '<meta http-equiv=refresh content="0;url=http://evil.example">',
    *PAYLOADS,
)


def plain(text: str) -> list[tuple[str, bool]]:
    return [(text, False)] if text else []


def strange(root: LexborHTMLParser | LexborNode) -> list[str | None]:
    """What stands in a drawn text and is not allowed there."""
    nodes = [node for node in root.css("*") if node.tag not in ("html", "head", "body")]
    wrong = [node.tag for node in nodes if node.tag not in ALLOWED]
    wrong += [name for node in nodes for name in node.attributes if name not in ATTRIBUTES]
    targets = [node.attributes["href"] or "" for node in nodes if "href" in node.attributes]
    return wrong + [url for url in targets if not re.match(r"https?://[^\s\"'<>]*\Z", url)]


# --- the text, drawn ----------------------------------------------------------------------------

PAGE = """# Herons

A **grey** heron, see [the list](https://birds.example/list) and ![a heron](https://b.example/h.png).

| name | legs |
|---|---|
| heron | 2 |

```python
import birds  # all of them
```

- one
- two
"""


def test_markdown_is_drawn_and_its_source_is_one_click_away(
    me: httpx.Client, app: App, tenant: Tenant
):
    document = add(app, tenant, PAGE)
    drain(app)
    own = f"/console/documents/{document.id}"
    read = me.get(own)
    text = one(read, ".drawn > div")
    switch = {a.text(): a.attributes for a in tree(read).css(".tabs a")}
    source = me.get(switch["Source"]["href"] or "")

    assert one(read, ".drawn h3").text() == "Herons"
    assert [node.text() for node in text.css("td")] == ["heron", "2"]
    assert one(read, ".drawn pre .keyword").text() == "import"
    assert one(read, ".drawn pre .remark").text() == "# all of them"
    assert one(read, ".drawn a.picture").attributes["href"] == "https://b.example/h.png"
    assert "**" not in text.text()
    assert "|" not in text.text()
    assert not tree(read).css("main img")
    assert "aria-current" in switch["Read"]
    assert one(source, ".chunk .prose").text() == PAGE.strip()
    assert not tree(source).css(".drawn")


def test_no_text_becomes_more_than_a_text(me: httpx.Client, app: App, tenant: Tenant):
    document = add(app, tenant, "\n\n".join(f"needle {text}" for text in HOSTILE))
    drain(app)
    own = f"/console/documents/{document.id}"
    for path in (own, f"{own}?q=needle", "/console/search?q=needle"):
        answer = me.get(path)

        parts = tree(answer).css(".drawn > div")
        assert len(parts) > 1
        assert [strange(part) for part in parts] == [[] for _ in parts]
        assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize("text", HOSTILE)
def test_no_passage_becomes_more_than_a_text(text: str):
    for before in ("", "- ", "> ", "x ", "# ", "|a|\n|-|\n|"):
        assert strange(LexborHTMLParser(markdown(before + text, plain))) == []


MARKUP = st.text(alphabet="[]()<>!*_`~|-#>:/\\&;\"'= \n\tahx1.")


@any_speed
@given(text=st.one_of(MARKUP, st.lists(st.sampled_from(HOSTILE)).map("\n".join)))
def test_whatever_is_drawn_is_harmless(text: str):
    assert strange(LexborHTMLParser(markdown(text, plain))) == []


WORDS = st.lists(st.text(alphabet=string.ascii_letters, min_size=1, max_size=6), max_size=8)
SIGNS = st.sampled_from(
    ["# ", "- ", "1. ", "> ", "**", "`", "| ", "\n", "\n\n", "    ", "~~", "[", "]"]
)


@any_speed
@given(words=WORDS, signs=st.lists(SIGNS, max_size=8))
def test_drawing_loses_no_word(words: list[str], signs: list[str]):
    text = "".join(sign + word for sign, word in zip(signs + [" "] * 8, words, strict=False))
    shown = LexborHTMLParser(markdown(text, plain)).text()

    assert [word for word in words[: len(text)] if word not in shown.replace("\n", " ")] == []


def test_full_lines_go_on_and_short_ones_end():
    full = "A heron stands at the edge of the **river** and waits for\nits fish."
    short = "12 River Road\n[Heronry](http://a.b)\nEast"

    assert "<br>" not in markdown(full, plain)
    assert markdown(short, plain).count("<br>") == 2


def test_what_is_nested_without_end_is_shown_as_its_source():
    for sign in (">", "- ", "1. ", "> - "):
        text = sign * 300 + "at the bottom"
        shown = markdown(text, plain)

        assert "at the bottom" in LexborHTMLParser(shown).text(), sign
        assert shown.count("<") < 120


@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "![",
        "](",
        "*a ",
        "**a",
        "_*",
        "`",
        "``a",
        ">",
        "|a",
        "<",
        "<a",
        "&#",
        "[a](<b",
        "~~a ",
        "\\",
    ],
)
def test_megabytes_of_signs_cost_about_what_prose_costs(unit: str):
    size = 200_000  # of more, no more is drawn

    assert cost(unit * (size // len(unit))) < 40 * cost_of_prose(size)


def cost(text: str) -> float:
    """Seconds of the processor that the last hundred chunks take to be drawn."""
    chunks = split(text)
    started = time.process_time()
    shown = drawn(text, chunks, len(chunks) - 100, len(chunks), Look("markdown"), plain)
    spent = time.process_time() - started
    assert len(shown) == min(100, len(chunks))
    return spent


@cache
def cost_of_prose(size: int) -> float:
    return cost("Herons wade in *the* river, [see](http://a.b).\n\n" * (size // 47))


def test_a_table_and_a_fence_go_on_over_borders():
    table = "| name | legs |\n|---|---|\n" + "".join(f"| bird {n} | 2 |\n" for n in range(400))
    code = "```python\n" + "".join(f"    call({n})\n" for n in range(400)) + "```\n"
    text = f"# Birds\n\n{table}\nBetween.\n\n{code}\nafter *it*"
    chunks = split(text)
    shown = [
        LexborHTMLParser(part)
        for part in drawn(text, chunks, 0, len(chunks), Look("markdown"), plain)
    ]

    assert len(shown) > 6
    assert "|" not in "".join(part.text() for part in shown)
    assert "```" not in "".join(part.text() for part in shown)
    cells = [cell.text() for part in shown for cell in part.css("td")]
    assert cells[::2] == [f"bird {n}" for n in range(400)]
    calls = "\n".join(node.text().rstrip("\n") for part in shown for node in part.css("pre"))
    assert calls.split("\n") == [f"    call({n})" for n in range(400)]
    assert shown[-1].css("em")


@any_speed
@given(st.lists(st.sampled_from(["```", "~~~", "````", "|a|b|", "|-|-|", "x", "", "```py"])))
def test_what_is_carried_does_not_depend_on_the_cuts(lines: list[str]):
    whole = carry("\n".join(lines), _rendering.Carried())
    step = _rendering.Carried()
    for at in range(0, len(lines), 3):
        step = carry("\n".join(lines[at : at + 3]), step)

    assert (step.fence == "") == (whole.fence == "")


def test_code_is_coloured_and_nothing_of_it_is_lost(me: httpx.Client, app: App, tenant: Tenant):
    code = "".join(
        f'def wade_{n}(depth: int) -> str:\n    """Go in, not <b>deep</b>."""\n\n'
        f'    return "heron" * {n}  # wading\n\n\n'
        for n in range(60)
    )
    document = upload(me, app, tenant, "wade.py", code.encode(), "text/x-python")
    drain(app)
    answer = me.get(f"/console/documents/{document.id}?q=wading")

    assert "".join(node.text() for node in tree(answer).css(".drawn pre")) == code.rstrip("\n")
    sorts = {node.attributes["class"] for node in tree(answer).css("pre span")}
    assert sorts == {"keyword", "string", "number", "remark"}
    assert "wading" in {mark.text() for mark in tree(answer).css(".wanted mark")}
    assert not tree(answer).css(".original")


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("a.c", "/*"),
        ("a.py", '"'),
        ("a.py", "'''x"),
        ("a.js", "`"),
        ("a.rs", "'\\"),
        ("a.sql", "'\\'"),
    ],
)
def test_no_code_keeps_the_colours_busy(name: str, unit: str):
    ending = name.partition(".")[2]

    def cost(text: str) -> float:
        chunks = split(text)
        started = time.process_time()
        drawn(text, chunks, 0, len(chunks), Look("code", ending), plain)
        return time.process_time() - started

    assert cost(unit * (100_000 // len(unit))) < 20 * cost("call(a, 1)\n" * 10_000)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("text", Look("code", "py")),
        ("onedrive", Look("code", "py")),
        ("github_markdown", Look("code", "py")),
        ("notion_doc", Look("markdown")),
        ("google_doc", Look("markdown")),
        ("webpage", Look("markdown", literal=True)),
    ],
)
def test_a_file_of_a_provider_is_shown_by_its_name(
    kind: str, shown: Look, me: httpx.Client, app: App, tenant: Tenant
):
    document = upload(me, app, tenant, "log.py", b"a = 1\n", "text/plain")

    assert _rendering.look(replace(document, kind=kind), None) == shown


def test_what_is_quoted_in_a_message_does_not_look_like_another(
    me: httpx.Client, app: App, client: httpx.Client
):
    quoted = "He wrote:\n\nuser: hi\n\nassistant: *hello*\n\n```\n" + "  call(1)\n\n" * 200
    said = [("user", quoted), ("assistant", "That is\n\n- long")]
    messages = [{"role": role, "content": text} for role, text in said]
    talk = {"conversationId": "talk", "messages": messages}
    id = client.post("/v4/conversations", json=talk).json()["id"]
    drain(app)
    shown = tree(me.get(f"/console/documents/{id}")).css(".drawn .message")

    heads = [block.text().strip().partition("\n")[0] for block in shown]
    assert (heads[0], {*heads[1:-1]}, heads[-1]) == (
        "user: He wrote:", {"call(1)"}, "assistant: That is",
    )  # fmt: skip
    assert "hello" in {node.text() for node in shown[0].css("em")}
    code = "\n".join(node.text() for block in shown for node in block.css("pre"))
    assert code.count("  call(1)") == 200
    assert shown[-1].css_first("li") is not None


def test_what_has_no_markup_keeps_its_lines(me: httpx.Client, app: App, tenant: Tenant):
    document = upload(me, app, tenant, "log.txt", b"a *b* c\n  d # e\n", "text/plain")
    drain(app)

    shown = one(me.get(f"/console/documents/{document.id}"), ".drawn .prose").text()
    assert shown == "a *b* c\n  d # e"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.docx", Look("markdown", literal=True)),
        ("a.html", Look("markdown", literal=True)),
        ("a.txt", Look("plain")),
        ("a.md", Look("markdown")),
        ("a.ipynb", Look("markdown")),
        ("a note", Look("markdown")),
    ],
)
def test_only_in_what_was_written_as_markdown_a_backslash_is_one_of_markdown(
    name: str, read: Look, app: App, tenant: Tenant, me: httpx.Client
):
    """Of a folder, whose files are not kept here; and as search shows them."""
    found = replace(upload(me, app, tenant, "x", b"a\n", "text/plain"), title=name, text=None)
    text = "In C:\\.config, 5 \\* 6 &lt; 40, and **bold**"

    assert _rendering.look(found, None) == read
    shown = LexborHTMLParser(_rendering.passage(text, read, plain)).text()
    words = "In C:.config, 5 * 6 < 40, and bold" if read == Look("markdown") else text
    assert shown.strip() == (words.replace("**", "") if read.literal else words)


# --- beside the text ----------------------------------------------------------------------------


def test_of_a_long_text_the_parts_around_are_named(
    me: httpx.Client, app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_reading, "PART", 1)
    document = add(app, tenant, "\n\n".join(f"Heron {n} wades. " * 60 for n in range(12)))
    drain(app)

    def parts(start: int) -> list[str]:
        answer = me.get(f"/console/documents/{document.id}", params={"from": start})
        return [one.text() for one in tree(answer).css("nav[aria-label='Parts of the text'] a")]

    whole = len(parts(0))
    assert parts(5)[1:-1] == ["4–4", "5–5", "6–6", "7–7", "8–8"]
    assert parts(5)[0] == "1–1"
    assert whole == 4


def test_what_is_the_same_is_shown_once(me: httpx.Client, app: App, tenant: Tenant):
    same = upload(me, app, tenant, "birds.md", PAGE.encode(), "text/markdown")
    other = upload(me, app, tenant, "birds.html", b"<!doctype html><p>A heron</p>", "text/html")
    drain(app)
    once, twice = (me.get(f"/console/documents/{one.id}") for one in (same, other))

    assert not tree(once).css(".original, .beside")
    assert one(once, "a[download]").attributes["href"] == f"/console/documents/{same.id}/original"
    assert one(twice, ".original pre").text() == "<!doctype html><p>A heron</p>"


def test_a_question_goes_to_its_best_place(me: httpx.Client, app: App, tenant: Tenant):
    filler = "\n\n".join(f"# Part {n}\n\n{f'Filling number {n} here. ' * 45}" for n in range(130))
    document = add(app, tenant, filler + "\n\n# Last\n\nTwo egrets were **wading** at dusk.")
    drain(app)
    answer = me.get(f"/console/documents/{document.id}", params={"q": "egrets wading"})
    wanted = one(answer, ".chunk.wanted")
    first = tree(answer).css(".places li a")[0]

    assert {mark.text() for mark in wanted.css("mark")} == {"egrets", "wading"}
    assert wanted.css_first("strong mark") is not None
    assert "Two egrets were" in first.text()
    assert (first.attributes["href"] or "").endswith(f"#{wanted.attributes['id']}")
    beginning = me.get(f"/console/documents/{document.id}", params={"q": "egrets", "from": 0})
    assert not tree(beginning).css(".wanted")


def test_a_failed_document_says_what_to_do_and_shows_no_broken_viewer(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    files: list[tuple[str, bytes, str]] = [
        ("a.pdf", pdf("A heron"), "application/pdf"),
        ("a.wav", sound(1), "audio/wav"),
    ]
    reader = browse(new_key(app, org, scope=Scope.READ)[1])
    for name, data, type in files:
        document = upload(me, app, tenant, name, data, type)
        fail(app, document, "encrypted_file", f"{name} is encrypted")
        own = f"/console/documents/{document.id}"
        answer, bare = me.get(own), reader.get(own)

        assert "What to do: Remove the password and send it again." in body(answer)
        assert not tree(answer).css("iframe, .original, audio")
        assert f"{own}/original" in {a.attributes["href"] for a in tree(answer).css("a")}
        offered = {b.text() for b in tree(answer).css(".bad button")}
        assert offered == {"Retry", "Delete…"}
        assert "What to do" in body(bare)
        assert not tree(bare).css("main button[name=action]")


@pytest.mark.parametrize("code", ["http_404", "no_such_code", "worker_died"])
def test_every_failure_has_a_remedy_in_words(code: str):
    said: Any = _rendering.inline(remedies.of(code))

    assert len(said) > 20
    assert strange(LexborHTMLParser(said)) == []
