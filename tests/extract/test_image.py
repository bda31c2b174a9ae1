"""Pictures: the writing on them, also within a PDF, and nothing else of what they may do."""

import io
import struct
import subprocess
import sys
import zlib
from functools import partial

import psutil
import pytest
from PIL import Image, ImageFilter, ImageOps, PngImagePlugin, TiffImagePlugin

from recollect.errors import Permanent
from recollect.extract import Limits, Sandbox
from recollect.extract.image import _picture
from recollect.model import Blob, Place
from tests.extract import pictures, samples
from tests.extract.conftest import ROGUES, deed

TEXT = "The harvest of the year was plentiful"
OTHER = "Bridges are counted each winter"
# To read takes time by words and by area.
page = partial(pictures.page, width=500)


@pytest.fixture
def heavy_children():
    """Children that were started since and hold models, by how they give way."""
    before = set(psutil.Process().children(recursive=True))

    def find():
        return [
            child
            for child in psutil.Process().children(recursive=True)
            if child not in before and big(child)
        ]

    return find


def big(child):
    try:
        # What forks the children that hold models gives way to others, as they do.
        return child.nice() > psutil.Process().nice()
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def alone():
    """A sandbox of its own, with little time for pictures."""
    with Sandbox(workers=1, limits=Limits(heavy_cpu_seconds=33, wall_factor=30)) as sandbox:
        yield sandbox


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("JPEG", {"quality": 80}),
        ("PNG", {}),
        ("WEBP", {}),
        ("AVIF", {}),
        ("TIFF", {"big_tiff": True}),
        # Animations of the one and faxes of the other are read below, pixels of TIFF, too.
        *(pytest.param(one, {}, marks=pytest.mark.slow) for one in ("GIF", "BMP", "TIFF")),
    ],
)
def test_the_writing_on_a_picture_is_its_text(read, format, options):
    extracted = read(pictures.encoded(page(TEXT), format, **options))

    assert words(extracted.text) == TEXT
    assert extracted.kind == "image"
    assert not extracted.warnings
    assert not extracted.places


@pytest.mark.parametrize("name", ["IMG_0001.HEIC", None])
def test_a_photo_of_a_telephone_is_read(read, name):
    extracted = read(pictures.heic(), name)

    assert (extracted.text, extracted.kind) == ("Geese fly south", "image")


def test_columns_are_read_one_after_the_other(read):
    left, right = (" ".join([text] * 4) for text in (TEXT, OTHER))
    columns = pictures.beside(page(left), page(right))

    assert words(read(pictures.encoded(columns)).text) == f"{left} {right}"


@pytest.mark.parametrize("turn", [90, 270])
def test_a_label_along_the_side_is_read(read, turn):
    image = page(*[TEXT] * 8)
    image.paste(page(OTHER, width=500).crop((0, 40, 500, 90)).rotate(turn, expand=True), (0, 20))
    text = words(read(pictures.encoded(image), "a.png").text)

    assert text.count(TEXT) == 8
    assert OTHER in text


def test_a_long_strip_is_read_from_top_to_bottom(read):
    numbers = [f"entry {number} of the long list" for number in range(1, 41)]
    strip = pictures.page(*numbers, size=20, width=420)

    assert strip.height > 2_400
    assert words(read(pictures.encoded(strip)).text) == " ".join(numbers)


def screen(width, height, *at, left=1_900):
    """A screen with small print at these heights, black on white, under a line of large print."""
    shot = Image.new("RGB", (width, height), "white")
    shot.paste(pictures.page("Headline", size=90), (left, 0))
    for number, top in enumerate(at):
        lines = (f"{TEXT} {number}.", OTHER)
        shot.paste(pictures.page(*lines, size=14, width=500, font_file=pictures.VERA), (left, top))
    return shot


