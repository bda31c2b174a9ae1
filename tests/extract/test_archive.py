"""ZIP: which files are handed over, by which path, and why others are not."""

import io
import struct
import tempfile
import zipfile
import zlib

import pytest

from recollect.errors import Permanent
from recollect.extract import Sandbox, detect
from recollect.model import Blob, Extracted
from tests.extract import archives, office, samples
from tests.extract.archives import packed
from tests.extract.conftest import Unpack

MB = 1_000_000


def kinds(found: Extracted) -> dict[str, str]:
    return {member.path: member.kind for member in found.members or ()}


def test_each_file_is_handed_over_with_its_path_and_kind(unpack: Unpack):
    report = samples.word(lambda document: document.add_paragraph("quince"))
    files = {"notes/a.txt": b"pears", "b.pdf": samples.pdf("apple"), "report.docx": report}

    found, members = unpack(packed(files))

    assert members == files
    assert kinds(found) == {"notes/a.txt": "text", "b.pdf": "pdf", "report.docx": "text"}
    assert (found.title, found.warnings) == ("a.zip", ())
    size = sum(map(len, files.values()))
    assert found.text.startswith(f"Archive of 3 files, {size:,} bytes.\n\n- notes/a.txt (5 bytes)")


def test_reading_it_gives_the_list_alone(read):
    assert (
        read(packed({"a.txt": "x"}), "a.zip").text
        == "Archive of 1 file, 1 byte.\n\n- a.txt (1 byte)"
    )


@pytest.mark.parametrize("stored", [True, False])
def test_an_archive_of_documents_is_none_of_them(unpack: Unpack, stored: bool):
    files = {
        "a.docx": samples.word(lambda document: document.add_paragraph("quince")),
        "b.odt": office.odt("x"),
        "c.epub": office.epub({"a.xhtml": "x"}),
    }
    data = packed(files, stored=stored)

    assert _extractor(data) == "zip"
    assert unpack(data)[1] == files


@pytest.mark.parametrize("folder", ["word", "xl", "ppt", "words"])
def test_a_folder_may_be_called_as_in_an_office_file(folder: str):
    assert _extractor(packed({f"{folder}/a.txt": "x", f"{folder}/b.docx": "y"})) == "zip"


@pytest.mark.parametrize(
    "data",
    [
        samples.word(lambda document: document.add_paragraph("x")),
        office.xlsx({"S": [["a"]]}),
        office.pptx([("x", [])]),
        office.odt("x"),
        office.ods({"S": [["a"]]}),
        office.epub({"a.xhtml": "x"}),
    ],
)
def test_office_files_and_books_are_no_archives_whatever_their_name(data: bytes):
    assert _extractor(data) not in (None, "zip")


PACKAGES = {
    "docx": samples.word(lambda document: document.add_paragraph("quince")),
    "xlsx": office.xlsx({"S": [["quince"]]}),
    "pptx": office.pptx([("quince", [])]),
    "odt": office.odt("quince"),
    "ods": office.ods({"S": [["quince"]]}),
    "odp": office.odp([("quince", [])]),
    "epub": office.epub({"a.xhtml": "quince"}),
}


@pytest.mark.parametrize("kind", PACKAGES)
@pytest.mark.parametrize("first", ["Thumbnails/a.png", "word/media/a.png"])
def test_a_document_packed_in_another_order_is_no_archive(
    read, unpack: Unpack, kind: str, first: str
):
    with zipfile.ZipFile(io.BytesIO(PACKAGES[kind])) as archive:
        parts = {name: archive.read(name) for name in reversed(archive.namelist())}
    data = packed({first: bytes(9_000), **parts}, stored=True)

    assert "quince" in read(data, f"a.{kind}").text
    found, members = unpack(data, f"a.{kind}")
    assert ("quince" in found.text, members) == (True, {})
    listed, members = unpack(packed({"b/c.bin": data, f"d.{kind}": data, "e.txt": "x"}))
    assert set(members) == {"b/c.bin", f"d.{kind}", "e.txt"}
    assert "quince" not in listed.text


def test_an_archive_that_says_without_reason_to_be_a_document_is_one(unpack: Unpack):
    for mime in ("application/epub+zip", "application/vnd.oasis.opendocument.text"):
        assert set(unpack(packed({"a.txt": "x", "mimetype": mime}))[1]) == {"a.txt", "mimetype"}


def test_a_program_in_a_zip_is_none_either():
    assert (
        _extractor(packed({"META-INF/MANIFEST.MF": "x", "A.class": b"\xca\xfe"}), "a.jar") is None
    )


