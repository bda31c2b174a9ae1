"""The uploaded file beside its text: what is shown and how, and that none of it ever runs."""

import io
import json
import re
import wave
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from PIL import Image

from recollect import documents
from recollect.app import App
from recollect.blobs import new_key as new_key_of_blob
from recollect.console import _original
from recollect.model import Chunk, Document, Org, Scope, StoredBlob, Tenant
from recollect.search import places
from recollect.worker.processing import drain
from tests.console.test_console import (
    PAYLOADS,
    POLICY,
    add,
    all_of,
    body,
    browse,
    me,
    new_key,
    one,
    skeleton,
    tree,
)
from tests.console.test_console_archives import ran
from tests.console.test_console_connections import make
from tests.extract.samples import pdf

__all__ = ["browse", "me"]
HTML = b"<!doctype html><html><script>localStorage.ran = 1</script><p>A heron.</p></html>"
SVG = (
    b"<svg xmlns='http://www.w3.org/2000/svg' onload='localStorage.ran = 1'>"
    b"<script>localStorage.ran = 1</script></svg>"
)


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), "teal").save(out, "PNG")
    return out.getvalue()


def sound(seconds: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8_000)
        file.writeframes(bytes([128]) * 8_000 * seconds)
    return out.getvalue()


def upload(
    http: httpx.Client, app: App, tenant: Tenant, name: str, data: bytes, type: str
) -> Document:
    """A file as the form takes it; it is not processed yet."""
    before = {document.id for document in all_of(app, tenant)}
    sent = http.post("/console/add", data={"tag": "notes"}, files={"file": (name, data, type)})
    assert sent.status_code == 303, body(sent)
    (made,) = [document for document in all_of(app, tenant) if document.id not in before]
    return made


def call_it(app: App, document: Document, kind: str, name: str, mime: str) -> None:
    """What it is taken for, whatever its bytes are."""
    with app.db.begin() as tx:
        tx.execute(
            "update documents set kind = %s, blob_name = %s, blob_mime = %s where id = %s",
            (kind, name, mime, document.id),
        )


def new_file(
    app: App, tenant: Tenant, name: str, data: bytes, kind: str, at: dict[str, Any]
) -> str:
    """A document with one chunk, which stands there in this file; its id."""
    document = add(app, tenant, f"The heron calls from {name}.", title=name)
    drain(app)
    key = new_key_of_blob(tenant.id, data)
    app.blobs.put(key, data)
    with app.db.begin() as tx:
        tx.execute("update documents set blob = %s where id = %s", (key, document.id))
    call_it(app, document, kind, name, "")
    place(app, document, {0: json.dumps(at)})
    return document.id


def place(app: App, document: Document, places: dict[int, str]) -> None:
    """Chunks stand there in the original, by position; as JSON."""
    with app.db.begin() as tx:
        for position, said in places.items():
            tx.execute(
                "update chunks set place = %s::jsonb where document_id = %s and position = %s",
                (said, document.id, position),
            )


# --- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Herons wade here.", ":~:text=Herons%20wade%20here."),
        ("## The pond\n\n- *herons*, wade-in", ":~:text=The%20pond%20herons%2C%20wade%2Din"),
        (
            "a b c d e f g h i j ate no fish but frogs. k l ate no fish but frogs.",
            ":~:text=a%20b%20c%20d%20e%20f%20g%20h,l%20ate%20no%20fish%20but%20frogs.",
        ),
        ("a b c d e f g.", ""),
        ("", ""),
    ],
)
def test_a_passage_is_marked_by_its_first_and_last_words(text: str, marked: str):
    chunk = Chunk(0, 7, 7 + len(text), text, b"", {"page": 2})
    whole = _original.bare("a b c d e f g. " + text)

    at = _original.spot("pdf", chunk, whole)

    assert at == f"?at=7#page=2&navpanes=0&view=FitH{marked}"