@pytest.mark.parametrize(
    "shot", [screen(3_840, 1_080, 300), screen(1_920, 6_000, 300, 2_900, 5_000, left=700)]
)
def test_a_shot_of_two_screens_or_of_a_whole_page_is_read(read, shot):
    """Shrunk to the size of a page, nothing was found on it."""
    text = words(read(pictures.encoded(shot)).text)

    assert text.startswith("Headline")
    assert text.count(OTHER) == text.count(TEXT) == shot.height // 3_000 + 1


def test_a_line_of_small_print_across_a_whole_screen_is_read_once(read):
    numbers = [f"station {number}" for number in range(100, 135)]
    shot = Image.new("RGB", (4_000, 1_700), "white")
    for at, top in enumerate((200, 1_400)):
        line = " ".join([*numbers[at:], *numbers[:at]])
        shot.paste(pictures.page(line, size=14, width=3_900, font_file=pictures.VERA), (50, top))

    found = words(read(pictures.encoded(shot)).text)

    assert [found.count(number) for number in numbers] == [2] * len(numbers)


@pytest.mark.parametrize("top", [400, 1_500])
def test_a_line_on_a_page_that_is_empty_else_is_read(read, top):
    scan = Image.new("RGB", (1_700, 2_000), "white")
    scan.paste(pictures.page(TEXT, size=15, width=500, font_file=pictures.VERA), (800, top))

    assert words(read(pictures.encoded(scan)).text) == TEXT