def _extractor(data: bytes, name: str = "a.zip") -> str | None:
    found = detect(data[:8192], name=name, mime="application/octet-stream")
    return found and found.extractor


# --- archives within ----------------------------------------------------------------------------


def test_files_of_archives_within_stand_in_one_list(unpack: Unpack):
    inner = packed({"a.txt": "inner", "deep.zip": packed({"b.txt": "deeper"})})

    _, members = unpack(packed({"a.txt": "outer", "inner.zip": inner}))

    assert members == {
        "a.txt": b"outer",
        "inner.zip/a.txt": b"inner",
        "inner.zip/deep.zip/b.txt": b"deeper",
    }


def test_three_archives_deep_is_read_and_four_is_not(unpack: Unpack):
    leaf = packed({"leaf.txt": "words"})

    assert list(unpack(archives.wrapped(leaf, 3))[1]) == ["1.zip/2.zip/3.zip/leaf.txt"]
    found, members = unpack(archives.wrapped(leaf, 4))
    assert members == {}
    assert "- 1.zip/2.zip/3.zip/4.zip: not read, it is nested in more than 3 archives" in found.text


def test_a_document_in_another_order_is_no_archive_within_three_either(unpack: Unpack):
    with zipfile.ZipFile(io.BytesIO(PACKAGES["odt"])) as archive:
        parts = {name: archive.read(name) for name in reversed(archive.namelist())}
    document = packed({"Thumbnails/a.png": bytes(9_000), **parts}, stored=True)

    _, members = unpack(archives.wrapped(packed({"a.odt": document}), 3))

    assert list(members) == ["1.zip/2.zip/3.zip/a.odt"]


def test_a_damaged_archive_within_costs_only_itself(unpack: Unpack):
    inner = packed({"a.txt": "words"})[:-10]

    found, members = unpack(packed({"bad.zip": inner, "b.txt": "good"}))

    assert members == {"b.txt": b"good"}
    assert "- bad.zip: not read, it is damaged or cut off" in found.text
    assert found.warnings == ("1 file in it was not read, because it is damaged or cut off.",)


def test_a_file_cannot_take_the_place_of_one_in_an_archive_within(unpack: Unpack):
    inner = packed({"a.txt": "inner"})

    found, members = unpack(packed({"x.zip/a.txt": "outer", "x.zip": inner}))

    assert members == {"x.zip/a.txt": b"outer"}
    assert "- x.zip/a.txt: not read, another file has the same path" in found.text


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("größe.txt".encode("cp437"), "größe.txt"),
        ("für später.txt".encode("cp437"), "für später.txt"),
        ("pâté.txt".encode("cp437"), "pâté.txt"),
        ("größe.txt".encode(), "größe.txt"),
        ("日本語の表.txt".encode("cp932"), "日本語の表.txt"),
        ("議事録/ソース一覧.txt".encode("cp932"), "議事録/ソース一覧.txt"),
        ("项目计划.txt".encode("gbk"), "项目计划.txt"),
        ("Отчёт за май.txt".encode("cp866"), "Отчёт за май.txt"),
        ("ПРИКАЗ.txt".encode("cp866"), "ПРИКАЗ.txt"),
    ],
)
def test_names_without_an_encoding_are_read_as_what_they_are(
    unpack: Unpack, raw: bytes, shown: str
):
    assert list(unpack(archives.named(raw))[1]) == [shown]


@pytest.mark.parametrize("sum_of", [b"Gr\x81\xe1e.txt", b"another name"])
def test_a_name_beside_the_name_counts_while_it_is_of_that(unpack: Unpack, sum_of: bytes):
    told = b"\x01" + zlib.crc32(sum_of).to_bytes(4, "little") + "Привет 🌱.txt".encode()
    entry = zipfile.ZipInfo("x" * 9)
    entry.extra = b"\x99\x99\x02\x00ab" + struct.pack("<HH", 0x7075, len(told)) + told
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(entry, b"words")
    data = out.getvalue().replace(b"x" * 9, b"Gr\x81\xe1e.txt")

    shown = "Привет 🌱.txt" if sum_of.startswith(b"Gr") else "Grüße.txt"
    assert list(unpack(data)[1]) == [shown]


