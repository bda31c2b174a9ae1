"""Pictures of writing, made on the spot, and PDFs of such pictures."""

import base64
import io
import random
import struct
import textwrap
import zlib
from collections.abc import Sequence
from pathlib import Path

import reportlab
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

WIDTH = 1000
VERA = Path(reportlab.__file__).parent / "fonts" / "Vera.ttf"
"""Unlike Pillow's own font it has letters with accents."""
_MARGIN = 50


def page(
    *paragraphs: str, size: int = 24, width: int = WIDTH, font_file: Path | None = None
) -> Image.Image:
    """Paragraphs in black on white, `size` pixels high; as high as they need."""
    font = ImageFont.truetype(font_file, size) if font_file else ImageFont.load_default(size)
    lines: list[str] = []
    for paragraph in paragraphs:
        line = ""
        for word in paragraph.split():
            if line and font.getlength(f"{line} {word}") > width - 2 * _MARGIN:
                lines.append(line)
                line = ""
            line = f"{line} {word}".strip()
        lines += [line, ""]
    step = round(size * 1.5)
    image = Image.new("RGB", (width, 2 * _MARGIN + step * len(lines)), "white")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((_MARGIN, _MARGIN + number * step), line, font=font, fill="black")
    return image


def noisy(image: Image.Image, amount: int = 60) -> Image.Image:
    """With the grain of a bad copier, a little out of focus."""
    grain = Image.new("L", image.size)
    grain.putdata(random.Random(1).choices(range(amount), k=image.width * image.height))
    image = image.filter(ImageFilter.GaussianBlur(0.7))
    return ImageChops.subtract(image, Image.merge("RGB", [grain] * 3))


def askew(image: Image.Image, degrees: float) -> Image.Image:
    return image.rotate(degrees, expand=True, fillcolor="white", resample=Image.Resampling.BICUBIC)


def beside(left: Image.Image, right: Image.Image) -> Image.Image:
    """Two columns."""
    image = Image.new("RGB", (left.width + right.width, max(left.height, right.height)), "white")
    image.paste(left, (0, 0))
    image.paste(right, (left.width, 0))
    return image


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def animated(frames: Sequence[Image.Image], format: str = "GIF") -> bytes:
    return encoded(frames[0], format, save_all=True, append_images=list(frames[1:]), duration=100)


def png(width: int, height: int, *chunks: tuple[bytes, bytes], data: bytes = b"") -> bytes:
    """A PNG that claims these measures, with further chunks before its data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    out = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")):
        out += struct.pack(">I", len(body)) + kind + body
        out += struct.pack(">I", zlib.crc32(kind + body))
    return out


def pdf(
    *pages: str | Image.Image,
    layer: str = "",
    stamp: str = "",
    typed: Sequence[str] = (),
    filled: str = "",
    turn: int = 0,
) -> bytes:
    """Pages of text, or of a picture as a scanner makes them.

    `layer` is invisible writing over the pictures, `stamp` visible writing at the edge, `typed` are
    lines amid, `filled` is the value of a field, `turn` how many degrees clockwise a reader turns
    the pages.
    """
    out = io.BytesIO()
    # Square, if turned: reportlab turns the measures of a page along.
    width, height = (A4[1], A4[1]) if turn else A4
    canvas = Canvas(out, pagesize=(width, height))
    for content in pages:
        if isinstance(content, str):
            for number, line in enumerate(textwrap.wrap(content, 80)):
                canvas.drawString(60, height - 80 - 20 * number, line)
        else:
            scale = min(width / content.width, height / content.height)
            size = content.width * scale, content.height * scale
            canvas.drawImage(ImageReader(content), 0, height - size[1], *size)
            if layer:
                invisible = canvas.beginText(60, height - 80)
                invisible.setTextRenderMode(3)
                invisible.textLine(layer)
                canvas.drawText(invisible)
            if stamp:
                canvas.drawString(500, 20, stamp)
            for number, line in enumerate(typed):
                canvas.drawString(60, 200 - 20 * number, line)
            if filled:
                canvas.acroForm.textfield(value=filled, x=60, y=60, width=400)
        canvas.setPageRotation(turn)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


# "Geese fly south" in black on white, 480 to 160 pixels. Pillow writes no HEIC: it is pillow-heif
# 1.8's, of quality 10.
_PHOTO = """
AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAVZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAA
AAAAACJpbG9jAAAAAERAAAEAAQAAAAABegABAAAAAAAAAigAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAA
AA5waXRtAAAAAAABAAAA1mlwcnAAAAC3aXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAPPAA/P34+AAADwNgAAEAGEABDAH//wNw
AAADAJAAAAMAAAMAPLoCQGEAAQArQgEBA3AAAAMAkAAAAwAAAwA8oA8IChZbqSSmubgIaDAgAAADAyAAAAMAIWIAAQAHRAHB
crBiQAAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAAHgAAAAoAAAABBwaXhpAAAAAAMICAgAAAAXaXBtYQAAAAAA
AAABAAEEgQIDBAAAAjBtZGF0AAACJCgBrwQWJLG5gPwd1z6b1Ze3CNFReQsefU+gU2Nbpbq2LyaSy9r72C9Aq1g0NpTlsB9t
WyR4BYHflEp9UFPsbNHE/xgxHOzNZpgJAN0RBZYkQ6E+pIAPGfbr+X/9E9VcaVcsp6SyziXaK56Z3QY5YfIi4SniTAMaSl6v
QQSqWR0mvxkhVXYsNYJnnG7oG5SsBw7i+RLcyolYD2Pwb1lET8aLdU3mcmfgqOKNDvYu1Rra0ZLEV12JK6G2Z3eVnIse2Vjy
X26N+fTpHJNZIJarDpacZjpNmUu3YvXFkBrnXky6NtRvRq13Ryq97dQQZICwvNvNyF8v33M5hw+OrX+W0HyReoWVU/bnceGe
ac8QezG1LlAyr+Wf4jCceJpEyJMe5euekYUcmgY9wTCP7u2izDeBcXO6r7LGl7UwHLWV8ASkQG3FZAew0bqf6btpX5B7rbOG
NTgDOSanDw8BXxAVD8LQKTasZlPjldezPEwPE1D/3q1tnOGhFvx7jyfwj/l6Yl6EZazaXggixvGGw6+l1UGXkxDdhMOpKRaS
QvshosMGyR+qn1rAmrqguslzT1g4n9E3/EeXVjcW8V0r1SxezEShgaBB7hGzcKqenJe/+HrsxWOVI2cRYwTjDn7KgGI8Onkr
noKUZDVBet/G01u8jaaN/VqFxg2M3LkOspKWxHFlzY9W8Wh6rCYK3+qhQS8yzgdTTc3t+KVi75MBi5OgeajAAFjA
"""


def heic(width: int = 480, height: int = 160) -> bytes:
    """A photo of a telephone that claims this size."""
    size = b"ispe" + bytes(4)
    plain = base64.b64decode(_PHOTO)
    return plain.replace(
        size + struct.pack(">II", 480, 160), size + struct.pack(">II", width, height)
    )