def test_a_pdf_stands_beside_its_text_and_opens_at_the_page_of_a_hit(
    me: httpx.Client, app: App, tenant: Tenant
):
    pages = [
        f"Page {n}: {' '.join(f'herons wade at {i},' for i in range(n * 100, n * 100 + 50))}"
        for n in range(1, 5)
    ]
    document = upload(me, app, tenant, "report.pdf", pdf(*pages), "application/pdf")
    drain(app)
    with app.db.begin() as tx:
        chunks = documents.chunks(tx, tenant, document.id)
    own = f"/console/documents/{document.id}"
    at = next(chunk for chunk in chunks if chunk.place["page"] == 3)
    plain, hit = me.get(own), me.get(f"{own}?chunk={at.position}")
    link = one(hit, f"#chunk-{at.position} .spot").attributes
    file = me.get(f"{own}/view?at={at.start}")

    assert one(plain, ".original iframe").attributes["src"] == f"{own}/view#navpanes=0&view=FitH"
    src = one(hit, ".original iframe").attributes["src"] or ""
    assert src == link["href"]
    marked = ":~:text=Page%203%3A%20herons%20wade%20at,"
    assert src.startswith(f"{own}/view?at={at.start}#page=3&navpanes=0&view=FitH{marked}")
    found = me.get("/console/search", params={"q": "herons"})
    assert re.search(r"Passage \d+, pages? \d", body(found))
    assert link["target"] == one(hit, ".original iframe").attributes["name"] == "original"
    assert "page 3" in one(hit, f"#chunk-{at.position} .spot").text()
    assert hit.headers["content-security-policy"] == f"{POLICY}; frame-src 'self'"
    assert file.content.startswith(b"%PDF-")
    assert file.headers["content-type"] == "application/pdf"
    assert file.headers["content-disposition"] == "inline"
    assert file.headers["cross-origin-resource-policy"] == "same-origin"
    allowed = file.headers["content-security-policy"].split("; ")
    assert allowed[0] == "default-src 'none'"
    assert "frame-ancestors 'self'" in allowed
    assert not [rule for rule in allowed if rule.startswith(("script", "connect", "object"))]


@pytest.mark.parametrize(
    ("name", "data", "type", "element", "opened"),
    [
        ("heron.png", picture(), "image/png", "img", ""),
        ("call.wav", sound(1), "audio/wav", "audio", "; media-src 'self'"),
    ],
)
def test_pictures_and_sound_stand_beside_the_text(
    me: httpx.Client,
    app: App,
    tenant: Tenant,
    name: str,
    data: bytes,
    type: str,
    element: str,
    opened: str,
):
    document = upload(me, app, tenant, name, data, type)
    own = f"/console/documents/{document.id}"
    shown = me.get(own)
    file = me.get(f"{own}/view")

    assert one(shown, f".original {element}").attributes["src"] == f"{own}/view"
    assert shown.headers["content-security-policy"] == POLICY + opened
    assert file.content == data
    assert file.headers["content-type"] == type


def test_of_a_recording_each_chunk_leads_to_its_time(me: httpx.Client, app: App, tenant: Tenant):
    at = {"time": 83.5, "timeEnd": 3700}
    own = f"/console/documents/{new_file(app, tenant, 'call.wav', sound(1), 'audio', at)}"
    hit = me.get(f"{own}?chunk=0")

    assert one(hit, ".chunk .spot").text() == "1:23 to 1:01:40"
    assert one(hit, ".chunk .spot").attributes["data-seek"] == "83.5"
    assert one(hit, ".chunk .spot").attributes["href"] == f"{own}/view#t=83.5"
    assert one(hit, "audio").attributes["src"] == f"{own}/view#t=83.5"


def test_a_text_is_shown_as_it_came_and_stays_text(me: httpx.Client, app: App, tenant: Tenant):
    def page(text: str) -> httpx.Response:
        document = upload(me, app, tenant, "page.html", text.encode(), "text/html")
        call_it(app, document, "webpage", "page.html", "text/html")
        return me.get(f"/console/documents/{document.id}")

    calm = skeleton(tree(page("<!doctype html><html>harmless")))
    for payload in PAYLOADS[::7]:
        text = f"<!doctype html><html>{payload}"
        shown = page(text)

        assert one(shown, ".original pre").text() == text
        assert skeleton(tree(shown)) == calm, payload
        assert shown.headers["content-security-policy"] == POLICY


