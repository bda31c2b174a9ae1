"""A fetched page that shows a video: what is said in the video joins what stands on the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from recollect import extract
from recollect.app import App
from recollect.errors import Parked, Permanent
from recollect.fetch.video import FoundVideo
from recollect.inference.speech import Heard
from recollect.model import Blob, Extracted, Place

Listen = Callable[[Blob], Extracted]
"""The text of a recording, with what an engine hears in it."""
AGAIN = timedelta(minutes=5)


def read(app: App, page: Blob, url: str, extracted: Extracted, listen: Listen) -> Extracted:
    """The page as it was `extracted`, with the words of its video if it shows one.

    A page of a video becomes a document of the video; on any other page the words follow the text.
    Nothing that goes wrong with the video fails the page: a warning tells. Raises Transient and
    Unavailable, as for recordings.
    """
    if app.videos is None:
        return extracted
    found = app.videos.look(page, url, with_sound=app.listener.engine is not None)
    if found is None:
        return extracted
    said = _said(app, found, listen)
    return _joined(found, extracted, said)


@dataclass(frozen=True, slots=True)
class _Said:
    """Words of a video, and sentences about how they were found, or why not."""

    text: str = ""
    places: Sequence[Place] = ()
    warnings: Sequence[str] = ()


def _said(app: App, found: FoundVideo, listen: Listen) -> _Said:
    try:
        if found.captions:
            # Either form is known by its bytes.
            captions = app.sandbox.extract(Blob(found.captions), forced="subtitles")
            if captions.places:
                told = f"Its text is that of automatic captions ({extract.clean(found.language)})."
                return _words(captions, [told] if found.automatic else [])
            return _Said(warnings=["Its captions cannot be read."])
        if found.sound:
            heard = _heard(listen, found.sound)
            return _words(heard, heard.warnings)
        if found.trouble or app.listener.engine is not None:
            reason = found.trouble or "it has neither sound nor captions that can be read"
            return _Said(warnings=[_not_read(reason)])
        # Says what is missing here, and the mend.
        return _Said(warnings=app.listener.transcribe(_nothing).warnings)
    except Permanent as error:
        return _Said(warnings=[_not_read(str(error))])


def _heard(listen: Listen, sound: bytes) -> Extracted:
    try:
        return listen(Blob(sound))
    except Parked as error:  # each attempt fetches the sound again
        after = max(error.after or AGAIN, AGAIN)
        raise Parked(str(error), code=error.code, after=after) from error


def _not_read(reason: str) -> str:
    return f"The video on this page was not read: {extract.clean(reason).rstrip('.')}."


def _nothing(*_: object) -> Heard:
    raise Permanent("nobody listens")


def _words(heard: Extracted, warnings: Sequence[str]) -> _Said:
    """What is said, without what the file says of itself."""
    if not heard.places:
        return _Said(warnings=warnings)
    start = heard.places[0].start
    places = [Place(place.start - start, place.at) for place in heard.places]
    return _Said(heard.text[start:], places, warnings)


def _joined(found: FoundVideo, page: Extracted, said: _Said) -> Extracted:
    is_video = found.own or bool(said.text)
    title = extract.clean(found.title)
    # The text around a video on a page of its own is of other videos, mostly.
    with_page = bool(page.text.strip()) and not (found.own and said.text)
    text, places = _head(found), list[Place]()
    if with_page:
        text, places = _appended(text, places, page.text, page.places)
    if said.text:
        text, places = _appended(text, places, said.text, said.places)
    return replace(
        page,
        text=text,
        title=(title if found.own else "") or page.title or title or None,
        kind="video" if is_video else page.kind,
        warnings=[*(page.warnings if with_page else ()), *said.warnings],
        places=places,
        markdown=with_page and page.markdown,
    )


def _appended(
    text: str, places: Sequence[Place], more: str, its: Sequence[Place]
) -> tuple[str, list[Place]]:
    ahead = text + "\n\n" if text else ""
    moved = [Place(len(ahead) + place.start, place.at) for place in its]
    return ahead + more, [*places, *moved]


def _head(found: FoundVideo) -> str:
    """As that of a recording; the notes of a page that is not the video's own stand on it."""
    uploaded = found.uploaded
    lines = {
        "Title": found.title if found.own else "",
        "Uploader": found.uploader,
        "Date": f"{uploaded[:4]}-{uploaded[4:6]}-{uploaded[6:]}" if uploaded else "",
        "Duration": _clock(found.seconds) if found.seconds else "",
    }
    head = "\n".join(f"{name}: {extract.clean(value)}" for name, value in lines.items() if value)
    notes = extract.clean(found.description).strip() if found.own else ""
    return f"{head}\n\nDescription: {notes}".strip() if notes else head


def _clock(seconds: float) -> str:
    """`1:02:03`"""
    minutes, rest = divmod(round(min(seconds, 1e6)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
