"""Files that mean harm, and how each must end.

`python -m tests.extract.hostile` reads them one by one and shows how each ended, the most memory
that the children held meanwhile, and the seconds that it took.
"""

import gzip
import io
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import psutil
from PIL import Image

from recollect.errors import Permanent
from recollect.extract import Sandbox
from recollect.model import Blob
from tests.extract import archives, office, pictures, samples

MB = 1_000_000
_SECRET = '<!DOCTYPE x [<!ENTITY b SYSTEM "file:///etc/passwd">]>'
_LAUGHS = "<!DOCTYPE x [<!ENTITY a '{}'><!ENTITY b '{}'>]>".format("ha" * 1_000, "&a;" * 1_000)


@dataclass(frozen=True, slots=True)
class Item:
    """`ends`: `done`, or the code of its failure; several where the machine's load decides which
    limit is met first. `make` gives its bytes, the same each time."""

    ends: str
    name: str
    make: Callable[[], bytes]

    def is_stated(self, ended: str) -> bool:
        return ended in self.ends.split(" or ")


def _word(part: Callable[[bytes], bytes]) -> bytes:
    """A document of Word with another main part."""
    return samples.repacked(
        samples.word(lambda document: document.add_paragraph("Harvest")),
        lambda name, body: (name, part(body) if name == "word/document.xml" else body),
    )


def _with_doctype(doctype: str) -> Callable[[], bytes]:
    def put(body: bytes) -> bytes:
        start = body.index(b"?>") + 2
        return body[:start] + doctype.encode() + body[start:].replace(b"Harvest", b"&b;")

    return lambda: _word(put)


def _leading_out() -> bytes:
    out = io.BytesIO(_word(bytes))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("../../etc/cron.d/x", "x")
    return out.getvalue()


def _packed_comment() -> bytes:
    return pictures.png(10, 10, (b"zTXt", b"Comment\0\0" + zlib.compress(b"a" * 300_000_000, 9)))


def _animation() -> bytes:
    frames = [Image.new("P", (4000, 4000), shade) for shade in (1, 2)]
    return pictures.animated(frames * 4)


def _rows_without_end() -> bytes:
    row = (
        '<table:table-row table:number-rows-repeated="1048576"><table:table-cell '
        'table:number-columns-repeated="1000"><text:p>bomb</text:p></table:table-cell>'
        "</table:table-row>"
    )
    return office.ods({}, extra=f'<table:table table:name="R">{row * 50}</table:table>')


def _empty_rows() -> bytes:
    rows = b"<row/>" * 20_000_000
    return office.raw_xlsx(b"<worksheet><sheetData>" + rows + b"</sheetData></worksheet>")


def _long_notebook(outputs: int) -> bytes:
    output = b'{"output_type":"stream","text":"' + b"line " * 100_000 + b'"},'
    return b'{"cells":[{"cell_type":"code","outputs":[' + output * outputs + b"{}]}]}"


