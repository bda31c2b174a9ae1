"""How many words of a document reach its text: kinds made here, of words that are known.

`python -m tests.extract.recall` shows the figures; floors.json holds what they must reach.
"""

import csv
import io
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from PIL import Image

from recollect.extract import Sandbox
from recollect.model import Blob
from tests.extract import office, pictures, recordings, samples

FLOORS: Mapping[str, float] = json.loads((Path(__file__).parent / "floors.json").read_text())

_PLAIN = ["ber", "ka", "lon", "mi", "ru", "sta", "gro", "ffe", "hin", "del", "wy", "po"]
_LATIN = ["ber", "ka", "lon", "mi", "ru", "sta", "öl", "süß", "grö", "ffe", "né", "ça"]
_SYLLABLES = [*_LATIN, "jaź", "žlu", "że", "łód", "ын", "ка", "мо", "ре"]
_WORD = re.compile(r"\w+")


def recall(known: str, text: str) -> float:
    """Share of the known words, each as often as it occurs, that the text has."""
    wanted = Counter(_WORD.findall(known.casefold()))
    found = Counter(_WORD.findall(text.casefold()))
    return (wanted & found).total() / max(1, wanted.total())


class Words:
    """The same words each time."""

    def __init__(self, syllables: list[str]) -> None:
        self._random = random.Random(7)
        self._syllables = syllables
        self.used: list[str] = []

    def some(self, count: int) -> str:
        words = [
            "".join(self._random.choices(self._syllables, k=self._random.randint(2, 4)))
            for _ in range(count)
        ]
        self.used += words
        return " ".join(words)

    def table(self, rows: int, columns: int) -> list[list[object]]:
        """A header, then words and numbers."""
        table: list[list[object]] = [[self.some(1) + str(n) for n in range(columns)]]
        self.used[-columns:] = [str(name) for name in table[0]]
        for row in range(rows):
            number = row * 7919 % 10_007
            self.used.append(str(number))
            table.append([*(self.some(2) for _ in range(columns - 1)), number])
        return table


def _joined(words: Words, mark: str = "") -> list[str]:
    return [mark + words.some(4)] + [words.some(60) for _ in range(30)]


def _csv(words: Words, encoding: str, **options: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, **options).writerows(words.table(200, 5))  # pyright: ignore[reportArgumentType]
    return out.getvalue().encode(encoding)


def _word(words: Words) -> bytes:
    def fill(document):
        document.add_heading(words.some(4), 1)
        for _ in range(20):
            document.add_paragraph(words.some(60))
            document.add_paragraph(words.some(6), style="List Bullet")
        rows = words.table(10, 3)
        table = document.add_table(len(rows), 3)
        for cell, value in zip(table._cells, (cell for row in rows for cell in row), strict=True):
            cell.text = str(value)

    return samples.word(fill)


def _html(words: Words) -> bytes:
    paragraphs = "".join(f"<p>{words.some(30)} <b>{words.some(2)}</b></p>" for _ in range(30))
    items = "".join(f"<li>{words.some(4)}</li>" for _ in range(20))
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in words.table(20, 4)
    )
    return (
        f"<!doctype html><meta charset=utf-8><main><h1>{words.some(4)}</h1>{paragraphs}"
        f"<ul>{items}</ul><table>{rows}</table></main>"
    ).encode()


def _mail(words: Words) -> bytes:
    body = "\n\n".join(_joined(words))
    return office.eml(lambda message: message.set_content(body), subject=words.some(5))


def _slides(words: Words) -> bytes:
    slides = [(words.some(4), [words.some(6) for _ in range(5)]) for _ in range(20)]
    return office.pptx(slides, notes={n: words.some(20) for n in range(1, 21)})


def _open_slides(words: Words) -> bytes:
    slides = [(words.some(4), [words.some(6) for _ in range(5)]) for _ in range(20)]
    return office.odp(slides, words.some(20))


def _calendar(words: Words) -> bytes:
    events = "".join(
        f"BEGIN:VEVENT\nSUMMARY:{words.some(5)}\nDESCRIPTION:{words.some(10)}\n  {words.some(10)}\n"
        "END:VEVENT\n"
        for _ in range(50)
    )
    return f"BEGIN:VCALENDAR\n{events}END:VCALENDAR\n".encode()


def _book(words: Words) -> bytes:
    return office.epub(
        {
            f"c{n}.xhtml": f"<h1>{words.some(3)}</h1>"
            + "".join(f"<p>{words.some(50)}</p>" for _ in range(10))
            for n in range(10)
        }
    )


def _records(words: Words) -> bytes:
    return json.dumps([{words.some(1): words.some(8)} for _ in range(200)]).encode()


def _cues(words: Words) -> list[recordings.Cue]:
    """Captions of two seconds, some of two lines, with a pause now and then."""
    return [
        (3.0 * n, 3.0 * n + 2.0, words.some(8) + ("\n" + words.some(6) if n % 3 == 0 else ""))
        for n in range(60)
    ]


def _captions(words: Words, head: str, mark: str) -> bytes:
    def moment(seconds: float) -> str:
        return f"00:{int(seconds // 60):02}:{int(seconds % 60):02}{mark}000"

    return (
        head
        + "\n\n".join(
            f"{number}\n{moment(start)} --> {moment(end)}\n{text}"
            for number, (start, end, text) in enumerate(_cues(words), 1)
        )
    ).encode()


def _captioned(words: Words, container: str) -> bytes:
    """A recording that holds its captions."""
    return recordings.recording(container, 1.0, tracks=[recordings.Track(_cues(words))])