def test_declared_utf8_is_utf8(unpack: Unpack):
    assert list(unpack(packed({"dossier/été 🌱.txt": "x"}))[1]) == ["dossier/été 🌱.txt"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("./a//b.txt", "a/b.txt"),
        ("a\\b.txt", "a/b.txt"),
        ("a\u202egpj.txt", "agpj.txt"),
        ("a\n# b.txt", "a # b.txt"),
        ("u\u0308.txt", "ü.txt"),
    ],
)
def test_a_path_is_kept_as_it_can_be_shown(unpack: Unpack, name: str, shown: str):
    assert list(unpack(packed({name: "x"}))[1]) == [shown]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../etc/passwd.txt", "its path leads out of the archive"),
        ("a/../../b.txt", "its path leads out of the archive"),
        ("..\\b.txt", "its path leads out of the archive"),
        ("/etc/passwd.txt", "its path leads out of the archive"),
        ("C:\\a.txt", "its path leads out of the archive"),
        ("c:a.txt", "its path leads out of the archive"),
        ("a/.../b.txt", "its path cannot be shown"),
        ("a" * 200 + "/" + "b/" * 500 + "c.txt", "its path has more than 1,000 characters"),
    ],
)
def test_a_path_with_a_trick_is_left_out(unpack: Unpack, name: str, reason: str):
    found, members = unpack(packed({name: "x", "good.txt": "y"}))

    assert members == {"good.txt": b"y"}
    assert f": not read, {reason}\n" in found.text


def test_a_name_with_a_nul_is_left_out(unpack: Unpack):
    found, members = unpack(archives.named(b"a.txt\0.exe"))

    assert members == {}
    assert "its path has a NUL character" in found.text


def test_of_files_with_the_same_path_the_last_one_counts(unpack: Unpack):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "first")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.txt", "second")

    found, members = unpack(out.getvalue())

    assert members == {"a.txt": b"second"}
    assert "- a.txt: not read, a later file has the same path" in found.text


# --- what is left out ---------------------------------------------------------------------------


def test_what_systems_leave_and_folders_are_passed_over_in_silence(unpack: Unpack):
    names = ["__MACOSX/._a.txt", "x/.DS_Store", "Thumbs.db", "folder/", "a.txt"]

    found, members = unpack(packed(dict.fromkeys(names, "x")))

    assert list(members) == ["a.txt"]
    assert found.warnings == ()


def test_a_file_without_a_name_harms_nothing(unpack: Unpack):
    """A name ends at its first zero."""
    found, members = unpack(archives.named(b"\0a.txt"))

    assert not members
    assert "a.txt: not read" in found.text


def test_kinds_that_nobody_reads_are_named(unpack: Unpack):
    found, members = unpack(packed({"a.exe": b"MZ\x90\0\x03", "b.txt": "x", "c.txt": ""}))

    assert list(members) == ["b.txt"]
    assert "- a.exe: not read, its kind is not supported" in found.text
    assert "- c.txt: not read, it is empty" in found.text


def test_links_are_left_out(unpack: Unpack):
    link = zipfile.ZipInfo("link.txt")
    link.create_system = 3
    link.external_attr = 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(link, "/etc/passwd")

    found, members = unpack(out.getvalue())

    assert members == {}
    assert "- link.txt: not read, it is a link" in found.text


def test_files_with_a_password_are_named_and_the_others_read(unpack: Unpack):
    inner = archives.locked(packed({"secret.txt": "x"}))

    found, members = unpack(packed({"inner.zip": inner, "a.txt": "y"}))

    assert members == {"a.txt": b"y"}
    assert "- inner.zip/secret.txt: not read, it is protected by a password" in found.text


def test_an_archive_that_is_all_locked_fails(unpack: Unpack):
    with pytest.raises(Permanent, match="all files in it are protected") as caught:
        unpack(archives.locked(packed({"a.txt": "x", "b.txt": "y"})))

    assert caught.value.code == "encrypted_file"


def test_an_empty_archive_says_so(unpack: Unpack):
    found, members = unpack(packed({}))

    assert (found.text, members) == ("Archive of 0 files, 0 bytes.", {})


# --- damage and bombs ---------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_cut_off_archive_fails(unpack: Unpack, cut: int):
    data = packed({"a.txt": "words", "b.txt": "more"})

    with pytest.raises(Permanent, match=r"cannot be read: it is damaged or cut off") as caught:
        unpack(data[:-cut])

    assert caught.value.code == "unreadable_content"


def test_entries_that_overlap_are_refused(unpack: Unpack):
    with pytest.raises(Permanent, match="its entries overlap") as caught:
        unpack(archives.overlapping())

    assert caught.value.code == "unreadable_content"


def test_a_damaged_file_costs_only_itself(unpack: Unpack):
    data = packed({"a.txt": "words of a", "b.txt": "words of b"}, stored=True)

    found, members = unpack(data.replace(b"words of a", b"w0rds of a"))

    assert members == {"b.txt": b"words of b"}
    assert "- a.txt: not read, it is damaged" in found.text


