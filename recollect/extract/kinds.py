"""The kinds of files that can be read, one row of facts each.

The service knows a kind by its row alone. Its reader is a module that the row names and only the
sandboxed child imports, so the service neither pays for a parser nor is exposed to one.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Protocol

from recollect.extract import _magic, _zip
from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted, Sitemap, WebPage

HERE = "recollect.extract"

SITEMAP_READER = f"{HERE}.web._sitemap"
"""has `read(blob) -> Sitemap`; a sitemap becomes no document, so it is not a kind"""


class NeedsHeavy(Exception):
    """Raised by `extract` for a blob that takes models: `extract_heavy` is asked instead."""


class Reader(Protocol):
    """A module that reads one kind, in the child: no network, no writing, no processes.

    All of these raise Permanent for a file that cannot be read. A module may raise it as it is
    imported, too, for a library that is not installed. Each has `extract`, and the others where
    the kind has the matter: `extract_heavy` if `extract` raises NeedsHeavy, `hear` recordings,
    `unpack` archives, `survey` web pages.
    """

    def extract(self, blob: Blob) -> Extracted: ...

    def extract_heavy(self, blob: Blob) -> Extracted:
        """May take more memory and time."""
        ...

    def hear(
        self, blob: Blob, start: float, seconds: float, engine: LocalEngine | None
    ) -> Heard: ...

    def unpack(self, blob: Blob, keep: Callable[[str, bytes], None]) -> Extracted:
        """The list; calls `keep(path, data)` for each file in it."""
        ...

    def survey(self, blob: Blob) -> WebPage: ...


class SitemapReader(Protocol):
    def read(self, blob: Blob) -> Sitemap: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of a kind of file without reading one."""

    name: str
    reader: str
    """name of the module, a `Reader`; loaded before there is a file of the kind"""
    types: frozenset[str]
    """Media types, endings of file names, and whole names in lower case: `{"application/pdf",
    ".pdf"}`, `{"makefile"}`."""
    sniff: Callable[[bytes], bool | None] = _magic.cannot_tell
    kind: str = "text"
    """the contract's word for its documents"""
    is_light: bool = False
    """whether the reader needs no parser that is large, so that each child may have it"""
    is_archive: bool = False
    """whether it is nothing but the files in it"""
    unpacks: bool = False
    """whether its reader's `unpack` hands over files that become documents of their own"""
    is_recording: bool = False
    loads: tuple[str, ...] = ()
    """what the reader imports only when it reads; loaded with it"""
    heavy_loads: tuple[str, ...] = ()
    """the same for `extract_heavy`"""
    sample: bytes | None = None
    """A tiny file, read once before others: what is made at the first reading is made for all.
    Only for readers that start no threads, which would not be there in a child."""

    @property
    def mime(self) -> str:
        return min(type for type in self.types if "/" in type)


def _opendocument(mime: str, *others: str) -> frozenset[str]:
    return frozenset({mime, f"{mime}-template", f"{mime}-flat-xml", *others})


_CHARSETS = ("chardet",)
_OCR = ("rapidocr.main", "cv2") if find_spec("rapidocr") else ()

