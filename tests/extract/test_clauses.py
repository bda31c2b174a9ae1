"""What holds over all kinds: each is proven by a sample, and no file is two things at once."""

from pathlib import PurePath

import pytest

from recollect.errors import Permanent
from recollect.extract import Sandbox, detect
from recollect.extract.kinds import KINDS
from recollect.extract.web._markup import refuse_hostile
from recollect.model import Blob
from tests.extract import pictures, recall, samples, test_golden
from tests.extract.archives import packed

SCRIPT = b"=1;/*<script>alert('words')</script>*/"


def test_each_kind_has_a_sample():
    names = [*(name for name, _, _ in recall.MAKERS.values()), *test_golden.MAKERS]
    endings = {PurePath(name).suffix for name in names}

    assert [kind.name for kind in KINDS if endings.isdisjoint(kind.types)] == []


@pytest.mark.parametrize(
    ("data", "name", "extractor"),
    [
        (samples.pdf("words") + packed({"a.txt": "other words"}), "a.zip", "pdf"),
        (packed({"a.pdf": samples.pdf("words")}, stored=True), "a.pdf", "zip"),
        (packed({"a.html": "<!doctype html><p>words"}, stored=True), "a.html", "zip"),
        (b"GIF89a" + SCRIPT, "a.html", "image"),
        (b"<!doctype html><!-- %PDF-1.7 --><p>words", "a.pdf", "html"),
    ],
)
def test_a_file_that_could_be_two_things_is_what_it_begins_as(data, name, extractor):
    found = detect(data[:8192], name=name, mime=None)

    assert found is not None
    assert found.extractor == extractor


def test_what_hangs_on_a_document_is_not_read(sandbox: Sandbox):
    tail = packed({"a.txt": "smuggled"}, stored=True)
    pdf = sandbox.extract(Blob(samples.pdf("words") + tail, name="a.pdf"))
    picture = Blob(pictures.encoded(pictures.page("words", "more words")) + tail, name="a.png")

    assert (pdf.text, pdf.members) == ("words", None)
    assert sandbox.detect(picture).unpacks is False


def test_what_looks_like_an_end_makes_no_page_shallow():
    with pytest.raises(Permanent, match="nested too deeply"):
        refuse_hostile("<div>" * 20_000 + "</ " * 20_000)


@pytest.mark.parametrize("start", ["<p ", '<p title="a > b" ', "<p title = 'a > b' "])
def test_a_tag_of_too_many_attributes_is_refused_whatever_its_values_hold(start):
    page = start + " ".join(f"a{n}" for n in range(6_000)) + ">words</p>"

    with pytest.raises(Permanent, match="more than 5,000 attributes"):
        refuse_hostile(page)


def test_a_library_that_fails_on_a_sample_is_no_measure():
    from bench import extract as bench  # noqa: PLC0415 - loads readers that only this needs

    with pytest.raises(RuntimeError, match=r"finds 0\.50 of the words"):
        bench._expect(bench.Sample("a.txt", b"", "one two"), "one", "it")
