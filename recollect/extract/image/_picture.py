"""The one seam to Pillow: frames of a picture as a person sees them, and what it says of itself.

A picture from outside is small as a file and huge in memory; nothing is unpacked before its size
is known.
"""

import struct
import warnings
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import SEEK_END, BytesIO

from recollect.errors import Permanent
from recollect.extract._text import clean_line
from recollect.extract.image import _ocr

try:
    from PIL import ExifTags, Image, ImageChops, ImageOps, JpegImagePlugin, PngImagePlugin
except ModuleNotFoundError as error:
    # It comes with the engine.
    raise _ocr.missing() from error

try:
    import pi_heif
except ModuleNotFoundError:
    pi_heif = None
else:
    pi_heif.register_heif_opener(thumbnails=False)  # pyright: ignore[reportUnknownMemberType]
    pi_heif.options.DECODE_THREADS = 1

MAX_PIXELS = 50_000_000
MAX_JPEG_PIXELS = 4 * MAX_PIXELS
"""It can be unpacked at half its width and height."""
MAX_FRAMES = 12
"""Of an animation; further ones are between these and seldom say something else."""
MAX_PAGES = 1_000

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", *(("HEIF",) if pi_heif else ()))
_UNPACKED = 150_000_000
"""Most pixels of an animation: a frame is made of all before it."""
_TEXT_BYTES = 1_000_000
_DAMAGE = (
    OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError,
    RuntimeError, struct.error, zlib.error,
)  # fmt: skip
"""What Pillow and libheif raise for files that are not as they should be."""
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_JPEG, _END_OF_JPEG = b"\xff\xd8", b"\xff\xd9"
_MISSING = frozenset((127, 128))
"""What a decoder gives for the part of a JPEG that is cut off."""
_LIGHT = 200
_SAME = 24
_GLANCE = (96, 96)
_XP_TITLE, _XP_COMMENT, _XP_SUBJECT = 0x9C9B, 0x9C9C, 0x9C9F
_CHARACTER_CODE = 8
"""Bytes in front of an EXIF user comment that name its encoding (EXIF 2.32, 4.6.5)."""


@dataclass(frozen=True, slots=True)
class Frame:
    number: int
    image: Image.Image | None
    """None: from here on the file is damaged"""


@dataclass(frozen=True, slots=True)
class About:
    """What a file says of its picture, for people."""

    title: str | None
    description: str | None
    taken: str | None
    """day and time by the camera's clock"""