@pytest.mark.parametrize(("ink", "paper", "blur"), [(216, 240, 0), (144, 255, 3)])
def test_faint_writing_and_what_is_out_of_focus_is_no_empty_page(read, ink, paper, blur):
    scan = pictures.page(TEXT, size=36).point(lambda shade: ink + shade * (paper - ink) // 255)

    scan = scan.filter(ImageFilter.GaussianBlur(blur))

    assert words(read(pictures.encoded(scan)).text) == TEXT


def test_a_camera_says_how_it_was_held(read):
    exif = Image.Exif()
    exif[0x0112] = 7
    # In a mirror, so that turning alone does not help.
    mirrored = ImageOps.mirror(page(TEXT)).rotate(270, expand=True)

    assert words(read(pictures.encoded(mirrored, "JPEG", exif=exif), "a.jpg").text) == TEXT


def test_a_photo_of_more_pixels_than_others_may_have_is_read_at_half_its_size(read):
    photo = Image.new("L", (8_000, 6_500), "white")
    writing = page(TEXT)
    photo.paste(writing.resize((writing.width * 6, writing.height * 6)))
    exif = Image.Exif()
    exif[0x0112] = 3

    data = pictures.encoded(photo.rotate(180), "JPEG", exif=exif)

    assert words(read(data, "a.jpg").text) == TEXT


def test_a_photo_that_lacks_nothing_but_the_mark_of_its_end_is_read(read):
    assert words(read(pictures.encoded(page(TEXT), "JPEG")[:-2]).text) == TEXT


@pytest.mark.parametrize(("ink", "alpha"), [(0, 255), (255, 255), (255, 110)])
def test_what_is_transparent_gets_a_ground_on_which_it_is_read(read, ink, alpha):
    writing = page(TEXT).convert("L").point(lambda value: (255 - value) * alpha // 255)
    picture = Image.new("RGBA", writing.size, (ink, ink, ink, 0))
    picture.putalpha(writing)

    assert words(read(pictures.encoded(picture)).text) == TEXT


@pytest.mark.parametrize(
    "mode",
    # One of each sort: few levels, a table, ink, and more levels than are read.
    [
        "1",
        "P",
        "CMYK",
        "I;16",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("L", "LA", "F")),
    ],
)
def test_every_kind_of_pixel_is_read(read, mode):
    plain = page(TEXT)
    if mode == "I;16":
        picture = plain.convert("I").point(lambda value: value * 200).convert("I;16")
    else:
        picture = plain.convert("L").convert(mode) if mode in "LAF" else plain.convert(mode)

    assert words(read(pictures.encoded(picture, "TIFF")).text) == TEXT


@pytest.mark.parametrize(
    "format",
    # What a frame is, is the same code for all; which there are is tested without reading them.
    ["GIF", *(pytest.param(one, marks=pytest.mark.slow) for one in ("WEBP", "PNG"))],
)
def test_an_animation_says_each_thing_once(read, format):
    first, second = (page(text) for text in (TEXT, OTHER))
    extracted = read(pictures.animated([first, first, second, first, second], format))

    assert words(extracted.text) == f"{TEXT} {OTHER}"
    assert not extracted.places


def test_moments_of_an_animation_that_do_not_differ_are_passed_over():
    first, second = (page(text) for text in (TEXT, OTHER))
    flicker = first.copy()
    flicker.putpixel((5, 5), (90, 90, 90))
    data = pictures.animated([first, flicker, second, first, flicker, second], "PNG")
    with _picture.opened(data) as picture:
        assert [frame.number for frame in picture.seen()] == [1, 3, 4, 6]


def test_an_animation_is_not_looked_at_for_ever(read):
    frames = [Image.new("L", (40, 40), shade) for shade in range(0, 250, 5)]

    warnings = read(pictures.animated(frames), "a.gif").warnings
    assert "Not all of its 50 frames were looked at." in warnings


def test_pages_of_a_fax_are_pages(read):
    data = pictures.encoded(
        page(TEXT),
        "TIFF",
        save_all=True,
        append_images=[Image.new("RGB", (800, 600), "white"), page(OTHER)],
    )
    extracted = read(data, "fax.tif")

    assert words(extracted.text) == f"{TEXT} {OTHER}"
    start = extracted.text.index("Bridges")
    assert list(extracted.places) == [Place(0, {"page": 1}), Place(start, {"page": 3})]


def test_a_damaged_page_of_a_fax_is_named(read):
    white = Image.new("RGB", (300, 200), "white")
    data = bytearray(
        pictures.encoded(
            page(TEXT), "TIFF", save_all=True, append_images=[white], compression="tiff_deflate"
        )
    )
    with Image.open(io.BytesIO(data)) as fax:
        assert isinstance(fax, TiffImagePlugin.TiffImageFile)
        fax.seek(1)
        start = fax.tag_v2[273][0]
    data[start : start + 20] = b"x" * 20
    extracted = read(bytes(data), "fax.tif")

    assert words(extracted.text) == TEXT
    assert list(extracted.warnings) == ["It was read up to page 1 of 2: the rest of it is damaged."]


def test_a_picture_without_writing_is_found_by_its_name_and_description(read):
    exif = Image.Exif()
    exif[0x010E] = "Anna at the old mill"
    exif.get_ifd(0x8769)[0x9003] = "2024:05:01 12:00:00"
    sky = Image.new("RGB", (300, 200), "skyblue")
    extracted = read(pictures.encoded(sky, "JPEG", exif=exif), "summer at the sea.jpg")

    assert extracted.text.splitlines()[::2] == [
        "Picture: summer at the sea.jpg",
        "Description: Anna at the old mill",
        "Taken: 2024-05-01 12:00:00",
    ]
    assert list(extracted.warnings) == [
        "No writing was found on it, but it is found by its name and description."
    ]


@pytest.mark.parametrize("name", [None, "upload", "image.png"])
def test_a_picture_of_which_nothing_is_known_is_empty(read, name):
    extracted = read(pictures.encoded(Image.new("RGB", (300, 200), "navy")), name)

    assert extracted.text == ""
    assert "No writing was found on it." in extracted.warnings


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 2), (9, 9)])
def test_a_tiny_picture_is_no_trouble(read, size):
    assert read(pictures.encoded(Image.new("L", size)), "upload").text == ""


def test_the_words_of_a_png_about_itself_are_marked_as_such(read):
    info = PngImagePlugin.PngInfo()
    info.add_text("Title", "Orchard map")
    info.add_itxt("Description", "Süße Äpfel")
    extracted = read(pictures.encoded(page(TEXT), pnginfo=info), "map.png")

    assert extracted.title == "Orchard map"
    assert words(extracted.text) == f"{TEXT} Description: Süße Äpfel"


