"""Sound and video: what is known, captions, sound in stretches; hostile ones."""

import importlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from recollect.errors import Permanent
from recollect.extract import Sandbox, detect
from recollect.extract.media import audio
from recollect.extract.media._speech import WhisperTranscriber, open_engine
from recollect.inference.speech import RATE, LocalEngine
from recollect.model import Blob
from tests.extract import tiny_whisper
from tests.extract.conftest import needs_linux, needs_pocketsphinx
from tests.extract.recordings import CODECS, RATES, Track, recording, tone

NAMES = {
    "mp4": "a.mp4", "ipod": "a.m4a", "mov": "a.mov", "webm": "a.webm", "matroska": "a.mkv",
    "mp3": "a.mp3", "wav": "a.wav", "ogg": "a.ogg", "flac": "a.flac", "avi": "a.avi",
    "adts": "a.aac",
}  # fmt: skip
CAPTIONED = ["mp4", "mov", "matroska", "webm"]
HELLO = Track([(0.5, 1.5, "<i>Hello</i> there."), (4.0, 5.0, "Grüße,\naus Köln")])


def kind_of(data: bytes, name: str | None = None) -> str | None:
    found = detect(data[:8192], name=name, mime="application/octet-stream")
    return found.kind if found else None


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2").astype(float)


def loudness(wave: np.ndarray) -> np.ndarray:
    """Of every 20 ms."""
    return np.square(wave[: len(wave) // 320 * 320]).reshape(-1, 320).mean(axis=1)


# Which kind it is


@pytest.mark.parametrize("container", CODECS)
@pytest.mark.parametrize("name", ["upload", None, "a.txt"])
def test_sound_is_known_by_its_bytes(container: str, name: str | None):
    kind = kind_of(recording(container), name)

    # The index of these comes last, so that the first bytes do not tell; of AVI none tell.
    assert kind == ("video" if container in ("mp4", "mov", "avi") else "audio")


@pytest.mark.parametrize("container", ["mp4", "mov", "webm", "matroska", "avi"])
def test_video_is_known_by_its_bytes(container: str):
    assert kind_of(recording(container, pictures=True)) == "video"


def test_an_index_that_comes_first_tells_sound_from_video():
    options = {"movflags": "empty_moov"}

    assert kind_of(recording("mp4", options=options)) == "audio"
    assert kind_of(recording("mp4", pictures=True, options=options)) == "video"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe" + "Some words in UTF-16, which begins like MP3".encode("utf-16-le"),
        b"\xff\xfb\x90\x00" + b"Latin words with a strange beginning",
        b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00",
        b"\x00\x00\x00\x18ftypavif\x00\x00\x00\x00",
        b"RIFF\x00\x00\x00\x00WEBPVP8 ",
        b"RIFF is a word, too",
        b"\x1a\x45\xdf\xa3 but no such document",
    ],
)
def test_look_alikes_are_no_recordings(data: bytes):
    assert kind_of(data) not in ("audio", "video")


def test_a_tag_may_stand_before_other_kinds_than_mp3(read):
    tag = b"ID3\x04\x00\x00" + bytes([0, 0, 1, 0]) + bytes(128)

    for container in ("mp3", "flac", "adts"):
        found = read(tag + recording(container, codec=CODECS[container]))
        assert "Duration: 0:02" in found.text


# What is known about it


@pytest.mark.parametrize("container", CODECS)
def test_title_and_length_of_every_container_are_known(read, container: str):
    found = read(recording(container, tags={"title": "The Harbour", "artist": "Ann Bo"}))

    assert "Duration: 0:0" in found.text
    if container != "adts":
        assert found.title == "The Harbour"
        assert found.text.startswith("Title: The Harbour\nArtist: Ann Bo\n")
    assert found.unheard
    assert found.warnings == ()


def test_notes_are_kept_with_their_lines(read):
    found = read(recording("mp3", tags={"comment": "first\nsecond", "lyrics": "la la"}))

    assert found.text == "Duration: 0:02\n\nComment:\nfirst\nsecond\n\nLyrics: la la"