def test_of_a_long_text_the_beginning_is_shown(me: httpx.Client, app: App, tenant: Tenant):
    data = b"\xef\xbb\xbf" + ("é" * _original.MOST).encode()
    document = upload(me, app, tenant, "long.md", data, "text/markdown")
    shown = me.get(f"/console/documents/{document.id}")

    said = one(shown, ".original pre").text()
    assert set(said.rstrip("\ufffd")) == {"é"}
    assert len(said.encode()) <= _original.MOST
    assert "The first 200,000 bytes; the rest is in the download." in body(shown)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe".encode(), "Größe"),
        ("Größe".encode("utf-16"), "Größe"),
        ("Größe".encode("utf-8-sig"), "Größe"),
        ("Größe: 3 €".encode("cp1252"), "Größe: 3 €"),
        (b"a\0b", "a\ufffdb"),
        ("é".encode() * (_original.MOST // 2) + b"\xc3", "é" * (_original.MOST // 2)),
        (b"x" + "é".encode() * (_original.MOST // 2), "x" + "é" * (_original.MOST // 2 - 1)),
    ],
)
def test_bytes_become_text_as_they_say(data: bytes, text: str):
    blob = StoredBlob("k", "a.txt", "text/plain")

    assert _original.shown(blob, data).text == text


def test_what_is_no_text_is_not_shown_as_one(me: httpx.Client, app: App, tenant: Tenant):
    document = upload(me, app, tenant, "a.txt", b"plain", "text/plain")
    for kind, name, mime in (
        ("text", "a.docx", "application/octet-stream"),
        ("image", "a.tiff", "image/tiff"),
        ("image", "a.svg", "image/svg+xml"),
        ("video", "a.avi", "video/x-msvideo"),
    ):
        call_it(app, document, kind, name, mime)
        shown = me.get(f"/console/documents/{document.id}")

        assert not tree(shown).css(".original"), name
        assert name in body(shown)
    assert _original.shown(StoredBlob("k", "a.txt", None), b"PK\x03\x04" + bytes(99)).shape is None
    assert _original.shown(StoredBlob("k", "a.txt", None), b"").shape is None


# --- what never runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("data", [HTML, SVG, b"\n" + SVG, b"<?xml version='1.0'?>" + SVG])
@pytest.mark.parametrize(
    ("kind", "name", "mime"),
    [
        ("webpage", "a.html", "text/html"),
        ("text", "a.svg", "image/svg+xml"),
        ("image", "a.svg", "image/svg+xml"),
        ("image", "a.png", "image/png"),
        ("pdf", "a.pdf", "application/pdf"),
        ("video", "a.mp4", "video/mp4"),
        ("google_drive", "a.xhtml", "application/xhtml+xml"),
        ("onedrive", "a.pdf", "application/pdf"),
    ],
)
def test_markup_is_never_handed_to_a_viewer(data: bytes, kind: str, name: str, mime: str):
    shape = _original.shape(kind, StoredBlob("k", name, mime))

    assert _original.media_type(shape, data) is None


def test_a_page_with_a_script_is_a_download_and_nothing_else(
    me: httpx.Client, app: App, tenant: Tenant
):
    document = upload(me, app, tenant, "evil.html", HTML, "text/html")
    own = f"/console/documents/{document.id}"
    for kind, name, mime in (
        ("webpage", "evil.html", "text/html"),
        ("image", "evil.png", "image/png"),
        ("pdf", "evil.pdf", "application/pdf"),
    ):
        call_it(app, document, kind, name, mime)
        viewed, kept = me.get(f"{own}/view"), me.get(f"{own}/original")

        assert viewed.status_code == 404
        assert b"localStorage" not in viewed.content
        assert kept.content == HTML
        assert kept.headers["content-type"] == "application/octet-stream"
        assert kept.headers["content-disposition"].startswith("attachment")
        assert kept.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert kept.headers["x-content-type-options"] == "nosniff"
        assert kept.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("shape", "data", "type"),
    [
        ("picture", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("picture", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("picture", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("picture", b"\0\0\0\x1cftypavif", "image/avif"),
        ("pdf", b"%PDF-1.4 <script>", "application/pdf"),
        ("audio", b"ID3\x04", "audio/mpeg"),
        ("audio", b"\xff\xfb\x90", "audio/mpeg"),
        ("audio", b"\xff\xf1\x50", "audio/aac"),
        ("audio", b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        ("audio", b"\0\0\0\x20ftypisom", "video/mp4"),
        ("video", b"\0\0\0\x20ftypisom", "video/mp4"),
        ("video", b"\x1aE\xdf\xa3", "video/webm"),
        ("video", b"RIFF\0\0\0\0AVI LIST", None),
        ("audio", b"\xff\xfe<\0h\0t\0m\0l\0", None),
        ("picture", b"%PDF-1.4", None),
        ("pdf", b"\x89PNG\r\n\x1a\n", None),
        ("text", b"%PDF-1.4", None),
        (None, b"\x89PNG\r\n\x1a\n", None),
    ],
)
def test_a_file_is_called_what_its_bytes_say(
    shape: _original.Shape | None, data: bytes, type: str | None
):
    assert _original.media_type(shape, data) == type


# --- who may, and how much ----------------------------------------------------------------------


def test_a_file_is_for_those_who_see_its_document(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, tenant: Tenant, org: Org
):
    document = upload(me, app, tenant, "heron.png", picture(), "image/png")
    view = f"/console/documents/{document.id}/view"

    def status(**given: Any) -> int:
        return browse(new_key(app, org, **given)[1]).get(view).status_code

    assert status(scope=Scope.READ) == 200
    assert status(scope=Scope.READ, tags=["notes"]) == 200
    assert status(scope=Scope.ADMIN, tags=["other"]) == 404
    assert browse().get(view).headers["location"].startswith("/console/login")
    assert me.get("/console/documents/absent/view").status_code == 404


@pytest.mark.parametrize(
    ("wanted", "status", "part", "said"),
    [
        (None, 200, slice(None), None),
        ("bytes=0-", 206, slice(0, None), "bytes 0-9/10"),
        ("bytes=2-4", 206, slice(2, 5), "bytes 2-4/10"),
        ("bytes=7-99", 206, slice(7, None), "bytes 7-9/10"),
        ("bytes=-3", 206, slice(7, None), "bytes 7-9/10"),
        ("bytes=-99", 206, slice(0, None), "bytes 0-9/10"),
        ("bytes=10-", 416, slice(0, 0), "bytes */10"),
        ("bytes=4-2", 416, slice(0, 0), "bytes */10"),
        ("bytes=-0", 416, slice(0, 0), "bytes */10"),
        ("bytes=-", 200, slice(None), None),
        ("bytes=0-1,4-5", 200, slice(None), None),
        ("lines=0-1", 200, slice(None), None),
        ("bytes=٣-٤", 200, slice(None), None),
    ],
)
def test_a_player_may_ask_for_a_part(
    wanted: str | None, status: int, part: slice, said: str | None
):
    data = b"0123456789"
    answer = _original.handed_over(data, "video/mp4", wanted)

    assert answer.status_code == status
    assert answer.body == data[part]
    assert answer.headers.get("content-range") == said
    assert answer.headers["accept-ranges"] == "bytes"


def test_the_page_stands_when_the_file_is_gone(me: httpx.Client, app: App, tenant: Tenant):
    document = upload(me, app, tenant, "a.md", b"a text", "text/markdown")
    with app.db.begin() as tx:
        blob = documents.file(tx, tenant, document.id)
    app.blobs.delete(blob.key)
    own = f"/console/documents/{document.id}"

    assert me.get(own).status_code == 200
    assert not tree(me.get(own)).css(".original")
    assert me.get(f"{own}/view").status_code == me.get(f"{own}/original").status_code == 404


def test_what_is_refreshed_names_the_file_that_may_stay(me: httpx.Client, app: App, tenant: Tenant):
    document = upload(me, app, tenant, "heron.png", picture(), "image/png")
    own = f"/console/documents/{document.id}"

    def kept() -> str | None:
        return one(me.get(f"{own}?part=live"), "[data-keep]").attributes["data-keep"]

    before = kept()
    with app.db.begin() as tx:
        tx.execute("update documents set revision = revision + 1 where id = %s", (document.id,))

    assert before == "1"
    assert kept() == "2"


# --- where a chunk stands, and what became of a document ----------------------------------------


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, ""),
        ({"heading": ["A", "B"]}, ""),
        ({"page": 3, "pageEnd": 5}, "pages 3 to 5"),
        ({"sheet": "Q1", "row": 17}, "Q1, row 17"),
        ({"member": "a/b.csv", "row": 1, "rowEnd": 9}, "a/b.csv, rows 1 to 9"),
        ({"chapter": "The Orchard"}, "The Orchard"),
        ({"sheet": "Q1", "row": 2, "rowEnd": 9, "sheetEnd": "Q3"}, "Q1, rows 2 to 9, up to Q3"),
        ({"message": 2, "messageEnd": 4}, "messages 2 to 4"),
        ({"time": 0.0}, "0:00"),
    ],
)
def test_a_place_is_said_in_words(named: dict[str, Any], words: str):
    assert places.in_words(named) == words


def test_syncs_tell_what_they_did_to_a_document(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, tenant: Tenant, org: Org
):
    made = make(app, tenant, tags=["notes"])
    document = upload(me, app, tenant, "a.md", b"a text", "text/markdown")
    with app.db.begin() as tx:
        tx.execute(
            "update documents set connection_id = %s, source = 'web-crawler', revision = 2,"
            " container_tags = '{notes,shared}' where id = %s",
            (made.id, document.id),
        )
    first = ran(app, made, [(document.id, "added", 5, 5)])
    second = ran(app, made, [(document.id, "changed", 6, 2), ("other", "added", 1, 1)])
    with app.db.begin() as tx:
        tx.execute(
            "update sync_changes set revision = 2, at = at + interval '1 s' where run_id = %s",
            (second,),
        )
    page = me.get(f"/console/documents/{document.id}")
    said = [" ".join(item.text().split()) for item in tree(page).css("#work ~ .memories li")]
    links = [a.attributes["href"] for a in tree(page).css("#work ~ .memories a")]

    assert [line.split(" by schedule")[0] for line in said] == [
        "Revision 2, changed: 2 of 6 passages new",
        "Revision 1, added: 5 of 5 passages new",
    ]
    runs = f"/console/connections/{made.id}/runs"
    assert links == [f"{runs}/{second}", f"{runs}/{first}"]
    assert "The texts of earlier revisions are not kept" in body(page)
    assert one(page, f".facts a[href='/console/connections/{made.id}']").text() == "web-crawler"
    limited = browse(new_key(app, org, tags=["shared"])[1]).get(f"/console/documents/{document.id}")
    assert limited.status_code == 200
    assert made.id not in limited.text