def _page(words: Words, size: int = 24, font_file: Path | None = None) -> Image.Image:
    return pictures.page(words.some(3), words.some(36), size=size, font_file=font_file)


def _scans(words: Words) -> bytes:
    return pictures.pdf(words.some(30), _page(words), words.some(30), _page(words))


def _text(words: Words, encoding: str = "utf-8", mark: str = "") -> bytes:
    return "\n\n".join(_joined(words, mark)).encode(encoding)


MAKERS: Mapping[str, tuple[str, list[str], Callable[[Words], bytes]]] = {
    "text": ("a.txt", _SYLLABLES, _text),
    "text in UTF-16": ("b.txt", _SYLLABLES, lambda words: _text(words, "utf-16-le")),
    "text in windows-1252": ("c.txt", _LATIN, lambda words: _text(words, "cp1252")),
    "markdown": ("a.md", _SYLLABLES, lambda words: _text(words, mark="# ")),
    "html": ("a.html", _SYLLABLES, _html),
    "code": ("a.py", _SYLLABLES, lambda words: _text(words, mark="# ")),
    "docx": ("a.docx", _SYLLABLES, _word),
    "doc": ("a.doc", _LATIN, lambda words: office.doc("\n".join(_joined(words)))),
    "rtf": ("a.rtf", _SYLLABLES, lambda words: office.rtf(*_joined(words))),
    "odt": ("a.odt", _SYLLABLES, lambda words: office.odt(*_joined(words, "# "))),
    "pptx": ("a.pptx", _SYLLABLES, _slides),
    "odp": ("a.odp", _SYLLABLES, _open_slides),
    "ppt": ("a.ppt", _LATIN, lambda words: office.ppt([("T", _joined(words))])),
    "msg": ("a.msg", _LATIN, lambda words: office.msg("T", "\n\n".join(_joined(words)))),
    "ics": ("a.ics", _SYLLABLES, _calendar),
    "epub": ("a.epub", _SYLLABLES, _book),
    "eml": ("a.eml", _SYLLABLES, _mail),
    "json": ("a.json", _SYLLABLES, _records),
    "csv": ("a.csv", _SYLLABLES, lambda words: _csv(words, "utf-8")),
    "csv in windows-1252": ("b.csv", _LATIN, lambda words: _csv(words, "cp1252", delimiter=";")),
    "tsv": ("a.tsv", _SYLLABLES, lambda words: _csv(words, "utf-8", delimiter="\t")),
    "xlsx": ("a.xlsx", _SYLLABLES, lambda words: office.xlsx({"S": words.table(200, 5)})),
    "xls": ("a.xls", _SYLLABLES, lambda words: office.xls({"S": words.table(40, 5)})),
    "ods": ("a.ods", _SYLLABLES, lambda words: office.ods({"S": words.table(200, 5)})),
    "srt": ("a.srt", _SYLLABLES, lambda words: _captions(words, "", ",")),
    "vtt": ("a.vtt", _SYLLABLES, lambda words: _captions(words, "WEBVTT\n\n", ".")),
    "captions in mp4": ("a.mp4", _SYLLABLES, lambda words: _captioned(words, "mp4")),
    "captions in m4a": ("a.m4a", _SYLLABLES, lambda words: _captioned(words, "ipod")),
    "captions in mkv": ("a.mkv", _SYLLABLES, lambda words: _captioned(words, "matroska")),
    "captions in webm": ("a.webm", _SYLLABLES, lambda words: _captioned(words, "webm")),
    "pdf": ("a.pdf", _PLAIN, lambda words: pictures.pdf(*(words.some(9) for _ in range(30)))),
    "picture": ("a.png", _PLAIN, lambda words: pictures.encoded(_page(words))),
    "picture with accents": (
        "b.png",
        _LATIN,
        lambda words: pictures.encoded(_page(words, 28, pictures.VERA)),
    ),
    "picture of small print": ("c.png", _PLAIN, lambda words: pictures.encoded(_page(words, 14))),
    "picture of large print": ("a.webp", _PLAIN, lambda words: pictures.encoded(_page(words, 48))),
    "picture upside down": (
        "a.tiff",
        _PLAIN,
        lambda words: pictures.encoded(_page(words).rotate(180), "TIFF"),
    ),
    "picture on its side": (
        "a.bmp",
        _PLAIN,
        lambda words: pictures.encoded(_page(words).rotate(90, expand=True), "BMP"),
    ),
    "scanned pdf": ("b.pdf", _PLAIN, _scans),
    "noisy picture": (
        "a.jpg",
        _PLAIN,
        lambda words: pictures.encoded(pictures.noisy(_page(words)), "JPEG", quality=40),
    ),
    "noisy picture of small print": (
        "b.jpg",
        _PLAIN,
        lambda words: pictures.encoded(pictures.noisy(_page(words, 16), 40), "JPEG", quality=60),
    ),
    "noisy picture askew": (
        "c.jpg",
        _PLAIN,
        lambda words: pictures.encoded(
            pictures.noisy(pictures.askew(_page(words), 3)), "JPEG", quality=40
        ),
    ),
}


def measure(sandbox: Sandbox, kind: str) -> float:
    name, syllables, make = MAKERS[kind]
    words = Words(syllables)
    data = make(words)
    return recall(" ".join(words.used), sandbox.extract(Blob(data, name=name)).text)


def figures() -> Iterator[tuple[str, float]]:
    with Sandbox(workers=1) as sandbox:
        for kind in MAKERS:
            yield kind, measure(sandbox, kind)


if __name__ == "__main__":
    for kind, share in figures():
        sys.stdout.write(f"{kind:24} {share:.4f}  floor {FLOORS[kind]}\n")
