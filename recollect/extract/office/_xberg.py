"""The one seam to xberg: PDF and office files become Markdown. OCR is off, so is the network."""

import asyncio
import functools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

import xberg

from recollect.errors import Permanent
from recollect.extract import _signs

PDF = "application/pdf"
MAX_PAGES = 5_000
_DEFLATED = 1_032
"""how often its size deflate packs at most; `_zip.Package` refuses bombs"""
_COUNT_SECONDS = 5.0
"""Processor time to count pages; 5,000 take 6 ms."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Markdown, by page where the format has pages, and the title that the file's author gave."""

    text: str
    pages: Sequence[str]
    title: str | None


def convert(data: bytes, mime: str) -> Converted:
    """Raises Permanent: encrypted_file, too_large, unreadable_content."""
    config = xberg.ExtractionConfig(
        disable_ocr=True,
        use_cache=False,
        enable_quality_processing=False,
        escape_markdown=False,
        output_format="markdown",
        # To tell pages apart takes a fifth of the time; only a PDF is read by page.
        pages=xberg.PageConfig(extract_pages=True) if mime == PDF else None,
        pdf_options=xberg.PdfConfig(extract_images=False, extract_annotations=False),
        security_limits=xberg.SecurityLimits(
            max_pages=MAX_PAGES, max_compression_ratio=_DEFLATED, max_table_cells=1_000_000
        ),
        concurrency=xberg.ConcurrencyConfig(max_threads=1),
        # Rules of the sandbox hold, not a second clock.
        extraction_timeout_secs=None,
    )
    source = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=mime)
    try:
        result = _loop().run_until_complete(_extract(source, config))
    except (RuntimeError, xberg.XbergError) as error:
        raise _permanent(str(error)) from error
    if not result.results:
        raise _permanent("; ".join(item.message for item in result.errors))
    document = result.results[0]
    return Converted(
        text=_signs.plain(document.content, by_xberg=True),
        pages=[_signs.plain(page.content, by_xberg=True) for page in document.pages or ()],
        title=document.metadata.title,
    )


def count_pages(data: bytes) -> int:
    """Pages of a PDF, without reading them. Raises Permanent if it is not one, or if its list of
    pages has no end: xberg follows one that contains itself.

    The thread that counts cannot be stopped; it ends with this process.
    """
    counted: Future[int] = Future()
    began = time.process_time()
    threading.Thread(target=_count, args=(data, counted), daemon=True).start()
    while not wait([counted], timeout=0.1).done:
        if time.process_time() - began > _COUNT_SECONDS:
            raise Permanent("its list of pages has no end; it may contain itself")
    try:
        return counted.result()
    except (RuntimeError, xberg.XbergError) as error:
        raise _permanent(str(error)) from error


def _count(data: bytes, counted: "Future[int]") -> None:
    try:
        counted.set_result(xberg.pdf_page_count(data))
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        counted.set_exception(error)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all files: to make one for each takes as long as to read a small one."""
    return asyncio.new_event_loop()


async def _extract(
    source: xberg.ExtractInput, config: xberg.ExtractionConfig
) -> xberg.ExtractionResult:
    return await xberg.extract(source, config)


def _permanent(reason: str) -> Permanent:
    lowered = reason.lower()
    if "encrypted" in lowered or "password" in lowered:
        return Permanent("it is protected by a password", code="encrypted_file")
    if "security violation" in lowered or "security limit" in lowered:
        return Permanent("it is larger inside than is accepted", code="too_large")
    return Permanent("it is damaged or not what it says")