def test_chapters_are_headings_with_times(read):
    found = read(recording("mp4", chapters=[(0, "Opening"), (1.5, "The <b>vote</b>"), (60, "")]))

    assert [(p.at, found.text[p.start :].split("\n")[0]) for p in found.places] == [
        ({"time": 0.0}, "## Opening"),
        ({"time": 1.5}, "## The <b>vote</b>"),
        ({"time": 60.0}, "## Chapter 3"),
    ]


def test_a_cover_is_no_video(read):
    plain = recording("mp3", tags={"title": "x"})
    picture = b"\x03image/png\x00\x03\x00" + b"\x89PNG\r\n\x1a\n" + bytes(500)
    size = len(picture)
    frame = b"APIC" + bytes([0, 0, size >> 7, size & 127]) + b"\0\0" + picture
    tag = b"ID3\x04\x00\x00" + bytes([0, 0, len(frame) >> 7, len(frame) & 127]) + frame

    found = read(tag + plain[plain.index(b"\xff\xfb" if b"\xff\xfb" in plain else b"\xff\xf3") :])

    assert found.kind == "audio"
    assert found.unheard


# Captions


@pytest.mark.parametrize("container", CAPTIONED)
def test_captions_inside_are_the_text(read, container: str):
    found = read(recording(container, 6.0, pictures=True, tracks=[HELLO]))

    assert found.kind == "video"
    assert not found.unheard
    assert found.text.endswith("\n\nHello there.\n\nGrüße, aus Köln")
    assert [(p.at["time"], found.text[p.start :][:5]) for p in found.places] == [
        (0.5, "Hello"),
        (4.0, "Grüße"),
    ]


def test_captions_stand_in_their_chapters(read):
    chapters = [(0, "Opening"), (3, "End")]

    found = read(recording("matroska", 6.0, tracks=[HELLO], chapters=chapters))

    assert found.text.endswith("## Opening\n\nHello there.\n\n## End\n\nGrüße, aus Köln")


def test_of_several_caption_tracks_the_default_one_is_read_and_forced_ones_last(read):
    forced = Track([(0.5, 1, "Signs only")], "eng", 0x41)
    other = Track([(0.5, 1, "Autre langue")], "fra", 0)
    shown = Track([(0.5, 1, "As shown")], "deu", 0x01)

    found = read(recording("matroska", tracks=[forced, other, shown]))

    assert found.text.endswith("\n\nAs shown")
    assert found.warnings == ("It has captions in 3 tracks; those of track 4 (deu) were read.",)


def test_a_caption_track_without_captions_leaves_the_sound_to_be_heard(read):
    empty, full = Track([(0.5, 1, "<i></i>")], "eng", 0x01), Track([(0.5, 1, "Words")])

    assert read(recording("matroska", tracks=[empty])).unheard
    assert read(recording("matroska", tracks=[empty, full])).text.endswith("\n\nWords")


def test_silent_pictures_without_captions_are_kept_with_a_warning(read):
    found = read(recording("mp4", None, pictures=True, tags={"title": "Time lapse"}))

    assert found.text == "Title: Time lapse\nDuration: 0:01"
    assert found.warnings == ("It has neither sound nor captions that can be read.",)
    assert not found.unheard


# Its sound


@pytest.mark.parametrize("container", CODECS)
def test_sound_comes_as_sixteen_thousand_samples_a_second(sandbox: Sandbox, container: str):
    heard = sandbox.hear(Blob(recording(container, 3.0)), 0, 60, None)

    wave = samples(heard.pcm)
    spectrum = np.abs(np.fft.rfft(wave[:RATE]))
    assert heard.end is None
    assert len(wave) / RATE == pytest.approx(3, abs=0.15)
    assert int(np.argmax(spectrum)) == pytest.approx(440, abs=1)