KINDS = (
    Kind(
        "zip", f"{HERE}.archive.zip",
        frozenset({_zip.ANY, "application/x-zip-compressed", ".zip"}),
        _magic.archive,
        is_light=True,
        is_archive=True,
        unpacks=True,
    ),
    Kind(
        "image", f"{HERE}.image.image",
        frozenset(
            {
                "image/jpeg", "image/png", "image/gif", "image/webp", "image/bmp", "image/tiff",
                "image/heic", "image/heif", "image/avif", ".jpg", ".jpeg", ".png", ".gif", ".webp",
                ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif",
            }
        ),
        _magic.image,
        kind="image",
        heavy_loads=_OCR,
    ),
    Kind(
        "audio", f"{HERE}.media.audio",
        frozenset(
            {
                "audio/mpeg", "audio/mp3", "audio/mp4", "audio/x-m4a", "audio/aac", "audio/wav",
                "audio/wave", "audio/x-wav", "audio/vnd.wave", "audio/ogg", "audio/opus",
                "audio/flac", "audio/x-flac", "audio/webm", "audio/x-matroska",
                ".mp3", ".m4a", ".m4b", ".aac", ".wav", ".ogg", ".oga", ".opus", ".flac", ".weba",
                ".mka",
            }
        ),
        _magic.audio,
        kind="audio",
        is_recording=True,
    ),
    Kind(
        "video", f"{HERE}.media.video",
        frozenset(
            {
                "video/mp4", "video/x-m4v", "video/quicktime", "video/webm", "video/x-matroska",
                "video/x-msvideo", "video/avi", "video/3gpp", "video/ogg", "video/mp2t",
                ".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi", ".3gp", ".ogv",
            }
        ),
        _magic.video,
        kind="video",
        is_recording=True,
    ),
    Kind(
        "doc", f"{HERE}.office.doc", frozenset({"application/msword", ".doc", ".dot"}), _magic.doc
    ),
    Kind(
        "ppt", f"{HERE}.office.ppt",
        frozenset({"application/vnd.ms-powerpoint", ".ppt", ".pps", ".pot"}), _magic.ppt,
    ),
    Kind(
        "msg", f"{HERE}.office.msg", frozenset({"application/vnd.ms-outlook", ".msg"}), _magic.msg
    ),
    Kind(
        "odp", f"{HERE}.office.odp", _opendocument(_zip.ODP, ".odp", ".otp", ".fodp"),
        _magic.odp, is_light=True,
    ),
    Kind(
        "ods", f"{HERE}.office.ods", _opendocument(_zip.ODS, ".ods", ".ots", ".fods"),
        _magic.ods, is_light=True,
    ),
    Kind(
        "odt", f"{HERE}.office.odt",
        _opendocument(_zip.ODT, f"{_zip.ODT}-master", ".odt", ".ott", ".odm", ".fodt"),
        _magic.odt,
    ),
    Kind(
        "pptx", f"{HERE}.office.pptx",
        frozenset(
            {
                _zip.PPTX, "application/vnd.ms-powerpoint.presentation.macroenabled.12",
                "application/vnd.ms-powerpoint.slideshow.macroenabled.12",
                "application/vnd.ms-powerpoint.template.macroenabled.12",
                "application/vnd.openxmlformats-officedocument.presentationml.slideshow",
                "application/vnd.openxmlformats-officedocument.presentationml.template",
                ".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm",
            }
        ),
        _magic.pptx,
        is_light=True,
    ),
    Kind(
        "rtf", f"{HERE}.office.rtf", frozenset({"application/rtf", "text/rtf", ".rtf"}), _magic.rtf
    ),
    Kind(
        "sheet", f"{HERE}.office.sheet",
        frozenset(
            {"text/csv", "text/tab-separated-values", "application/csv", ".csv", ".tsv", ".tab"}
        ),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b"a,b\n1,2\n",
    ),
    Kind(
        "word", f"{HERE}.office.word",
        frozenset(
            {
                _zip.DOCX, "application/vnd.ms-word.document.macroenabled.12",
                "application/vnd.ms-word.template.macroenabled.12",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
                ".docx", ".docm", ".dotx", ".dotm",
            }
        ),
        _magic.docx,
    ),
    Kind(
        "xls", f"{HERE}.office.xls", frozenset({"application/vnd.ms-excel", ".xls", ".xlt"}),
        _magic.xls, is_light=True,
    ),
    Kind(
        "xlsx", f"{HERE}.office.xlsx",
        frozenset(
            {
                _zip.XLSX, "application/vnd.ms-excel.sheet.macroenabled.12",
                "application/vnd.ms-excel.template.macroenabled.12",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.template",
                ".xlsx", ".xlsm", ".xltx", ".xltm",
            }
        ),
        _magic.xlsx,
        is_light=True,
    ),
    Kind(
        "pdf", f"{HERE}.pdf.pdf",
        frozenset({"application/pdf", "application/x-pdf", ".pdf"}),
        _magic.pdf,
        kind="pdf",
        loads=("concurrent.futures.thread",),
        heavy_loads=_OCR,
    ),
    Kind(
        "code", f"{HERE}.text.code",
        frozenset(
            {
                "text/x-python", "text/javascript", "application/javascript", "text/x-c",
                "text/x-java", "text/x-go", "text/x-rust", "text/x-shellscript", "text/css",
                "application/sql", "application/yaml", "application/toml", "text/x-script.python",
                ".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".tsx", ".c", ".h", ".cc", ".cpp",
                ".hpp", ".cs", ".java", ".kt", ".scala", ".go", ".rs", ".rb", ".php", ".pl", ".lua",
                ".r", ".jl", ".swift", ".m", ".dart", ".ex", ".exs", ".erl", ".hs", ".clj", ".ml",
                ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".sql", ".css", ".scss", ".less",
                ".vue", ".svelte", ".proto", ".graphql", ".tf", ".yaml", ".yml", ".toml", ".ini",
                ".cfg", ".conf", ".cmake", ".gradle", ".tex", ".ts", ".mk", ".env", ".properties",
                ".service", ".tfvars", ".hcl", ".nix", ".bzl", ".rake", ".gemspec", ".coffee",
                ".nim", ".awk", ".tcl", ".csh", ".ksh", ".pyx", ".dockerfile", ".gitignore",
                ".gitattributes", ".dockerignore", ".editorconfig",
                "makefile", "gnumakefile", "cmakelists.txt", "justfile", "dockerfile",
                "containerfile", "jenkinsfile", "vagrantfile", "procfile", "gemfile", "rakefile",
                "brewfile", "podfile", "crontab", "hosts", "requirements.txt",
                "requirements-dev.txt", "constraints.txt", "robots.txt", "codeowners",
            }
        ),
        _magic.code,
        is_light=True, loads=_CHARSETS,
        sample=b"a = 1\n",
    ),
    Kind(
        "records", f"{HERE}.text.records",
        frozenset(
            {
                "application/json", "application/jsonl", "application/x-ndjson",
                ".json", ".jsonl", ".ndjson",
            }
        ),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b'{"a": 1}',
    ),
    Kind(
        "notebook", f"{HERE}.text.notebook",
        frozenset({"application/x-ipynb+json", ".ipynb"}),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b'{"cells": []}',
    ),
    Kind(
        "rst", f"{HERE}.text.rst",
        frozenset({"text/x-rst", "text/prs.fallenstein.rst", ".rst"}),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b"a\n=\n",
    ),
    Kind(
        "asciidoc", f"{HERE}.text.asciidoc",
        frozenset({"text/asciidoc", "text/x-asciidoc", ".adoc", ".asciidoc"}),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b"= a\n",
    ),
    Kind(
        "org",
        f"{HERE}.text.org",
        frozenset({"text/org", "text/x-org", ".org"}),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b"* a\n",
    ),
    Kind(
        "subtitles", f"{HERE}.text.subtitles",
        frozenset({"text/vtt", "application/x-subrip", "text/srt", ".vtt", ".srt"}),
        _magic.subtitles,
        is_light=True, loads=_CHARSETS,
        sample=b"WEBVTT\n\n00:01.000 --> 00:02.000\na\n",
    ),
    Kind(
        "ical", f"{HERE}.web.ical",
        frozenset(
            {"text/calendar", "text/vcard", "text/x-vcard", ".ics", ".ical", ".vcf", ".vcard"}
        ),
        _magic.ical,
        is_light=True, loads=_CHARSETS,
        sample=b"BEGIN:VCARD\nFN:a\nEND:VCARD\n",
    ),
    Kind(
        "text", f"{HERE}.text.text",
        frozenset(
            {
                "text/plain", "text/markdown", "text/x-markdown",
                ".txt", ".text", ".log", ".md", ".markdown",
            }
        ),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b"a\n",
    ),
    Kind("epub", f"{HERE}.web.epub", frozenset({_zip.EPUB, ".epub"}), _magic.epub),
    Kind(
        "html", f"{HERE}.web.html",
        frozenset({"text/html", "application/xhtml+xml", ".html", ".htm", ".xhtml"}),
        _magic.html,
        loads=_CHARSETS,
        sample=b"<html><head><title>t</title></head><body><h1>a</h1><p>b <a href='/c'>c</a></body>"
        b"</html>",
    ),
    Kind(
        "xml", f"{HERE}.text.xml",
        frozenset(
            {
                "application/xml", "text/xml", "application/rss+xml", "application/atom+xml",
                ".xml", ".rss", ".atom",
            }
        ),
        _magic.text,
        is_light=True, loads=_CHARSETS,
        sample=b"<a>b</a>",
    ),
    Kind(
        "mail", f"{HERE}.archive.mail",
        frozenset(
            {
                "message/rfc822", "application/mbox", "multipart/related",
                ".eml", ".emlx", ".mbox", ".mht", ".mhtml",
            }
        ),
        _magic.mail,
        unpacks=True,
        loads=_CHARSETS,
        sample=b"From: a@b.example\nSubject: s\n\na\n",
    ),
)  # fmt: skip


@functools.cache
def known(*packages: str) -> Mapping[str, Kind]:
    """By name: the kinds here, and those that these packages have as their `KINDS`."""
    further = [kind for name in packages for kind in importlib.import_module(name).KINDS]
    return MappingProxyType({kind.name: kind for kind in (*KINDS, *further)})