ITEMS: Mapping[str, Item] = {
    "nothing": Item("done", "a.txt", lambda: b""),
    "zeros": Item("unsupported_kind", "a.txt", lambda: bytes(MB)),
    "one line of 40 MB": Item("done", "a.txt", lambda: b"a" * 40 * MB),
    "table in one line of 40 MB": Item("done", "a.csv", lambda: b"a;" * 20 * MB),
    "table of a single quote": Item("done", "a.csv", lambda: b'a;b\n"' + b"x;y\n" * MB),
    "JSON of 400,000 brackets": Item("unreadable_content", "a.json", lambda: b"[" * 400_000),
    "notebook of 50 MB of brackets": Item(
        "extraction_memory", "a.ipynb", lambda: b'{"cells":[' + b"[]," * 16 * MB + b"[]]}"
    ),
    "notebook of 100 MB": Item("too_large", "a.ipynb", lambda: _long_notebook(200)),
    "notebook with outputs of 40 MB": Item("done", "a.ipynb", lambda: _long_notebook(80)),
    "XML with a billion laughs": Item(
        "unreadable_content", "a.xml", lambda: _LAUGHS.encode() + b"<x>&b;</x>"
    ),
    "XML that asks for /etc/passwd": Item(
        "unreadable_content", "a.xml", lambda: _SECRET.encode() + b"<x>&b;</x>"
    ),
    "XML nested 10 million deep": Item("unreadable_content", "a.xml", lambda: b"<a>" * 10 * MB),
    "XML of 6 million elements": Item(
        "done", "a.xml", lambda: b"<r>" + b"<a>x</a>" * 6 * MB + b"</r>"
    ),
    "XML in 500 layers of words": Item(
        "done", "a.xml", lambda: (b"<a><b/>" + b"x" * 50_000) * 499 + b"</a>" * 499
    ),
    "page nested 100,000 deep": Item(
        "unreadable_content", "a.html", lambda: b"<html>" + b"<b>" * 100_000
    ),
    "page with 50,000 attributes": Item(
        "unreadable_content", "a.html", lambda: b"<html><a " + b"x " * 50_000 + b"href=/a>"
    ),
    "page of 2 MB of brackets": Item("done", "a.html", lambda: b"<html>" + b"<" * 2 * MB),
    "DOCX that unpacks to 200 MB": Item(
        "too_large", "a.docx", lambda: _word(lambda body: body + b" " * 200 * MB)
    ),
    "DOCX with a billion laughs": Item("unreadable_content", "a.docx", _with_doctype(_LAUGHS)),
    "DOCX that asks for /etc/passwd": Item("unreadable_content", "a.docx", _with_doctype(_SECRET)),
    "DOCX with a path that leads out": Item("unreadable_content", "a.docx", _leading_out),
    "DOCX cut in the middle": Item(
        "unreadable_content", "a.docx", lambda: (data := _word(bytes))[: len(data) // 2]
    ),
    "XLSX of 20 million rows": Item("too_large", "a.xlsx", _empty_rows),
    "ODS that repeats a row 52 million times": Item("done", "a.ods", _rows_without_end),
    "PDF with a form in itself": Item(
        "extraction_crashed or extraction_memory or extraction_timeout",
        "a.pdf",
        samples.form_loop_pdf,
    ),
    "PDF whose list of pages contains itself": Item(
        "unreadable_content or extraction_timeout", "a.pdf", samples.page_loop_pdf
    ),
    "PDF of 6,000 pages in 70 KB": Item(
        "too_large", "a.pdf", lambda: samples.many_pages_pdf(6_000)
    ),
    "PDF under a password": Item(
        "encrypted_file", "a.pdf", lambda: samples.pdf("words", password="x")
    ),
    "PDF cut in the middle": Item("done", "a.pdf", lambda: samples.pdf("words")[:400]),
    "picture of 3.6 billion points": Item(
        "too_large", "a.png", lambda: pictures.png(60_000, 60_000)
    ),
    "picture with a packed comment of 300 MB": Item("unreadable_content", "a.png", _packed_comment),
    "animation of 8 pictures of 16 million points": Item("done", "a.gif", _animation),
    "ZIP whose entries overlap": Item("unreadable_content", "a.zip", archives.overlapping),
    "ZIP with a file of 11 MB in 11 KB": Item(
        "done", "a.zip", lambda: archives.packed({"a.txt": b"a" * 11 * MB, "b.txt": "good"})
    ),
    "ZIP of ten ZIPs, nine deep": Item("done", "a.zip", lambda: archives.fanned(9, 10)),
    "ZIP in ZIP, 30 deep": Item(
        "done", "a.zip", lambda: archives.wrapped(archives.packed({"a.txt": "words"}), 30)
    ),
    "mail in mail, 500 deep": Item(
        "done", "a.eml", lambda: b"From: a@b.test\nContent-Type: message/rfc822\n\n" * 500 + b"end"
    ),
    "folder of mails whose first line has 200,000 hours": Item(
        "done", "a.mbox", lambda: b"From " + b"10:10 " * 200_000 + b"\n\n"
    ),
    "RTF with 2 MB of Chinese as it is": Item(
        "done", "a.rtf", lambda: b"{\\rtf1\\ansi\\ansicpg936 " + b"\xd6\xd0" * MB + b"}"
    ),
    "RTF with a million ends of lines": Item(
        "done", "a.rtf", lambda: b"{\\rtf1 a" + b"\n" * MB + b"b}"
    ),
    "Word file that is given the same text 5,000 times": Item(
        "done",
        "a.docx",
        lambda: office.docx(
            '<w:altChunk r:id="c0"/>' * 5_000, {"a.txt": ("aFChunk", "words " * 20_000)}
        ),
    ),
    "gzip named text": Item("unsupported_kind", "a.txt", lambda: gzip.compress(bytes(MB))),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    ended: str
    memory: int
    """Bytes: most resident memory of the children, looked at each 5 ms."""
    seconds: float


def outcome(sandbox: Sandbox, item: Item) -> Outcome:
    data = item.make()
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        last, looks = False, 0
        children: list[psutil.Process] = []
        while not last:
            last = done.wait(0.005)
            if looks % 10 == 0:  # to find them, all processes of the machine are looked at
                children = psutil.Process().children(recursive=True)
            looks += 1
            for child in children:
                try:
                    most = max(most, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    watching = threading.Thread(target=watch)
    watching.start()
    started = time.monotonic()
    try:
        sandbox.extract(Blob(data, name=item.name))
        ended = "done"
    except Permanent as error:
        ended = error.code
    finally:
        seconds = time.monotonic() - started
        done.set()
        watching.join()
    return Outcome(ended, most, seconds)


def figures() -> Iterator[tuple[str, Outcome]]:
    """Each in a sandbox of its own, whose children hold nothing of another."""
    for name, item in ITEMS.items():
        with Sandbox(workers=1) as sandbox:
            sandbox.describe()  # a child is there
            yield name, outcome(sandbox, item)


if __name__ == "__main__":
    for name, found in figures():
        row = f"| {name} | {found.ended} | {found.memory / MB:.0f} MB | {found.seconds:.2f} s |"
        ends = ITEMS[name].ends
        sys.stdout.write(
            row + ("" if ITEMS[name].is_stated(found.ended) else f" NOT {ends}") + "\n"
        )
