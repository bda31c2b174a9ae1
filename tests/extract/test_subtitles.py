"""Captions in files of their own, and how captions become paragraphs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.extract import weave
from recollect.extract._text import clean
from recollect.extract.text import _captions
from recollect.inference.speech import Segment
from recollect.model import Place

SRT = """1
00:00:01,000 --> 00:00:03,500
<i>The harbour</i> was rebuilt
after the flood.

2
00:00:04,000 --> 00:00:06,000
{\\an8}Trade came back &amp; ships with it.

3
01:02:03,250 --> 01:02:05,000
Years later.
"""
VTT = """WEBVTT - Council

STYLE
::cue { color: red }

NOTE nobody sees this --> nor this

first
00:01.000 --> 00:02.000 align:start position:0%
<v.loud Ann>Is the meeting <00:01.500><c>open</c>?

00:02.000 --> 00:03.000
<v Bob>It is.

00:03.100 --> 00:04.000
<v Bob>Sit down.
"""


def _times(extracted):
    return [(place.at["time"], extracted.text[place.start :][:9]) for place in extracted.places]


def test_srt_becomes_paragraphs_whose_captions_have_times(read):
    found = read(SRT, "film.srt")

    assert found.kind == "text"
    assert found.text == (
        "The harbour was rebuilt after the flood. Trade came back & ships with it.\n\nYears later."
    )
    assert _times(found) == [(1.0, "The harbo"), (4.0, "Trade cam"), (3723.25, "Years lat")]


def test_webvtt_names_who_speaks(read):
    found = read(VTT)

    assert found.text == "Ann: Is the meeting open?\n\nBob: It is. Sit down."
    assert _times(found) == [(1.0, "Ann: Is t"), (2.0, "Bob: It i"), (3.1, "Sit down.")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends_do_not_matter(read, encoding, end):
    text = SRT.replace("harbour", "Häfen größer").replace("\n", end)

    assert "The Häfen größer was rebuilt" in read(text.encode(encoding), "film.srt").text


def test_captions_need_no_blank_lines_between_them():
    text = SRT.replace("\n\n", "\n")

    assert [segment.start for segment in _captions.parse(text)] == [1.0, 4.0, 3723.25]
    assert [segment.text[-1] for segment in _captions.parse(text)] == [".", ".", "."]


def test_a_blank_line_within_a_caption_does_not_end_it():
    text = (
        "1\n00:00:01,000 --> 00:00:02,000\nwho is there?\n\n- it is me\n\n42\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\ncome in\n"
    )
    said = [segment.text for segment in _captions.parse(text)]

    assert said == ["who is there? - it is me 42", "come in"]


def test_lines_that_roll_upwards_are_kept_once():
    rolling = """WEBVTT

00:00.000 --> 00:02.000
 
so<00:00.500><c> today</c>

00:02.000 --> 00:02.010
so today
 

00:02.010 --> 00:04.000
so today
we<00:02.500><c> begin</c>

00:04.000 --> 00:04.010
we begin