# Hostile ones


def _bomb_in_text():
    packed = zlib.compress(b"a" * 300_000_000, 9)
    return pictures.png(10, 10, (b"zTXt", b"Comment\0\0" + packed))


def _torso(format, **options):
    whole = pictures.encoded(page(TEXT), format, **options)
    return whole[: min(3_000, len(whole) // 2)]


def _enlarged(jpeg, side):
    """It says that it has so many rows and columns."""
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + struct.pack(">HH", side, side) + jpeg[at + 4 :]


def _animated_bomb():
    """Many large frames, each a few bytes."""
    frames = [Image.new("P", (4000, 4000), shade) for shade in (1, 2)]
    return pictures.animated(frames * 12)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (pictures.png(60_000, 60_000), "too_large"),
        (pictures.png(8_000, 8_000), "too_large"),
        (pictures.png(2**31 - 1, 2**31 - 1), "too_large"),
        (lambda: _enlarged(pictures.encoded(page(TEXT), "JPEG"), 20_000), "too_large"),
        # In each run `test_hostile.py` reads one.
        pytest.param(_bomb_in_text, "unreadable_content", marks=pytest.mark.slow),
        (pictures.png(100, 100, data=b"\0" * 50), "unreadable_content"),
        (partial(_torso, "JPEG"), "unreadable_content"),
        (partial(_torso, "JPEG", progressive=True), "unreadable_content"),
        (lambda: pictures.encoded(page(TEXT), "JPEG")[:-20], "unreadable_content"),
        (partial(_torso, "PNG"), "unreadable_content"),
        (partial(_torso, "WEBP"), "unreadable_content"),
        (partial(_torso, "AVIF"), "unreadable_content"),
        (pictures.heic(60_000, 60_000), "too_large"),
        (pictures.heic(1, 1), "unreadable_content"),
        (pictures.heic()[:600], "unreadable_content"),
        (pictures.heic()[:40], "unreadable_content"),
        (b"\x89PNG\r\n\x1a\n", "unreadable_content"),
        (b"GIF89a", "unreadable_content"),
        (b"II*\0" + struct.pack("<I", 8) + b"\xff" * 40, "unreadable_content"),
        (b"", "unreadable_content"),
    ],
)
def test_a_bomb_or_a_torso_is_refused_with_a_reason(read, data, code):
    # What takes long to make is made here, not whenever tests are collected.
    with pytest.raises(Permanent) as caught:
        read(data() if callable(data) else data, "a.png", forced="image")

    assert caught.value.code == code


def test_bombs_are_refused_without_models(heavy_children):
    with Sandbox(workers=1) as sandbox:
        with pytest.raises(Permanent):
            sandbox.extract(Blob(pictures.png(60_000, 60_000), name="a.png"))

        assert not heavy_children()


@pytest.mark.slow
def test_a_large_animation_ends_within_its_memory(read):
    extracted = read(_animated_bomb(), "a.gif")

    assert "Not all of its 24 frames were looked at." in extracted.warnings


def test_what_only_calls_itself_a_picture_is_read_as_what_it_is(read):
    assert read("just words", "a.png").kind == "text"
    assert read(pictures.encoded(page(TEXT)), "a.txt").kind == "image"
    assert read("BM is not always a bitmap", "a.txt").kind == "text"


# PDF


def test_only_pages_without_text_are_read_as_pictures(read):
    extracted = read(pictures.pdf(TEXT, page(OTHER), "A last page of text"), "mixed.pdf")
    starts = [extracted.text.index(word) for word in ("The", "Bridges", "A last")]

    assert words(extracted.text) == f"{TEXT} {OTHER} A last page of text"
    assert list(extracted.places) == [
        Place(start, {"page": number}) for number, start in enumerate(starts, 1)
    ]
    assert extracted.kind == "pdf"
    assert not extracted.warnings