def test_a_file_that_lies_about_its_size_is_damaged(unpack: Unpack):
    data = bytearray(packed({"a.txt": "w" * 5000}))
    struct.pack_into("<I", data, data.find(b"PK\x01\x02") + 24, 20)

    found, members = unpack(bytes(data))

    assert members == {}
    assert "- a.txt: not read, it is damaged" in found.text


def test_a_file_that_shrank_too_much_is_left_out(unpack: Unpack):
    found, members = unpack(packed({"bomb.txt": b"a" * (11 * MB), "b.txt": "good"}))

    assert members == {"b.txt": b"good"}
    assert "- bomb.txt: not read, it unpacks to more than 200 times its size" in found.text


def test_a_file_of_more_than_50_mb_is_left_out(unpack: Unpack):
    row = bytes(range(32, 127)) * 3
    found, members = unpack(packed({"big.txt": row * (52_428_800 // len(row) + 1)}))

    assert members == {}
    assert "- big.txt: not read, it has 52,428,885 bytes; 52,428,800 are accepted" in found.text


def test_no_more_than_200_mb_are_unpacked(unpack: Unpack):
    lines = b"".join(b"%09d\n" % n for n in range(3_000_000))
    inner = packed({"a.txt": lines[: 30 * MB]})
    files = {f"{n}.zip": inner for n in range(8)}

    found, members = unpack(packed(files, stored=True))

    assert 100 * MB < sum(map(len, members.values())) <= 200 * MB
    assert "5.zip/a.txt: not read, the archive unpacks to more than 200,000,000 bytes" in found.text


def test_no_more_than_a_thousand_files_are_read(unpack: Unpack):
    found, members = unpack(packed({f"{n:04}.txt": f"{n}" for n in range(1005)}))

    assert len(members) == 1000
    assert "- 1004.txt: not read, only 1,000 files of an archive are read" in found.text
    assert found.warnings == (
        "5 files in it were not read, each because only 1,000 files of an archive are read.",
    )


def test_the_most_common_reasons_are_counted(unpack: Unpack):
    files = {"a.txt": "", "b.txt": "", "c.bin": b"\0\1\2", "d.zip": b"PK\3\4", "e.txt": "words"}
    long = f"{'d/' * 600}f.txt"

    found, members = unpack(packed({**files, long: "words"}))

    assert list(members) == ["e.txt"]
    [warning] = found.warnings
    assert warning.startswith("5 files in it were not read: it is empty (2), ")
    assert warning.endswith("; its text says why.")


def test_of_very_many_entries_the_first_are_listed(unpack: Unpack):
    found, _ = unpack(packed({f"{n}.txt": "x" for n in range(10_100)}))

    assert found.text.count("\n- ") == 10_000
    assert "Only the first 10,000 entries were looked at." in found.warnings


def test_an_archive_of_too_many_entries_is_not_opened(unpack: Unpack):
    data = packed({"a.txt": "x"})
    with pytest.raises(Permanent, match="more than 100,000 entries") as caught:
        unpack(data + b"PK\x01\x02" * 100_001)

    assert caught.value.code == "too_large"


def test_zip64_and_data_descriptors_are_read(unpack: Unpack):
    out = _Unseekable()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("wide.txt", "w", force_zip64=True) as part:
            part.write(b"wide words")
        archive.writestr("b.txt", "more")

    assert unpack(out.getvalue())[1] == {"wide.txt": b"wide words", "b.txt": b"more"}


class _Unseekable(io.BytesIO):
    """Makes the writer put sizes behind the bytes."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_of_packing_are_read(unpack: Unpack, method: int):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a.txt", "words")

    assert unpack(out.getvalue())[1] == {"a.txt": b"words"}


def test_an_unknown_method_is_named(unpack: Unpack):
    data = bytearray(packed({"a.txt": "words"}, stored=True))
    for signature, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        struct.pack_into("<H", data, data.find(signature) + at, 93)

    found, members = unpack(bytes(data))

    assert members == {}
    assert "- a.txt: not read, it is packed in a way that is not supported" in found.text


# --- a child that was taken over ----------------------------------------------------------------


@pytest.mark.parametrize("deed", ["twice", "many", "nul", "binary", "big"])
def test_files_that_no_honest_child_sends_end_it(sandbox: Sandbox, deed: str):
    with tempfile.TemporaryFile() as spool, pytest.raises(Permanent, match="crashed") as caught:
        sandbox.unpack(Blob(deed.encode(), name="x.rogue"), spool)

    assert caught.value.code == "extraction_crashed"