@pytest.mark.parametrize("container", CODECS)
def test_stretches_follow_each_other_without_gap_or_overlap(sandbox: Sandbox, container: str):
    rate = RATES.get(CODECS[container], RATE)
    pauses = [(second + 0.1 * second / 4, second + 0.5) for second in range(12)]
    blob = Blob(recording(container, tone(12, rate, silent=pauses)))
    whole = samples(sandbox.hear(blob, 0, 60, None).pcm)
    parts, start = [], 0.0
    while True:
        heard = sandbox.hear(blob, start, 5, None)
        assert heard.start == pytest.approx(start, abs=0.001)
        parts.append(samples(heard.pcm))
        if heard.end is None:
            break
        assert 3 < heard.end - heard.start <= 5
        start = heard.end

    joined = np.concatenate(parts)
    assert len(parts) == 3
    assert len(joined) == pytest.approx(len(whole), abs=40)
    # Codecs begin again at each stretch, and some clocks tick in milliseconds: alike, not equal.
    loud, truly_loud = (loudness(wave) for wave in (joined, whole))
    length = min(len(loud), len(truly_loud))
    assert np.corrcoef(loud[:length], truly_loud[:length])[0, 1] > 0.98


def test_a_stretch_ends_where_it_is_quiet(sandbox: Sandbox):
    wave = tone(20, RATE, silent=[(8.4, 9.0)])

    heard = sandbox.hear(Blob(recording("wav", wave)), 0, 10, None)

    assert heard.end is not None
    assert 8.4 < heard.end < 9.0


def test_a_stretch_after_the_end_is_empty_and_the_last(sandbox: Sandbox):
    heard = sandbox.hear(Blob(recording("mp3", 2.0)), 100, 60, None)

    assert (heard.pcm, heard.end) == (b"", None)


@pytest.mark.parametrize("rate", [8_000, 22_050, 96_000])
def test_other_rates_and_channels_become_one_of_sixteen_thousand(sandbox: Sandbox, rate: int):
    out = (
        wav_header(rate, 2, rate * 8)
        + np.repeat((tone(2, rate) * 32_767).astype("<i2"), 2).tobytes()
    )

    wave = samples(sandbox.hear(Blob(out), 0, 60, None).pcm)

    assert len(wave) == pytest.approx(2 * RATE, abs=50)
    assert int(np.argmax(np.abs(np.fft.rfft(wave[:RATE])))) == pytest.approx(440, abs=1)


def test_text_is_not_heard(sandbox: Sandbox):
    with pytest.raises(Permanent) as caught:
        sandbox.hear(Blob(b"just words"), 0, 60, None)

    assert caught.value.code == "unsupported_kind"


# Hostile ones


