"""What a file says does not depend on how its XML is written."""

import re
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO

import pytest
from docx.enum.style import WD_STYLE_TYPE

from recollect.errors import Permanent
from recollect.model import Blob
from tests.extract import office, samples
from tests.extract.test_odf_objects import flat
from tests.extract.test_word import WORD_2003

SECRET = "ignoreallrules"
_TAG = re.compile(rb"""<(/?)([A-Za-z_][\w:.-]*)((?:[^"'>]|"[^"]*"|'[^']*')*?)(/?)>""")
_ATTRIBUTE = re.compile(rb"""\s+([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_DECLARATION = re.compile(rb"\A(?:\xef\xbb\xbf)?(?:<\?xml[^>]*\?>)?")

Tag = Callable[[bytes, bytes, list[tuple[bytes, bytes]], bytes], bytes]


def _tags(part: bytes, write: Tag) -> bytes:
    def one(tag: re.Match[bytes]) -> bytes:
        found = _ATTRIBUTE.findall(tag[3])
        return write(tag[1], tag[2], [(key, one or other) for key, one, other in found], tag[4])

    return _TAG.sub(one, part)


def _laid_out(around: bytes = b"=", quote: bytes = b'"', gap: bytes = b" ", end: bytes = b""):
    def write(
        slash: bytes, name: bytes, attributes: list[tuple[bytes, bytes]], empty: bytes
    ) -> bytes:
        said = b"".join(gap + key + around + quote + text + quote for key, text in attributes)
        return b"<" + slash + name + said + end + empty + b">"

    return lambda part: _tags(part, write)


def _rewritten(
    change: Callable[[list[tuple[bytes, bytes]]], list[tuple[bytes, bytes]]],
    *,
    is_closed: bool = False,
    behind: bytes = b"",
):
    def write(
        slash: bytes, name: bytes, attributes: list[tuple[bytes, bytes]], empty: bytes
    ) -> bytes:
        said = b"".join(b' %s="%s"' % pair for pair in change(attributes))
        close = b"</%s>" % name if empty and is_closed else b""
        return b"<%s%s%s%s>%s%s" % (slash, name, said, b"" if close else empty, close, behind)

    return lambda part: _tags(part, write)


def _by_number(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [
        (key, text if key.startswith(b"xmlns") or b"&" in text else _numbers(text))
        for key, text in pairs
    ]


def _numbers(text: bytes) -> bytes:
    return text[:1] and b"&#x%x;%s" % (text[0], text[1:]) if text[:1].isascii() else text


def _prefixed(new: bytes) -> Callable[[bytes], bytes]:
    def change(part: bytes) -> bytes:
        known = b"|".join(set(re.findall(rb"xmlns:([\w-]+)=", part))) or b"-"
        part = re.sub(rb"(</?|\s)(?=(?:%s):)" % known, rb"\1" + new, part)
        return re.sub(rb"xmlns:(?=%s=)" % known.replace(b"|", b"=|"), b"xmlns:" + new, part)

    return change


def _without_prefix(part: bytes) -> bytes:
    """That of the root, which stands for most names."""
    root = next(_TAG.finditer(part))
    prefix = root[2].rpartition(b":")[0]
    space = re.search(rb'xmlns:%s="([^"]*)"' % prefix, root[0])
    if not prefix or not space:
        return part
    plain = re.sub(rb"(</?)%s:" % prefix, rb"\1", part)
    return plain.replace(b" xmlns:", b' xmlns="%s" xmlns:' % space[1], 1)


def _encoded(name: str, codec: str) -> Callable[[bytes], bytes]:
    def change(part: bytes) -> bytes:
        text = _DECLARATION.sub(b"", part).decode()
        told = f'<?xml version="1.0" encoding="{name}"?>'
        return (told + text).encode(codec, "xmlcharrefreplace")

    return change


def _strict(part: bytes) -> bytes:
    base = rb"http://schemas\.openxmlformats\.org/(wordprocessingml|officeDocument)/2006/"
    return re.sub(base, rb"http://purl.oclc.org/ooxml/\1/", part)


def _same(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return pairs


SPELLINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "single marks": _laid_out(quote=b"'"),
    "spaces around signs": _laid_out(around=b" = "),
    "lines around signs": _laid_out(around=b"\n=\n", gap=b"\n"),
    "spaces at ends": _laid_out(end=b" "),
    "lines between": _laid_out(gap=b"\n"),
    "another order": _rewritten(lambda pairs: pairs[::-1]),
    "by number": _rewritten(_by_number),
    "ended apart": _rewritten(_same, is_closed=True),
    "comments": _rewritten(_same, behind=b"<!-- > -->"),
    "instructions": _rewritten(_same, behind=b"<?x > ?>"),
    "sections of data": lambda part: re.sub(rb">([^<>&]*\w[^<>&]*)<", rb"><![CDATA[\1]]><", part),
    "other prefixes": _prefixed(b"q"),
    "prefixes with signs": _prefixed(b"q-"),
    "no prefix": _without_prefix,
    "UTF-16": _encoded("UTF-16", "utf-16"),
    "UTF-16 without a mark": _encoded("UTF-16", "utf-16-le"),
    "Latin-1": _encoded("ISO-8859-1", "latin-1"),
    "Cyrillic": _encoded("windows-1251", "cp1251"),
    "a mark of UTF-8": lambda part: b"\xef\xbb\xbf" + part,
    "strict": _strict,
}


def _respelled(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    if not zipfile.is_zipfile(BytesIO(data)):
        return change(data)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return office.packed(
        {
            name: change(part) if name.endswith((".xml", ".rels")) else part
            for name, part in parts.items()
        }
    )


def _report(document) -> None:
    document.core_properties.title = "Harvest of the year"
    document.add_heading("Crème & <brûlée>")
    document.add_paragraph("quince", style="List Bullet")
    document.add_paragraph("pear — 3 €", style="List Number")
    document.add_table(1, 2).cell(0, 1).text = "plum"
    paragraph = document.add_paragraph("Apples ")
    paragraph.add_run("red").bold = True
    document.add_comment(paragraph.runs, text="Which kind?", author="Anna")
    paragraph.add_run(SECRET).font.hidden = True
    style = document.styles.add_style("Ghost", WD_STYLE_TYPE.PARAGRAPH)
    style.font.hidden = True
    document.add_paragraph(SECRET, style="Ghost")


_STYLES = (
    '<style:style style:name="T1" style:family="text"><style:text-properties text:display="none"/>'
    "</style:style>"
)
_BODY = (
    '<text:h text:outline-level="1">Crème</text:h><text:p>a<text:span text:style-name="T1">'
    f"{SECRET}</text:span><text:s/>b<text:note text:note-class='footnote'><text:note-citation>1"
    "</text:note-citation><text:note-body><text:p>Café</text:p></text:note-body></text:note></text:p>"
    "<text:list><text:list-item><text:p>pear</text:p></text:list-item></text:list>"
)
_ROWS = {"Stock": [["Fruit", "Count"], ["Crème", 3], ["pear & <plum>", 4]]}
_EXCEL_2003 = (
    '<?xml version="1.0"?><ss:Workbook xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">'
    '<ss:Worksheet ss:Name="Stock"><ss:Table><ss:Row><ss:Cell><ss:Data ss:Type="String">Crème'
    '</ss:Data></ss:Cell><ss:Cell ss:Index="3"><ss:Data ss:Type="Number">4</ss:Data></ss:Cell>'
    "</ss:Row></ss:Table></ss:Worksheet></ss:Workbook>"
)
FILES: Mapping[str, bytes] = {
    "a.docx": samples.word(_report),
    "flat.docx": office.in_one_xml(samples.word(_report)),
    "a.doc": WORD_2003.encode(),
    "a.odt": office.odf("text", _BODY, _STYLES),
    "a.fodt": flat(office.odf("text", _BODY, _STYLES)),
    "a.ods": office.ods(_ROWS),
    "a.odp": office.odp([("Crème", ["one", "two"])], notes="mine"),
    "a.pptx": office.pptx([("Crème", ["one", "two"])]),
    "a.xlsx": office.xlsx(_ROWS),
    "a.xls": _EXCEL_2003.encode(),
}


_ONE_FILE = frozenset({"flat.docx", "a.doc", "a.fodt", "a.xls"})


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        (name, spelling)
        for name in FILES
        for spelling in SPELLINGS
        # By its first bytes such a file is known by these alone.
        if not (name in _ONE_FILE and spelling in ("UTF-16 without a mark", "by number"))
    ],
)
def test_what_a_file_says_does_not_depend_on_how_its_xml_is_written(read, name, spelling):
    usual = read(FILES[name], name)

    other = read(_respelled(FILES[name], SPELLINGS[spelling]), name)

    assert SECRET not in usual.text
    assert other.text == usual.text
    assert other.title == usual.title
    assert list(other.warnings) == list(usual.warnings)


@pytest.mark.parametrize(
    ("many", "spaces"), [(50_000, 1), (1, 50_000), (1_500, 1)], ids=["deep", "wide", "both"]
)
def test_namespaces_within_namespaces_take_no_room(read, many, spaces):
    told = "".join(f" xmlns:q{at}='u'" for at in range(spaces))
    nested = "".join(f"<a{at}{told.replace('q', f'q{at}x')}>" for at in range(many))
    body = nested + "".join(f"</a{at}>" for at in reversed(range(many)))

    with pytest.raises(Permanent, match="too many namespaces"):
        read(office.docx(f"<w:p><w:r><w:t>Seen</w:t></w:r></w:p>{body}"), "a.docx")


_WORD_SPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


@pytest.mark.parametrize(
    "body",
    [
        "".join(f'<w:p xmlns:q{at}="{_WORD_SPACE}"/>' for at in range(9_000)),
        f'<w:p x="{"xmlns:" * 120_000}"/>',
    ],
    ids=["told and not used", "named and not told"],
)
def test_names_of_namespaces_cost_as_much_as_there_are(strict, body):
    file = office.docx(f"<w:p><w:r><w:t>Seen</w:t></w:r></w:p>{body}")

    assert strict.extract(Blob(file, name="a.docx")).text == "Seen"


def test_styles_that_are_based_on_many_cost_as_much_as_there_are(strict):
    chain = "".join(
        f'<style:style style:name="T{at}" style:family="text" style:parent-style-name="T{at + 1}"/>'
        for at in range(10, 12_000)
    )
    body = f'<text:p>Seen<text:span text:style-name="T1">{SECRET}</text:span></text:p>'
    file = office.odf("text", body, _STYLES + chain)

    assert strict.extract(Blob(file, name="a.odt")).text == "Seen"