@pytest.mark.parametrize(
    "turn", [90, *(pytest.param(one, marks=pytest.mark.slow) for one in (180, 270))]
)
def test_a_page_is_read_as_it_is_turned(read, turn):
    scan = page(TEXT).rotate(turn, expand=True)

    assert words(read(pictures.pdf(scan, turn=turn), "a.pdf").text) == TEXT


def test_a_shot_of_a_screen_in_a_pdf_is_read(read):
    shot = screen(3_840, 1_080, 300)

    assert f"{TEXT} 0. {OTHER}" in words(read(pictures.pdf(shot), "a.pdf").text)


def test_a_scan_within_forms_within_forms_is_read(read):
    """Each program that puts pages on others, or stamps them, adds a form."""
    scan = page(TEXT)
    jpeg = pictures.encoded(scan, "JPEG")
    form = (
        b"<</Type/XObject/Subtype/Form/BBox[0 0 1 1]/Resources<</XObject<</X %d 0 R>>>>/Length 5>>"
        b"stream\n/X Do\nendstream"
    )
    placed = b"%d 0 0 %d 0 0 cm /X Do" % scan.size
    data = samples.raw_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents 4 0 R"
        b"/Resources<</XObject<</X 5 0 R>>>>>>" % scan.size,
        b"<</Length %d>>stream\n%s\nendstream" % (len(placed), placed),
        *(form % inner for inner in range(6, 14)),
        b"<</Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceRGB/BitsPerComponent 8"
        b"/Filter/DCTDecode/Length %d>>stream\n%s\nendstream" % (*scan.size, len(jpeg), jpeg),
    )

    assert words(read(data, "a.pdf").text) == TEXT


@pytest.mark.parametrize("stamp", ["page 1", "Case 19-01234 Document 12 Filed 05/06/20"])
def test_a_stamp_does_not_pass_for_the_text_of_a_scan(read, stamp):
    # The scan covers the page, as those of scanners do.
    scan = Image.new("RGB", (500, 700), "white")
    scan.paste(page(*[TEXT] * 5))
    extracted = read(pictures.pdf(scan, stamp=stamp), "a.pdf")

    assert words(extracted.text).count(TEXT) == 5
    assert words(extracted.text).count(stamp) == 1


def test_what_is_typed_over_a_scan_does_not_pass_for_its_text(read):
    scan = Image.new("RGB", (500, 700), "white")
    scan.paste(page(*[TEXT] * 5))
    typed = ("Bartholomew Fox, 14 Mill Lane, Ashford", "Signed in London on 3 May 2024")
    text = words(read(pictures.pdf(scan, typed=typed), "a.pdf").text)

    assert text.count(TEXT) == 5
    assert [text.count(line) for line in typed] == [1, 1]


def test_no_models_are_loaded_for_slides_with_a_photo_as_ground(heavy_children):
    photo = Image.effect_noise((500, 700), 60).filter(ImageFilter.GaussianBlur(1))
    with Sandbox(workers=1) as sandbox:
        extracted = sandbox.extract(Blob(pictures.pdf(photo, typed=[TEXT, OTHER]), name="a.pdf"))

        assert words(extracted.text) == f"{TEXT} {OTHER}"
        assert not heavy_children()


def test_a_stamp_that_cannot_be_read_on_a_scan_is_kept(read):
    scan = Image.new("RGB", (500, 700), "white")
    scan.paste(page(TEXT))
    extracted = read(pictures.pdf(scan, layer="Ledger 1923"), "a.pdf")

    assert words(extracted.text) == f"{TEXT} Ledger 1923"


def test_a_field_does_not_pass_for_the_text_of_a_scan(read):
    scan = Image.new("RGB", (500, 700), "white")
    scan.paste(page(*[TEXT] * 5))
    extracted = read(pictures.pdf(scan, filled="Filled in by Bartholomew Fox"), "a.pdf")

    assert words(extracted.text).count(TEXT) == 5
    assert "Bartholomew" in extracted.text