00:04.010 --> 00:06.000
we begin
with boats
"""  # noqa: W293 - as they come

    assert [s.text for s in _captions.parse(rolling)] == ["so today", "we begin", "with boats"]


def test_a_line_said_again_later_is_kept():
    cues = [(0.0, 1.0, "No."), (3.0, 4.0, "No.")]

    assert [segment.text for segment in _captions.read_cues(cues)] == ["No.", "No."]


@pytest.mark.parametrize("text", ["WEBVTT\n", "just words\n", "1\n00:00:01 -> 00:00:02\nx\n"])
def test_a_file_without_captions_is_text(read, text):
    found = read(text, "film.vtt")

    assert found.text == text.strip()
    assert found.warnings == ("It holds no captions; it was read as plain text.",)


def test_long_speech_breaks_where_a_sentence_ends():
    sentences = [Segment(i, i + 1.0, f"Sentence {i} goes on for quite a while.") for i in range(60)]

    text, _ = weave("", (), sentences)

    paragraphs = text.split("\n\n")
    assert all(_captions.FULL_PARAGRAPH <= len(p) < 480 for p in paragraphs[:-1])
    assert " ".join(paragraphs) == " ".join(segment.text for segment in sentences)


def test_speech_goes_under_the_chapter_in_which_it_begins():
    head = "Title: X\n\n## One\n\n## Two"
    chapters = [Place(10, {"time": 5.0}), Place(18, {"time": 20.0})]
    said = [Segment(21, 22, "after"), Segment(1, 2, "before"), Segment(5, 6, "first")]

    text, places = weave(head, chapters, said)

    assert text == "Title: X\n\nbefore\n\n## One\n\nfirst\n\n## Two\n\nafter"
    assert [(p.at["time"], text[p.start :].split("\n")[0]) for p in places] == [
        (1.0, "before"), (5.0, "## One"), (5.0, "first"), (20.0, "## Two"), (21.0, "after"),
    ]  # fmt: skip


_WORDS = st.text(st.characters(exclude_characters="#"))
_SEGMENTS = st.lists(
    st.builds(
        lambda start, length, text, speaker: Segment(start, start + length, text, speaker),
        st.floats(0, 20_000),
        st.floats(0, 100),
        _WORDS,
        st.sampled_from([None, "Ann", "Bob"]),
    ),
    max_size=30,
)


@given(segments=_SEGMENTS, chapters=st.lists(st.floats(0, 20_000), max_size=4))
def test_woven_text_is_clean_and_every_segment_has_its_place(segments, chapters):
    head, places = "Duration: 1:00", []
    for time in sorted(chapters):
        head += "\n\n"
        places.append(Place(len(head), {"time": round(time, 2)}))
        head += "## Chapter"

    text, woven = weave(head, places, segments)

    said = sorted((s for s in segments if clean(s.text).split()), key=lambda s: s.start)
    spoken = [p for p in woven if not text.startswith("## Chapter", p.start)]
    assert clean(text) == text
    assert [p.start for p in woven] == sorted({p.start for p in woven})
    assert len(woven) - len(spoken) == len(places)
    for segment, place in zip(said, spoken, strict=True):
        shown = text[place.start :].removeprefix(f"{segment.speaker}: ")
        assert shown.startswith(" ".join(clean(segment.text).split()))
        assert place.at["time"] == round(segment.start, 2)


def test_a_song_is_no_heading():
    text, _ = weave("", (), [Segment(0, 1, "# Row, row, row your boat #")])

    assert text == "Row, row, row your boat #"


@given(st.text(alphabet="0123456789:.,-> \n<>{}\\abv&;"))
def test_no_text_breaks_the_parser(text):
    for segment in _captions.parse(text):
        assert 0 <= segment.start <= segment.end
        assert segment.text == " ".join(segment.text.split())


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7), st.integers(1, 10**5), st.from_regex(r"[a-z]+", fullmatch=True)
        ),
        max_size=20,
    )
)
def test_what_is_written_as_srt_is_read_back(cues):
    def clock(ms):
        return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02},{ms % 1000:03}"

    # A second apart, so that none seems to roll.
    cues = [
        (start + 200_000 * n * 100, length, text) for n, (start, length, text) in enumerate(cues)
    ]
    text = "\n".join(
        f"{n}\n{clock(a)} --> {clock(a + b)}\n{t}\n" for n, (a, b, t) in enumerate(cues)
    )

    assert [(round(s.start * 1000), s.text) for s in _captions.parse(text)] == [
        (start, said) for start, _, said in sorted(cues)
    ]


def test_two_who_speak_at_once_each_say_their_own(read):
    cue = "00:03.000 --> 00:05.000\n<v Ann>- Hello all.\n<v Bob>- {}\n"

    assert read(f"WEBVTT\n\n{cue.format('Hi.')}", "a.vtt").text == (
        "Ann: - Hello all.\n\nBob: - Hi."
    )
    assert read(f"WEBVTT\n\n{cue.format('Hello all.')}", "a.vtt").text == (
        "Ann: - Hello all.\n\nBob: - Hello all."
    )
