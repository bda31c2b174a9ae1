"""Which engine writes down speech, how it is asked, and what happens without one."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import HeldOff, Parked, Permanent, SetupError, Transient
from recollect.inference import endpoint_transcriber, transcribe
from recollect.inference.speech import RATE, SAMPLE_BYTES, Heard, LocalEngine, Segment
from recollect.inference.transcribe import Listener, TranscriberChoice, open_transcriber
from tests.extract.conftest import needs_pocketsphinx
from tests.fakes.transcription import Service, running

SECOND = (bytes(2) + b"\0\x20") * (RATE * SAMPLE_BYTES // 4)
"""of a tone"""


@pytest.fixture
def service() -> Iterator[Service]:
    with running(Service()) as service:
        yield service


def connected(service: Service, key: str | None = None, fallback: str = "metadata") -> Listener:
    return open_transcriber(TranscriberChoice("openai", service.url, key, "whisper-1", fallback))


def recording(seconds: float) -> Callable[[float, float, LocalEngine | None], Heard]:
    """A sandbox with that much sound; it ends stretches a second early, as a quiet moment may."""

    def hear(start: float, wanted: float, engine: LocalEngine | None) -> Heard:
        end = min(start + wanted - 1, seconds)
        pcm = SECOND * max(0, int(end - start))
        pcm = f"{start:8.0f}".encode() + pcm[8:] if pcm else b""  # none sounds like another
        segments = (Segment(start, start + 1, f"at {start:.0f}"),) if engine else ()
        return Heard(start, end if end < seconds else None, b"" if engine else pcm, segments)

    return hear


def model_folder(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names or transcribe.MODEL_FILES:
        (folder / name).write_bytes(b"{}")
    return folder


# Which engine


def test_nothing_set_means_no_engine_and_the_mend_is_named():
    listener = open_transcriber(TranscriberChoice())

    transcript = listener.transcribe(recording(60))

    assert listener.engine is None
    assert transcript.segments == ()
    [warning] = transcript.warnings
    assert "RECOLLECT_TRANSCRIBER_MODEL" in warning
    assert "RECOLLECT_TRANSCRIBER_URL" in warning


@needs_pocketsphinx
def test_an_endpoint_comes_before_a_model(tmp_path: Path):
    folder = str(model_folder(tmp_path / "small"))

    both = open_transcriber(TranscriberChoice(url="http://localhost:1/v1", model=folder))
    only_model = open_transcriber(TranscriberChoice(model=folder, fallback="pocketsphinx"))
    neither = open_transcriber(TranscriberChoice(fallback="pocketsphinx"))

    assert both.describe() == f"openai:{folder}"
    assert only_model.engine == LocalEngine("whisper", folder)
    assert only_model.describe() == "faster-whisper:small"
    assert neither.engine == LocalEngine("pocketsphinx")
    assert neither.describe() == "pocketsphinx"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (TranscriberChoice("loud"), "RECOLLECT_TRANSCRIBER is 'loud'"),
        (TranscriberChoice(fallback="guess"), "RECOLLECT_TRANSCRIBER_FALLBACK is 'guess'"),
        (TranscriberChoice("openai", model="x"), "needs RECOLLECT_TRANSCRIBER_URL"),
        (TranscriberChoice("openai", url="http://x"), "needs RECOLLECT_TRANSCRIBER_MODEL"),
        (TranscriberChoice("auto", url="http://x"), "needs RECOLLECT_TRANSCRIBER_MODEL"),
        (TranscriberChoice("openai", "ftp://x", model="m"), "http or https"),
        (TranscriberChoice("whisper"), "needs RECOLLECT_TRANSCRIBER_MODEL"),
        (TranscriberChoice("whisper", model="no-such-model"), "hf download Systran/faster-whisper"),
        (TranscriberChoice("auto", model="some/where/else"), "There is no folder"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_mend(choice, said):
    with pytest.raises(SetupError, match=said):
        open_transcriber(choice)


@pytest.mark.parametrize("missing", transcribe.MODEL_FILES)
def test_a_folder_that_lacks_a_file_is_refused(tmp_path: Path, missing: str):
    names = [name for name in transcribe.MODEL_FILES if name != missing]
    folder = model_folder(tmp_path / "small", *names)

    with pytest.raises(SetupError, match=f"has no {missing}"):
        open_transcriber(TranscriberChoice("whisper", model=str(folder)))


@pytest.mark.parametrize("name", ["small", "Systran/faster-whisper-small"])
def test_a_model_in_the_cache_of_the_hub_is_found_with_all_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    repository = tmp_path / "models--Systran--faster-whisper-small"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "abc"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    model_folder(blobs)
    snapshot.mkdir(parents=True)
    for file in transcribe.MODEL_FILES:
        (snapshot / file).symlink_to(blobs / file)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    listener = open_transcriber(TranscriberChoice("whisper", model=name))

    assert listener.engine == LocalEngine("whisper", str(snapshot))
    assert listener.readable == [str(blobs), str(snapshot)]


def test_a_key_is_not_shown():
    assert "s3cret" not in repr(TranscriberChoice("openai", "http://x", "s3cret", "m"))


# Stretch by stretch


def test_an_endpoint_gets_ten_minutes_of_wav_at_a_time(service: Service):
    transcript = connected(service, "s3cret-key").transcribe(recording(1250))

    assert [heard.seconds for heard in service.heard] == [599, 599, 52]
    assert max(heard.size for heard in service.heard) < 25_000_000
    first = service.heard[0]
    assert first.form == (1, 2, 16_000)
    assert first.fields == {"model": "whisper-1", "response_format": "verbose_json"}
    assert first.authorization == "Bearer s3cret-key"
    assert [(s.start, s.text) for s in transcript.segments] == [
        (0.0, "First of 1."), (1.5, "Second of 1."), (599.0, "First of 2."),
        (600.5, "Second of 2."), (1198.0, "First of 3."), (1199.5, "Second of 3."),
    ]  # fmt: skip
    assert transcript.warnings == ["Its text was written by a machine (openai:whisper-1)."]


def test_a_local_engine_works_where_the_sound_is():
    transcript = Listener(LocalEngine("whisper", "/models/small")).transcribe(recording(300))

    assert [s.text for s in transcript.segments] == ["at 0", "at 119", "at 238"]
    assert transcript.warnings == ["Its text was written by a machine (faster-whisper:small)."]


def test_what_pocketsphinx_wrote_is_marked_as_poor():
    [warning] = Listener(LocalEngine("pocketsphinx")).transcribe(recording(30)).warnings

    assert "pocketsphinx, which gets most words wrong" in warning
    assert "RECOLLECT_TRANSCRIBER_MODEL" in warning


def test_a_very_long_recording_is_written_down_in_part():
    transcript = Listener(LocalEngine("whisper", "/m")).transcribe(recording(10**7))

    assert max(s.start for s in transcript.segments) < 4 * 3600
    assert transcript.warnings[-1] == "Only its first 4 hours were transcribed."


@given(st.lists(st.floats(allow_nan=True), min_size=1))
def test_no_child_can_keep_us_for_ever(ends):
    asked = 0

    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        nonlocal asked
        asked += 1
        return Heard(start, ends[asked % len(ends)])

    Listener(LocalEngine("pocketsphinx")).transcribe(hear)

    assert asked <= 260


def test_silence_is_told():
    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        return Heard(start, None)

    [warning] = Listener(LocalEngine("whisper", "/models/small")).transcribe(hear).warnings

    assert warning == "No speech was found in it (faster-whisper:small listened)."


def test_an_empty_stretch_is_not_sent(service: Service):
    connected(service).transcribe(recording(0))

    assert service.heard == []


# Where no engine does it


def test_without_an_engine_a_recording_fails_if_it_is_to():
    with pytest.raises(Permanent, match="RECOLLECT_TRANSCRIBER_URL") as caught:
        open_transcriber(TranscriberChoice("none", fallback="fail")).transcribe(recording(9))

    assert caught.value.code == "not_transcribed"


def test_an_engine_that_does_not_load_is_named_in_the_document():
    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        raise Permanent("the whisper engine does not load: bad file", code="transcriber_failed")

    [warning] = Listener(LocalEngine("whisper", "/m")).transcribe(hear).warnings

    assert "the whisper engine does not load: bad file" in warning
    with pytest.raises(Permanent, match="does not load"):
        Listener(LocalEngine("whisper", "/m"), fails=True).transcribe(hear)


def test_a_broken_recording_fails_whatever_the_fallback():
    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        raise Permanent("none of its sound can be decoded")

    with pytest.raises(Permanent) as caught:
        Listener(LocalEngine("pocketsphinx")).transcribe(hear)

    assert caught.value.code == "unreadable_content"


# An endpoint that misbehaves


@pytest.mark.parametrize(
    ("status", "setting"),
    [
        (401, "RECOLLECT_TRANSCRIBER_KEY"),
        (403, "RECOLLECT_TRANSCRIBER_KEY"),
        (404, "RECOLLECT_TRANSCRIBER_URL and RECOLLECT_TRANSCRIBER_MODEL"),
    ],
)
def test_wrong_settings_are_named_and_may_be_mended(service: Service, status: int, setting: str):
    listener = connected(service, "s3cret-key")
    service.answers = [(status, {}, '{"error": "bad key s3cret-key"}')] * 2

    with pytest.raises(Parked, match=f"check {setting}") as caught:
        listener.transcribe(recording(9))

    assert caught.value.code == f"http_{status}"
    assert "s3cret-key" not in str(caught.value)
    service.answers.clear()
    assert connected(service).transcribe(recording(9)).segments


def test_sound_that_alone_is_refused_with_403_does_not_wait_for_ever(service: Service):
    """As by a firewall before the service; the key is right, since other sound is taken."""
    answer = service.answer

    def refused(heard: Any) -> tuple[int, dict[str, str], str]:
        done = answer(heard)
        return (403, {}, "blocked") if heard.seconds == 9 else done

    service.answer = refused
    listener = connected(service)

    with pytest.raises(HeldOff, match="blocked") as caught:
        listener.transcribe(recording(9))

    assert caught.value.code == "http_403"
    assert listener.transcribe(recording(8)).segments  # it is not left alone for that


def test_a_wrong_path_names_the_address(service: Service):
    choice = TranscriberChoice("openai", service.url + "/v9", None, "m")

    with pytest.raises(Parked, match="check RECOLLECT_TRANSCRIBER_URL"):
        open_transcriber(choice).transcribe(recording(9))


@pytest.mark.parametrize(
    ("status", "kind"), [(408, HeldOff), (429, Parked), (500, HeldOff), (502, HeldOff)]
)
def test_a_busy_endpoint_is_asked_again_later(service: Service, status: int, kind: type[Transient]):
    """Attempts at what may be the fault of this sound lie far apart; all else costs none."""
    service.answers = [(status, {"retry-after": "17"}, "busy")]

    with pytest.raises(kind, match="busy") as caught:
        connected(service).transcribe(recording(9))

    assert caught.value.after == timedelta(seconds=17)


def test_a_limit_of_a_day_is_asked_about_each_hour(service: Service):
    service.answers = [(429, {"retry-after": "80000"}, "enough for today")]

    with pytest.raises(Parked) as caught:
        connected(service).transcribe(recording(9))

    assert caught.value.after == timedelta(hours=1)


def test_an_endpoint_that_hangs_up_or_is_gone_is_asked_again_later(service: Service):
    service.answers = [(0, {}, "")]

    with pytest.raises(HeldOff):
        connected(service).transcribe(recording(9))
    gone = TranscriberChoice("openai", "http://127.0.0.1:9/v1", None, "m")
    with pytest.raises(Parked, match="no connection"):
        open_transcriber(gone).transcribe(recording(9))


def test_an_endpoint_that_is_away_is_left_alone_and_nothing_is_decoded_for_it(service: Service):
    service.answers = [(429, {}, "slow down")]
    listener = connected(service)
    with pytest.raises(Parked):
        listener.transcribe(recording(9))

    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        raise AssertionError("decoded")

    with pytest.raises(Parked, match="slow down") as caught:
        listener.transcribe(hear)

    assert caught.value.after is not None
    assert len(service.heard) == 1


def test_an_attempt_goes_on_where_the_last_one_ended(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    """Some take an hour of sound in an hour: a longer recording began again each time, for ever."""
    monkeypatch.setattr(endpoint_transcriber, "STRETCH", 60.0)
    listener = connected(service)
    answer = service.answer

    def limited(heard: Any) -> tuple[int, dict[str, str], str]:
        done = answer(heard)
        return done if len(service.heard) % 2 else (500, {}, "enough for now")

    service.answer = limited
    for _ in range(2):
        with pytest.raises(HeldOff):
            listener.transcribe(recording(125))
    transcript = listener.transcribe(recording(125))

    assert [heard.seconds for heard in service.heard] == [59, 59, 59, 7, 7]
    assert [s.text for s in transcript.segments] == [
        f"{which} of {number}." for number in (1, 3, 5) for which in ("First", "Second")
    ]
    service.answer = answer
    listener.transcribe(recording(125))
    assert len(service.heard) == 8  # what was kept is forgotten with the end of a recording


@pytest.mark.parametrize("status", [413, 504, 524])
def test_how_much_sound_goes_in_one_request_is_learnt(service: Service, status: int):
    """nginx takes 1 MB of a request where nobody says otherwise, and waits for a minute."""
    listener = connected(service)
    answer = service.answer

    def small(heard: Any) -> tuple[int, dict[str, str], str]:
        done = answer(heard)
        return done if heard.seconds <= 40 else (status, {}, "too much")

    service.answer = small
    first, second = listener.transcribe(recording(130)), listener.transcribe(recording(130))

    seconds = [heard.seconds for heard in service.heard]
    assert [s for s in seconds if s > 40] == [130, 64]
    assert max(s.end for s in first.segments) > 120
    assert [(s.start, s.end) for s in first.segments] == [(s.start, s.end) for s in second.segments]


def test_a_service_that_breaks_off_what_is_too_large_is_asked_for_less(service: Service):
    """fasthttp answers 413 and closes before all was read: the reset takes the answer with it."""
    listener = connected(service)
    answer = service.answer

    def small(heard: Any) -> tuple[int, dict[str, str], str]:
        done = answer(heard)
        return done if heard.seconds <= 40 else (0, {}, "")

    service.answer = small
    transcript = listener.transcribe(recording(130))

    assert max(s.end for s in transcript.segments) > 120


def test_words_of_many_short_stretches_are_kept(service: Service):
    """Four hours in the shortest are 480: each attempt forgot what it would have begun with."""
    listener = connected(service)

    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        number = int(start / 30)
        if number in (0, 479):
            return Heard(start, start + 30, f"{number:9}".encode() + SECOND[9:])
        return Heard(start, start + 30, bytes((number % 8, 0, number // 8 % 8, 0, number // 64, 0)))

    service.answers = [(200, {}, '{"text": "the beginning"}'), (500, {}, "enough for now")]
    with pytest.raises(HeldOff):
        listener.transcribe(hear)
    transcript = listener.transcribe(hear)

    assert transcript.segments[0].text == "the beginning"
    assert len(service.heard) == 3


def test_silence_is_not_sent(service: Service):
    """Models hear words in it: "Thank you for watching"."""

    def muted(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        return Heard(start, None, b"\1\0\xff\xff" * 160_000)

    [warning] = connected(service).transcribe(muted).warnings

    assert "No speech was found" in warning
    assert service.heard == []


def test_sound_that_is_refused_leaves_what_is_known(service: Service):
    service.answers = [*[(400, {}, "too\nnoisy")] * 2, (413, {}, "too long")]

    [warning] = connected(service).transcribe(recording(9)).warnings

    assert "answered 400: too noisy" in warning
    with pytest.raises(Permanent, match="too long") as caught:
        connected(service, fallback="fail").transcribe(recording(9))
    assert caught.value.code == "not_transcribed"


def test_a_model_that_tells_no_times_is_asked_for_none_from_then_on(service: Service):
    """As gpt-4o-transcribe and Voxtral."""
    service.knows_times = False
    listener = connected(service)

    first, second = listener.transcribe(recording(9)), listener.transcribe(recording(9))

    assert first.segments == second.segments == [Segment(0, 9, "All of it.")]
    forms = [heard.fields["response_format"] for heard in service.heard]
    assert forms == ["verbose_json", "json", "json"]


@pytest.mark.parametrize("busy", [429, 503])
def test_sound_that_a_busy_endpoint_did_not_hear_without_times_is_not_refused(
    service: Service, busy: int
):
    service.knows_times = False
    service.answers = [(400, {}, "no times"), (busy, {}, "busy")]

    with pytest.raises(Transient, match="busy") as caught:
        connected(service).transcribe(recording(9))

    assert caught.value.code == f"http_{busy}"


def test_an_error_in_an_answer_of_200_is_told(service: Service):
    """As whisper.cpp does."""
    service.answers = [(200, {}, '{"error": "failed to read audio data"}')]

    with pytest.raises(Transient, match="failed to read audio data"):
        connected(service).transcribe(recording(9))


@pytest.mark.parametrize("segments", ["", ', "segments": null', ', "segments": []'])
def test_an_answer_without_times_is_one_segment(service: Service, segments: str):
    service.answers = [(200, {}, f'{{"text": " All of it. "{segments}}}')]

    transcript = connected(service).transcribe(recording(9))

    assert transcript.segments == [Segment(0, 9, "All of it.")]


@pytest.mark.parametrize(
    "body",
    [
        "", "<html>", "[]", "null", "{}", '{"text": 5}', '{"segments": 5}', '{"segments": [{}]}',
        '{"segments": [{"start": "a", "end": 1, "text": "x"}]}', "[" * 100_000,
        '{"segments": [{"start": 0, "end": 1, "text": null}]}',
        '{"segments": [{"start": NaN, "end": 1, "text": "x"}]}',
        '{"segments": [{"start": 0, "end": NaN, "text": "x"}]}',
        '{"segments": [{"start": 0, "end": 1' + "0" * 400 + ', "text": "x"}]}',
    ],
)  # fmt: skip
def test_an_answer_of_another_kind_names_the_address(service: Service, body: str):
    service.answers = [(200, {}, body)]

    with pytest.raises(Transient, match="check RECOLLECT_TRANSCRIBER_URL") as caught:
        connected(service).transcribe(recording(9))

    assert caught.value.code == "bad_answer"


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "start": st.floats(-10, 20),
                "end": st.floats(-10, 20),
                "text": st.sampled_from(["", " a ", "b"]),
            }
        )
    )
)
def test_times_lie_within_the_sound_and_in_order(parts: Sequence[dict[str, object]]):
    found = endpoint_transcriber._parse({"segments": parts}, 9.0)

    assert len(found) == sum(1 for part in parts if part["text"])
    assert all(0 <= s.start <= s.end <= 9 for s in found)
    assert [s.start for s in found] == sorted(s.start for s in found)