@dataclass(frozen=True, slots=True)
class Picture:
    image: Image.Image
    frames: int
    """all that the file has"""
    has_pages: bool
    """whether they are pages, not moments"""

    def seen(self) -> Iterator[Frame]:
        """Upright and opaque: every page, or those moments of an animation that differ.

        Raises Permanent if the first one is damaged; a later one ends the rest.
        """
        last: Image.Image | None = None
        for number in self._chosen():
            try:
                self.image.seek(number)
                _check(self.image)
                image = _opaque(_upright(self.image))
            except _BOMBS as error:
                raise _bomb() from error
            except _DAMAGE as error:
                if number == 0:
                    raise Permanent("it is damaged or cut off") from error
                yield Frame(number + 1, None)
                return
            if not self.has_pages:
                glance = image.convert("L").resize(_GLANCE)
                if last is not None and _alike(last, glance):
                    continue
                last = glance
            yield Frame(number + 1, image)

    @property
    def skips(self) -> bool:
        """Whether not all frames are looked at."""
        return len(self._chosen()) < self.frames

    def _chosen(self) -> list[int]:
        if self.has_pages:
            return list(range(min(self.frames, MAX_PAGES)))
        width, height = self.image.size
        within = max(1, min(self.frames, _UNPACKED // (width * height)))
        count = min(within, MAX_FRAMES)
        return sorted({round(at * (within - 1) / max(1, count - 1)) for at in range(count)})

    def about(self) -> About:
        with suppress(*_DAMAGE):
            return _about(self.image)
        return About(None, None, None)


@contextmanager
def opened(data: bytes) -> Generator[Picture]:
    """Unpacks nothing yet. Raises Permanent: too_large, unreadable_content, ocr_unavailable."""
    if not pi_heif and data[4:11] == b"ftyphei":
        raise _ocr.missing()
    Image.MAX_IMAGE_PIXELS = MAX_JPEG_PIXELS if data.startswith(_JPEG) else MAX_PIXELS
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = _TEXT_BYTES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image = Image.open(BytesIO(data), formats=_FORMATS)
            frames = getattr(image, "n_frames", 1)
        except _BOMBS as error:
            raise _bomb() from error
        except _DAMAGE as error:
            raise Permanent("it is damaged or not a picture") from error
        with image:
            _check(image)
            # The further pictures of a camera's JPEG are previews of the first.
            has_pages = image.format == "TIFF"
            yield Picture(image, 1 if image.format == "MPO" else frames, has_pages)


def _check(image: Image.Image) -> None:
    """Raises Permanent if it is too large; a JPEG may be halved for that."""
    width, height = image.size
    if width * height > MAX_PIXELS and not (
        isinstance(image, JpegImagePlugin.JpegImageFile)
        and image.draft(None, (width // 2, height // 2))
    ):
        raise _bomb()


def _bomb() -> Permanent:
    told = f"it has more than {MAX_PIXELS:,} pixels, or as a JPEG {MAX_JPEG_PIXELS:,}"
    return Permanent(told, code="too_large")


def _upright(image: Image.Image) -> Image.Image:
    """As the camera was held, unpacked."""
    _unpack(image)
    with suppress(*_DAMAGE):
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
            return ImageOps.exif_transpose(image)
    return image


def _unpack(image: Image.Image) -> None:
    try:
        image.load()
    except OSError:
        if not isinstance(image, JpegImagePlugin.JpegImageFile) or "progressive" in image.info:
            raise
        # Some cameras leave out the mark of the end, and viewers do without.
        assert image.fp
        image.fp.seek(0, SEEK_END)
        image.fp.write(_END_OF_JPEG)
        image.load()
        width, height = image.size
        corner = image.crop((max(0, width - 8), max(0, height - 8), width, height))
        if set(corner.tobytes()) <= _MISSING:
            raise


def _opaque(image: Image.Image) -> Image.Image:
    """In red, green and blue, on white; light writing on nothing is laid on black."""
    if image.mode.startswith(("I", "F")):
        low, high = _extrema(image)
        scale = 255 / (high - low) if high > low else 1.0
        return image.convert("F").point(lambda value: (value - low) * scale).convert("RGB")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")  # a copy may take 150 MB
    image = image.convert("RGBA")
    alpha = image.getchannel("A")
    faint = int(_extrema(alpha)[1]) // 2
    drawn = alpha.point([0] * (faint + 1) + [255] * (255 - faint))
    histogram = image.convert("L").histogram(drawn)
    count = sum(histogram)
    mean = sum(value * times for value, times in enumerate(histogram)) / count if count else 0
    ground = Image.new("RGBA", image.size, "black" if mean > _LIGHT else "white")
    return Image.alpha_composite(ground, image).convert("RGB")


def _extrema(image: Image.Image) -> tuple[float, float]:
    low, high = image.convert("F").getextrema()
    assert isinstance(low, float)
    assert isinstance(high, float)
    return low, high


def _alike(one: Image.Image, other: Image.Image) -> bool:
    return not any(ImageChops.difference(one, other).histogram()[_SAME:])


def _about(image: Image.Image) -> About:
    exif = image.getexif()
    more = exif.get_ifd(ExifTags.IFD.Exif)
    texts = {
        str(name).lower(): value for name, value in image.info.items() if isinstance(name, str)
    }
    titles = [exif.get(_XP_TITLE), texts.get("title")]
    descriptions = [
        exif.get(ExifTags.Base.ImageDescription),
        exif.get(_XP_SUBJECT),
        exif.get(_XP_COMMENT),
        _without_code(more.get(ExifTags.Base.UserComment)),
        texts.get("description"),
        texts.get("comment"),
    ]
    taken = _words(more.get(ExifTags.Base.DateTimeOriginal))
    return About(
        title=next(filter(None, map(_words, titles)), None),
        description=". ".join(dict.fromkeys(filter(None, map(_words, descriptions)))) or None,
        # EXIF writes 2024:05:01 12:00:00.
        taken=taken.replace(":", "-", 2) if taken else None,
    )


def _without_code(comment: object) -> object:
    return comment[_CHARACTER_CODE:] if isinstance(comment, bytes) else comment


def _words(value: object) -> str | None:
    """A field as one line, whatever its encoding; None if it says nothing."""
    if isinstance(value, bytes):
        wide = len(value) % 2 == 0 and value[1::2].count(0) * 2 > len(value) // 2
        value = value.decode("utf-16-le" if wide else "utf-8", "replace")
    if not isinstance(value, str):
        return None
    words = clean_line(value.replace("\0", " "))
    return words if any(character.isalnum() for character in words) else None