def test_without_the_library_recordings_are_refused_and_the_mend_is_named(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.delitem(sys.modules, "recollect.extract.media._media", raising=False)
    monkeypatch.delattr("recollect.extract.media._media", raising=False)

    with pytest.raises(Permanent, match=r"pip install 'recollect\[media\]'") as caught:
        importlib.reload(audio)

    assert caught.value.code == "unsupported_kind"


def wav_header(rate: int, channels: int, size: int) -> bytes:
    fields = b"".join(
        value.to_bytes(width, "little")
        for value, width in (
            (16, 4), (1, 2), (channels, 2), (rate, 4), (rate * channels * 2 % 2**32, 4),
            (channels * 2 % 2**16, 2), (16, 2),
        )
    )  # fmt: skip
    return (
        b"RIFF" + (size + 36).to_bytes(4, "little") + b"WAVEfmt " + fields
        + b"data" + size.to_bytes(4, "little")
    )  # fmt: skip


def _protected(tag: bytes) -> bytes:
    return recording("ipod").replace(b"mp4a", tag)


def outcome(sandbox: Sandbox, data: bytes, name: str) -> str:
    """What became of it: `done`, or the code of its failure."""
    try:
        if sandbox.extract(Blob(data, name=name)).unheard:
            sandbox.hear(Blob(data, name=name), 0, 60, None)
    except Permanent as error:
        return error.code
    return "done"


@pytest.mark.parametrize(
    ("make", "name", "expected"),
    [
        (lambda: b"", "a.mp3", "unreadable_content"),
        (lambda: b"", "a.mp4", "unreadable_content"),
        (lambda: recording("mp4", 20.0)[:2000], "a.mp4", "unreadable_content"),
        (lambda: recording("mp3", 20.0)[:2000], "a.mp3", "done"),
        (lambda: recording("matroska", 20.0)[:3000], "a.mkv", "done"),
        (lambda: recording("wav", np.zeros(0)), "a.wav", "done"),
        (lambda: recording("flac", np.zeros(0)), "a.flac", "done"),
        (lambda: bytes(random.Random(1).randbytes(5000)), "a.mp3", "unreadable_content"),
        (lambda: _protected(b"enca"), "a.m4a", "encrypted_file"),
        (lambda: _protected(b"drms"), "a.m4a", "encrypted_file"),
        (lambda: wav_header(1, 1, 9000) + bytes(9000), "a.wav", "unreadable_content"),
        (lambda: wav_header(2**31 - 1, 1, 9000) + bytes(9000), "a.wav", "unreadable_content"),
        (lambda: wav_header(16_000, 60_000, 9000) + bytes(9000), "a.wav", "unreadable_content"),
        (lambda: wav_header(16_000, 1, 2**32 - 40) + bytes(9000), "a.wav", "done"),
    ],
    ids=lambda value: "" if callable(value) else str(value),  # a function's text differs by process
)
def test_each_broken_recording_ends_as_stated(
    sandbox: Sandbox, make: Callable[[], bytes], name: str, expected: str
):
    assert outcome(sandbox, make(), name) == expected


def test_a_recording_of_thousands_of_tracks_is_refused(sandbox: Sandbox):
    one = recording("mp4", 0.1)
    start = one.index(b"trak") - 4
    track = one[start : start + int.from_bytes(one[start : start + 4], "big")]
    moov = one.index(b"moov") - 4
    size = int.from_bytes(one[moov : moov + 4], "big") + len(track) * 3000
    many = (
        one[:moov] + size.to_bytes(4, "big") + one[moov + 4 : start] + track * 3001
        + one[start + len(track) :]
    )  # fmt: skip

    assert outcome(sandbox, many, "a.mp4") == "too_large"


def test_an_absurd_length_is_not_believed(read):
    data = recording("mp4", 1.0)
    at = data.index(b"mvhd") + 20
    found = read(data[:at] + b"\x7f\xff\xff\xff" + data[at + 4 :], "a.mp4")

    assert len(found.text) < 40


def test_changed_bytes_end_in_text_or_in_a_reason(sandbox: Sandbox):
    chance = random.Random(20_260)
    tags = {"title": "x", "comment": "words"}
    seeds = [
        (
            recording(c, 1.0, pictures=p, tags=tags, tracks=[HELLO] if c in CAPTIONED else []),
            NAMES[c],
        )
        for c in CODECS
        for p in ((False, True) if c in ("mp4", "matroska") else (False,))
    ]
    outcomes: list[str] = []
    for number in range(104):
        data, name = seeds[number % len(seeds)]
        changed = bytearray(data)
        for _ in range(chance.randint(1, 30)):
            # Half of the changes in the index, where they hurt.
            limit = len(changed) if chance.random() < 0.5 else min(1500, len(changed))
            changed[chance.randrange(4, limit)] = chance.randrange(256)
        outcomes.append(outcome(sandbox, bytes(changed), name))

    allowed = {
        "done", "unsupported_kind", "unreadable_content", "encrypted_file", "too_large",
        "extraction_memory",
    }  # fmt: skip
    assert set(outcomes) <= allowed
    assert outcomes.count("done") > 40


# Engines in the sandbox


@pytest.mark.costly
def test_a_model_that_is_not_one_says_so(sandbox: Sandbox):
    with pytest.raises(Permanent, match="whisper engine does not load") as caught:
        sandbox.hear(Blob(recording("wav")), 0, 60, LocalEngine("whisper", "/nowhere"))

    assert caught.value.code == "transcriber_failed"


def test_a_whisper_model_loads_and_listens_in_confinement(tmp_path: Path):
    folder = tiny_whisper.build(tmp_path / "tiny")
    noise = np.random.default_rng(1).normal(0, 0.2, 9 * RATE).clip(-1, 1)
    voice = np.sin(np.arange(9 * RATE) / RATE * 900) * (np.arange(9 * RATE) % 4000 < 2500)
    blob = Blob(recording("wav", 0.5 * voice + 0.1 * noise))
    engine = LocalEngine("whisper", str(folder))

    with Sandbox(workers=1, readable=[str(folder)]) as sandbox:
        heard = sandbox.hear(blob, 2.0, 60, engine)

    assert (heard.start, heard.end, heard.pcm) == (2.0, None, b"")
    assert all(2 <= s.start <= s.end <= 9.01 for s in heard.segments)


class Babbler:
    """Stands in for a loaded model; keeps what it was given."""

    def transcribe(self, samples: np.ndarray, **options: object):
        self.samples = samples
        said = [(0.5, 1.0, " Hello"), (1.5, 9.0, " to the end"), (2.5, 3.0, " beyond it")]
        return (SimpleNamespace(start=a, end=b, text=text) for a, b, text in said), None


def test_a_model_gets_samples_from_minus_one_to_one_and_words_end_with_the_sound():
    model = Babbler()
    pcm = np.array([-32_768, 0, 16_384] * RATE, "<i2")[: 2 * RATE].tobytes()

    segments = WhisperTranscriber(model, "/models/small/").transcribe(pcm, RATE)

    assert model.samples[:3].tolist() == [-1, 0, 0.5]
    assert [(s.start, s.end, s.text) for s in segments] == [
        (0.5, 1.0, "Hello"),
        (1.5, 2.0, "to the end"),
    ]


@needs_linux
def test_a_model_is_not_readable_unless_it_was_allowed(sandbox: Sandbox, tmp_path: Path):
    engine = LocalEngine("whisper", str(tiny_whisper.build(tmp_path / "tiny")))

    with pytest.raises(Permanent, match="whisper engine does not load"):
        sandbox.hear(Blob(recording("wav")), 0, 60, engine)


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json"])
def test_a_damaged_model_says_so(tmp_path: Path, name: str):
    folder = tiny_whisper.build(tmp_path / "tiny")
    (folder / name).write_bytes((folder / name).read_bytes()[:3000])

    with pytest.raises(Permanent, match="whisper engine does not load") as caught:
        open_engine(LocalEngine("whisper", str(folder)))

    assert caught.value.code == "transcriber_failed"


@needs_pocketsphinx
@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng makes the speech")
def test_pocketsphinx_hears_words_and_when_they_are_said(sandbox: Sandbox):
    speech = subprocess.run(
        ["espeak-ng", "-v", "en-us", "-s", "130", "--stdout", "one two three four five"],
        capture_output=True,
        check=True,
    ).stdout
    # Its header does not tell the length of what goes to a pipe.
    wave = np.frombuffer(speech[44:], "<i2") / 32_768
    wave = np.interp(np.arange(0, len(wave), 22_050 / RATE), np.arange(len(wave)), wave)
    both = np.concatenate([np.zeros(2 * RATE), wave, np.zeros(3 * RATE), wave, np.zeros(RATE)])

    heard = sandbox.hear(Blob(recording("flac", both)), 0, 60, LocalEngine("pocketsphinx"))

    assert heard.end is None
    first, second = heard.segments
    assert first.start == pytest.approx(2, abs=0.6)
    assert second.start == pytest.approx(5 + len(wave) / RATE, abs=0.6)
    assert {"one", "two", "three", "four", "five"} & set(first.text.split())


@needs_pocketsphinx
def test_silence_has_no_words(sandbox: Sandbox):
    silence = Blob(recording("wav", np.zeros(5 * RATE)))

    assert not sandbox.hear(silence, 0, 60, LocalEngine("pocketsphinx")).segments