def test_a_layer_of_garbage_is_not_taken_for_text(read):
    # Private glyphs, as fonts without a table of characters give them.
    data = pictures.pdf(page(TEXT), layer="\x01\x02" * 40)
    garbage = samples.raw_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 100]/Contents 4 0 R"
        b"/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length 46>>stream\nBT /F 24 Tf 20 40 Td (Orchards and rivers) Tj ET\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
        _private_glyphs(),
    )

    assert words(read(data, "a.pdf").text) == TEXT
    assert words(read(garbage, "b.pdf").text) == "Orchards and rivers"


def _private_glyphs() -> bytes:
    table = (
        b"/CIDInit /ProcSet findresource begin begincmap\n"
        b"1 begincodespacerange <00> <ff> endcodespacerange\n"
        b"1 beginbfrange <20> <7e> <e020> endbfrange\nendcmap"
    )
    return b"<</Length %d>>stream\n%s\nendstream" % (len(table), table)


@pytest.mark.parametrize(
    "data",
    [
        samples.report_pdf,
        lambda: samples.pdf("text", ""),
        lambda: pictures.pdf(page(TEXT), layer="What another program read on this page"),
    ],
    ids=["report", "empty page", "layer"],
)
def test_no_models_are_loaded_for_pages_with_text(data, heavy_children):
    with Sandbox(workers=1) as sandbox:
        assert sandbox.extract(Blob(data(), name="a.pdf")).text
        assert not heavy_children()


def test_a_child_with_models_would_have_been_seen(heavy_children):
    with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
        assert not heavy_children()
        assert deed(sandbox, "heavy echo it") == "done it"
        # What forks it gives way, too, and a moment longer.
        assert 1 <= len(heavy_children()) <= 2


def test_the_layer_that_a_scanner_leaves_is_what_a_reader_sees(read):
    data = pictures.pdf(page(TEXT), layer="What another program has read on this page")
    extracted = read(data, "a.pdf")

    assert words(extracted.text) == "What another program has read on this page"
    assert not extracted.warnings


def test_pages_for_which_time_does_not_suffice_are_named(alone):
    scan = page(TEXT)
    extracted = alone.extract(Blob(pictures.pdf("Text", *[scan] * 12, "More text"), name="a.pdf"))
    read = [place.at["page"] for place in extracted.places]

    assert extracted.text.startswith("Text")
    assert extracted.text.endswith("More text")
    assert 2 <= len(read) < 14
    (warning,) = extracted.warnings
    assert "left unread" in warning
    assert f" {max(page for page in read if page < 14) + 1}" in warning


# It leaves as the sandbox's child does: xberg's threads can crash an interpreter that finalizes.
WITHOUT_ENGINE = """
import os, sys
from recollect.extract.image import _models, _picture, image
from recollect.extract.pdf import pdf
from recollect.errors import Permanent
from recollect.model import Blob
from tests.extract import pictures
_models.importlib.util.find_spec = lambda name: None
page = pictures.page("some words")
try:
    image.extract(Blob(pictures.encoded(page)))
except Permanent as error:
    print(error.code, "|", error)
extracted = pdf.extract(Blob(pictures.pdf("A page with text", page)))
print(extracted.text, "|", *extracted.warnings)
print(*{"rapidocr", "cv2", "onnxruntime"} & set(sys.modules))
_picture.pi_heif = None
for data in (pictures.heic(), pictures.encoded(page)):
    try:
        with _picture.opened(data) as opened:
            print(opened.image.format, flush=True)
    except Permanent as error:
        print(error.code, flush=True)
os._exit(0)
"""


def test_without_the_engine_the_mend_is_named_and_text_pages_are_kept():
    out = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINE], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert out[0].startswith("ocr_unavailable | ")
    assert "pip install 'recollect[ocr]'" in out[0]
    assert out[1].startswith("A page with text | Page 2 is a picture; to have it read: pip install")
    assert out[2] == ""
    assert out[3:] == ["ocr_unavailable", "PNG"]
