"""Pages that show a video: captions, else what an engine hears, else the page; never a failure."""

import math
import re
import socket
import sys
import textwrap
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from recollect.app import App
from recollect.cli import doctor
from recollect.config import Config
from recollect.errors import Parked, Transient
from recollect.fetch import Fetcher
from recollect.fetch.video import (
    FoundVideo,
    VideoLimits,
    VideoPages,
    _ytdlp,
    is_marked,
    open_video_pages,
    site,
)
from recollect.inference.transcribe import Listener, TranscriberChoice, open_transcriber
from recollect.ingest import pipeline, video_page
from recollect.model import Blob, Content, Extracted, OrgId
from tests.extract.conftest import needs_pocketsphinx
from tests.extract.recordings import recording
from tests.fakes.transcription import Service, running
from tests.fakes.website import Website, never_answers

VTT = "WEBVTT\n\n00:01.000 --> 00:02.500\nThe harbour opens.\n\n00:08.000 --> 00:09.000\nAt nine.\n"
PUBLIC = "93.184.216.34"


@pytest.fixture
def web() -> Iterator[Website]:
    with Website() as web:
        yield web


@pytest.fixture
def service() -> Iterator[Service]:
    with running(Service()) as service:
        yield service


@pytest.fixture(scope="module")
def videos(app: App) -> Iterator[VideoPages]:
    with VideoPages(app.fetcher) as videos:
        yield videos


def page(video: str, *, head: str = "") -> str:
    return (
        f"<!doctype html><html><head><title>News of the port</title>{head}</head><body><main>"
        f"<h1>News of the port</h1><p>What the mayor wrote about the quay.</p>{video}</main>"
    )


def read(app: App, url: str) -> Extracted:
    return pipeline.read(app, OrgId("org"), Content("text", b"", text=url, url=url))


def times(found: Extracted) -> list[tuple[object, str]]:
    return [(p.at.get("time"), found.text[p.start :].split("\n")[0]) for p in found.places]


# What becomes of the video


def test_captions_follow_the_page_with_their_times(app: App, videos: VideoPages, web: Website):
    web.page(
        "/talk", page('<video controls src="/v.mp4"><track src="/c.vtt" srclang="en"></video>')
    )
    web.page("/c.vtt", VTT, mime="text/vtt")

    found = read(replace(app, videos=videos), web.url("/talk"))

    assert found.kind == "video"
    assert found.title == "News of the port"
    assert "What the mayor wrote about the quay." in found.text
    assert times(found) == [(1.0, "The harbour opens."), (8.0, "At nine.")]
    assert found.warnings == []
    assert "/v.mp4" not in web.paths()


def test_sound_without_captions_is_written_down(
    app: App, videos: VideoPages, web: Website, service: Service
):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    web.page("/talk", page('<video src="/v.mp4"></video>'))
    web.page("/v.mp4", recording("mp4", 3.0, tags={"title": "raw-0042"}), mime="video/mp4")

    found = read(replace(app, videos=videos, listener=listener), web.url("/talk"))

    assert found.kind == "video"
    assert times(found) == [(0.0, "First of 1. Second of 1."), (1.5, "Second of 1.")]
    assert "raw-0042" not in found.text
    assert found.warnings == ["Its text was written by a machine (openai:whisper-1)."]
    assert service.heard[0].seconds == pytest.approx(3, abs=0.2)


def test_sound_that_waits_for_its_engine_is_not_fetched_each_minute(
    app: App, videos: VideoPages, web: Website, service: Service
):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    web.page("/talk", page('<video src="/v.mp4"></video>'))
    web.page("/v.mp4", recording("mp4", 1.0), mime="video/mp4")
    service.answers = [(429, {"retry-after": "3"}, "slow down")]

    with pytest.raises(Parked, match="slow down") as caught:
        read(replace(app, videos=videos, listener=listener), web.url("/talk"))

    assert caught.value.after == video_page.AGAIN


def test_streams_in_pieces_are_put_together(
    app: App, videos: VideoPages, web: Website, service: Service
):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    stream = recording("mpegts", 6.0, codec="aac")
    half = len(stream) // 376 * 188
    head = '<meta property="og:video" content="/live/master.m3u8">'
    web.page("/talk", page("", head=head))
    web.page(
        "/live/master.m3u8",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=64000,CODECS=mp4a.40.2\nlow.m3u8\n",
        mime="application/vnd.apple.mpegurl",
    )
    web.page(
        "/live/low.m3u8",
        "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n1.ts\n#EXTINF:3,\n2.ts\n#EXT-X-ENDLIST\n",
        mime="application/vnd.apple.mpegurl",
    )
    web.page("/live/1.ts", stream[:half], mime="video/mp2t")
    web.page("/live/2.ts", stream[half:], mime="video/mp2t")

    found = read(replace(app, videos=videos, listener=listener), web.url("/talk"))

    assert times(found)[0] == (0.0, "First of 1. Second of 1.")
    assert service.heard[0].seconds == pytest.approx(6, abs=0.3)


@pytest.mark.slow  # as sound in pieces, and captions in one
def test_captions_in_pieces_are_put_together(app: App, videos: VideoPages, web: Website):
    web.page("/talk", page("", head='<meta property="og:video" content="/master.m3u8">'))
    web.page(
        "/master.m3u8",
        "#EXTM3U\n"
        '#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="English",LANGUAGE="en",URI="subs.m3u8"\n'
        '#EXT-X-STREAM-INF:BANDWIDTH=64000,SUBTITLES="s"\nlow.m3u8\n',
        mime="application/vnd.apple.mpegurl",
    )
    web.page(
        "/subs.m3u8",
        "#EXTM3U\n#EXT-X-TARGETDURATION:8\n#EXTINF:8,\n1.vtt\n#EXTINF:8,\n2.vtt\n#EXT-X-ENDLIST\n",
        mime="application/vnd.apple.mpegurl",
    )
    first, second = VTT.split("00:08")
    web.page("/1.vtt", first, mime="text/vtt")
    web.page("/2.vtt", "WEBVTT\n\n00:08" + second, mime="text/vtt")

    found = read(replace(app, videos=videos), web.url("/talk"))

    assert times(found) == [(1.0, "The harbour opens."), (8.0, "At nine.")]


def test_a_page_of_a_site_that_is_known_becomes_its_video(
    app: App, videos: VideoPages, web: Website
):
    url = "http://teamtreehouse.com/library/the-quay"
    head = (
        '<meta property="og:title" content="The Quay"><meta name="description" content="How it'
        ' was built.">'
    )
    video = '<video><source src="/v.mp4"><track src="/c.vtt" srclang="en"></video>'
    web.page("/library/the-quay", page(video, head=head) + '<i data-duration="83000"></i>')
    web.page("/c.vtt", VTT, mime="text/vtt")

    with elsewhere(web) as fetcher, VideoPages(fetcher) as stranger:
        stranger._words = videos._known()
        found = read(replace(app, fetcher=fetcher, videos=stranger), url)

    assert (found.kind, found.title) == ("video", "The Quay")
    assert found.text == (
        "Title: The Quay\nDuration: 1:23\n\nDescription: How it was built.\n\n"
        "The harbour opens.\n\nAt nine."
    )
    assert times(found) == [(1.0, "The harbour opens."), (8.0, "At nine.")]


def test_what_a_page_says_of_its_video_is_cleaned():
    found = FoundVideo(shown=True, own=True, title="The\x00 Quay", uploader="A\x07nn")

    joined = video_page._joined(found, Extracted("Words of the page."), video_page._Said())

    assert joined.title == "The Quay"
    assert joined.text == "Title: The Quay\nUploader: Ann\n\nWords of the page."


# What becomes of the page when the video cannot be had


def test_without_an_engine_the_page_is_kept_and_the_mend_is_named(
    app: App, videos: VideoPages, web: Website
):
    web.page("/talk", page('<video src="/v.mp4"></video>'))

    found = read(replace(app, videos=videos), web.url("/talk"))

    assert found.kind == "webpage"
    assert "What the mayor wrote" in found.text
    [warning] = found.warnings
    assert "RECOLLECT_TRANSCRIBER_MODEL" in warning
    assert "/v.mp4" not in web.paths()


@pytest.mark.usefixtures("stand_in")
def test_that_nobody_listens_fails_no_page(app: App, robbed: VideoPages, web: Website):
    web.page("/talk", page('<video src="/v.mp4"></video>'))
    listener = Listener(None, fails=True)

    found = read(replace(app, videos=robbed, listener=listener), web.url("/talk"))

    assert "What the mayor wrote" in found.text
    assert len(found.warnings) == 1


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (lambda web: web.page("/v.mp4", b"no", status=410), "HTTP Error 410"),
        pytest.param(
            lambda web: web.page("/v.mp4", b"", mime="video/mp4"),
            "any data",
            marks=pytest.mark.slow,  # no sound comes, as from the page of 410
        ),
        pytest.param(
            lambda web: web.page("/v.mp4", bytes(99_999), mime="video/mp4"),
            "damaged|cannot be read",
            marks=pytest.mark.slow,  # what is no recording is told by the sandbox's own tests
        ),
    ],
)
def test_sound_that_cannot_be_had_is_told(
    app: App,
    videos: VideoPages,
    web: Website,
    service: Service,
    serve: Callable[[Website], None],
    reason: str,
):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    web.page("/talk", page('<video src="/v.mp4"></video>'))
    serve(web)

    found = read(replace(app, videos=videos, listener=listener), web.url("/talk"))

    assert "What the mayor wrote" in found.text
    [warning] = found.warnings
    assert warning.startswith("The video on this page was not read: ")
    assert re.search(reason, warning)


def test_sound_larger_than_is_read_is_not_downloaded_to_its_end(
    app: App, videos: VideoPages, web: Website, service: Service
):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    web.page("/talk", page('<video src="/v.mp4"></video>'))
    web.page("/v.mp4", recording("mp4", 3.0), mime="video/mp4")
    with VideoPages(app.fetcher, VideoLimits(most_bytes=5_000)) as narrow:
        narrow._words = videos._known()  # which need not be asked for again
        found = read(replace(app, videos=narrow, listener=listener), web.url("/talk"))

    assert "larger than what is read" in found.warnings[0]
    assert service.heard == []


@pytest.mark.slow
def test_a_video_that_takes_too_long_is_given_up(app: App, web: Website, service: Service):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    web.page("/talk", page('<video src="/v.mp4"></video>'))
    web.route("/v.mp4", never_answers)
    with VideoPages(app.fetcher, VideoLimits(wall_seconds=12)) as videos:
        found = read(replace(app, videos=videos, listener=listener), web.url("/talk"))

    assert "takes too long" in found.warnings[0]
    assert "What the mayor wrote" in found.text


# Which pages


@pytest.mark.parametrize(
    ("html", "marked"),
    [
        ('<meta property="og:video:url" content="/v">', True),
        ("<meta property='og:type' content='video.other'>", True),
        ('<meta name="twitter:player" content="/p">', True),
        ('<video class="x" controls><source src="/v"></video>', True),
        ('<video autoplay muted loop src="/waves.mp4"></video>', False),
        ('<video muted></video><video src="/v"></video>', True),
        ("<video>", True),
        ('<video muted <video src="/v">', False),  # one tag
        ("<p>A video of the harbour, and videos.</p>", False),
        ('<meta property="og:type" content="article">', False),
        ("<videogram>", False),
    ],
)
def test_pages_that_show_a_video_say_so(html: str, marked: bool):
    assert is_marked(html.encode()) == marked


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://www.youtube.com/watch?v=x", "youtube"),
        ("https://youtu.be/x", "youtu"),
        ("https://www.bbc.co.uk/news", "bbc"),
        ("https://news.ycombinator.com.", "ycombinator"),
        ("http://127.0.0.1:80/", ""),
        ("http://[::1]/", ""),
        ("http://localhost/", ""),
        ("http://[nonsense", ""),
    ],
)
def test_a_site_is_known_by_a_word_of_its_address(url: str, word: str):
    assert site(url) == word


def test_ordinary_pages_cost_no_child(app: App, videos: VideoPages, web: Website, monkeypatch):
    web.page("/a", page("<p>No moving pictures.</p>"))
    given = replace(app, videos=videos)
    read(given, web.url("/a"))  # the first in the life of a process asks which sites are known
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    found = read(given, web.url("/a"))

    assert found.kind == "webpage"
    assert found.warnings == ()


def test_known_sites_are_among_the_words(videos: VideoPages):
    known = videos._known()

    assert {"youtube", "youtu", "vimeo", "dailymotion", "tiktok", "x"} <= known
    assert not {"wikipedia", "github", "python", "mozilla", "stackoverflow", ""} & known


def test_a_page_that_is_no_video_after_all_is_like_others(
    app: App, videos: VideoPages, web: Website
):
    url = "http://teamtreehouse.com/about"
    web.page("/about", page("<p>Courses of all kinds.</p>"))
    with elsewhere(web) as fetcher, VideoPages(fetcher) as stranger:
        stranger._words = videos._known()
        found = read(replace(app, fetcher=fetcher, videos=stranger), url)

    assert found.kind == "webpage"
    assert found.warnings == ()
    assert len(web.requests) == 1


def test_without_yt_dlp_or_switched_off_pages_are_pages(
    app: App, monkeypatch: pytest.MonkeyPatch, web: Website
):
    with_it = open_video_pages("auto", app.fetcher)
    assert with_it is not None
    with_it.close()
    assert open_video_pages("none", app.fetcher) is None
    monkeypatch.setitem(sys.modules, "yt_dlp", None)
    assert open_video_pages("auto", app.fetcher) is None

    web.page("/talk", page('<video src="/v.mp4"></video>'))
    found = read(app, web.url("/talk"))

    assert found.kind == "webpage"
    assert found.warnings == ()


@needs_pocketsphinx
def test_doctor_tells_what_becomes_of_video_pages(monkeypatch: pytest.MonkeyPatch):
    def told(**settings: str) -> tuple[str, str]:
        [found] = doctor._videos(Config.model_validate(settings))
        return found.state, found.details

    assert told()[0] == "ok"
    assert told()[1].endswith("captions only")
    assert told(transcriber="pocketsphinx")[1].endswith("captions, else sound")
    assert told(video="none")[0] == "off"
    monkeypatch.setitem(sys.modules, "yt_dlp", None)
    assert "recollect[media]" in told()[1]


# Hostile ones


@contextmanager
def elsewhere(web: Website) -> Generator[Fetcher]:
    """The network as strangers have it, in which every name leads to this site."""

    def dial(address: str, port: int, seconds: float) -> socket.socket:
        assert (address, port) == (PUBLIC, 80)
        return socket.create_connection((web.host, web.port), seconds)

    with Fetcher(user_agent="test", resolve=lambda name, port: [PUBLIC], dial=dial) as fetcher:
        yield fetcher


@pytest.mark.parametrize(
    "video",
    [
        pytest.param('<video src="{inner}/secret"></video>', marks=pytest.mark.slow),
        # For each change, that redirects are followed by our proxy; which addresses that refuses,
        # and that the process reaches no file, is shown without yt-dlp, too.
        pytest.param(
            '<video src="http://169.254.169.254/latest/meta-data"></video>', marks=pytest.mark.slow
        ),
        '<video src="/away"></video>',
        pytest.param(
            '<video src="/v.mp4"><track src="{inner}/secret" srclang="en"></video>',
            marks=pytest.mark.slow,
        ),
        pytest.param('<video src="/master.m3u8"></video>', marks=pytest.mark.slow),
        pytest.param('<video src="file:///etc/passwd"></video>', marks=pytest.mark.slow),
        pytest.param(
            '<meta property="og:video" content="file:///etc/passwd">', marks=pytest.mark.slow
        ),
        pytest.param('<video src="ftp://{host}/secret"></video>', marks=pytest.mark.slow),
    ],
)
def test_a_page_cannot_send_it_into_the_inner_network(
    app: App, videos: VideoPages, service: Service, video: str
):
    listener = open_transcriber(TranscriberChoice("auto", service.url, None, "whisper-1"))
    with Website() as inner, Website() as web:
        inner.page("/secret", VTT, mime="text/vtt")
        inner_url = inner.url("/secret").removesuffix("/secret")
        web.page(
            "/talk", page(video.format(inner=inner_url, host=inner_url.removeprefix("http://")))
        )
        web.redirect("/away", inner.url("/secret"))
        web.page("/master.m3u8", f"#EXTM3U\n#EXTINF:3,\n{inner_url}/secret\n#EXT-X-ENDLIST\n")
        with elsewhere(web) as fetcher, VideoPages(fetcher) as stranger:
            stranger._words = videos._known()  # which need not be asked for again
            given = replace(app, fetcher=fetcher, videos=stranger, listener=listener)
            found = read(given, "http://harbour.example.com/talk")

        assert inner.requests == []
    assert "What the mayor wrote" in found.text
    assert "harbour opens" not in found.text
    assert "root:" not in found.text
    assert len(found.warnings) == 1
    assert service.heard == []


STAND_IN = """
import os, socket, stat, subprocess, time

def is_pipe(descriptor):
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False

def deed(words):
    match words.split(" "):
        case ["socket"]:
            socket.socket()
        case ["connect"]:
            # What was handed out leads to the proxy and nowhere else.
            import yt_dlp.networking._urllib as _urllib
            _urllib.create_connection(("x", 1), 5).connect(("127.0.0.1", 9))
        case ["read", path]:
            open(path).read()
        case ["write", path]:
            open(path, "w")
        case ["run"]:
            subprocess.run(["/bin/true"])
        case ["environment"]:
            return " ".join(sorted(os.environ))
        case ["crash"]:
            os.abort()
        case ["flood"]:
            pipes = [one for one in range(3, 20) if is_pipe(one)]
            while True:
                os.write(pipes[0], bytes(100_000))
        case ["say", answer]:
            # As an honest child would, once: it reads no more.
            [pipe, *_] = [one for one in range(3, 20) if is_pipe(one)]
            os.write(pipe, bytes.fromhex(answer))
            os._exit(0)
        case ["eat"]:
            bytearray(8_000_000_000)
        case ["hang"]:
            time.sleep(1000)
    return "done"

class YoutubeDL:
    def __init__(self, options): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def extract_info(self, url, download, ie_key):
        try:
            return {"title": deed(url.partition("#")[2].replace("%20", " "))}
        except OSError as error:
            return {"title": f"denied: {type(error).__name__}"}
"""


@pytest.fixture(scope="module")
def robbed(app: App) -> Iterator[VideoPages]:
    """Knows its sites once asked: of each look one child is enough."""
    with VideoPages(app.fetcher, OF_ROGUES) as videos:
        yield videos


OF_ROGUES = VideoLimits(wall_seconds=120, most_bytes=100_000)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """yt-dlp as a page might make it that takes it over: does what the address says."""
    package = tmp_path / "yt_dlp"
    files = {
        "__init__.py": STAND_IN,
        "extractor.py": "def gen_extractor_classes(): return []",
        "networking/_urllib.py": "",
        "downloader.py": "class common: pass",
        "utils.py": "def dfxp2srt(data): return data",
    }
    (package / "networking").mkdir(parents=True)
    for name, text in files.items():
        (package / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "x")


@pytest.mark.parametrize(
    ("deed", "title", "trouble"),
    [
        ("", "done", ""),
        ("socket", "denied: PermissionError", ""),
        ("connect", "denied: PermissionError", ""),
        ("read /etc/passwd", "denied: PermissionError", ""),
        ("read /proc/self/environ", "denied: PermissionError", ""),
        ("write /tmp/x", "denied: PermissionError", ""),
        ("run", "denied: PermissionError", ""),
        (
            "environment",
            "LC_CTYPE MALLOC_ARENA_MAX ORT_DISABLE_TELEMETRY PYTHONPATH YTDLP_NO_PLUGINS",
            "",
        ),
        ("crash", "", "yt-dlp crashed on it"),
        ("flood", "", "yt-dlp crashed on it"),
        ("eat", "", "it needs more memory than is allowed"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's own")
@pytest.mark.usefixtures("stand_in")
def test_whoever_takes_it_over_can_do_nothing(
    robbed: VideoPages, deed: str, title: str, trouble: str
):
    page = Blob(b"<video src=x>", "text/html")

    found = robbed.look(page, f"http://a.example/#{deed}", with_sound=False)

    assert found is not None
    assert found.trouble == trouble
    assert found.title.removeprefix("LC_CTYPE ") == title.removeprefix("LC_CTYPE ")


LIES: dict[str, dict[str, object]] = {
    "not a number": {"seconds": math.nan},
    "endless": {"seconds": math.inf},
    "negative": {"seconds": -1.0},
    "NUL in the title": {"title": "a\0b"},
    "NUL in the notes": {"own": True, "description": "a\0b"},
    "NUL in the reason": {"trouble": "a\0b"},
    "a title beyond its length": {"title": "a" * 1_001},
    "a date that is none": {"uploaded": "yesterday"},
    "captions beyond what was asked for": {"captions": b"x" * 1_001},
    "sound that nobody asked for": {"sound": b"RIFF"},
    "words of sites": {"words": ("bank",)},
    "another type": {"title": 1},
}
"""Answers that no honest child gives."""


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's own")
@pytest.mark.usefixtures("stand_in")
def test_what_it_answers_is_held_to_what_an_honest_one_says(app: App, lie: str):
    def say(answer: dict[str, object]) -> FoundVideo | None:
        told = msgspec.msgpack.encode({"shown": True, **answer}).hex()
        return videos.look(
            Blob(b"<video src=x>", "text/html"), f"http://a.example/#say {told}", with_sound=False
        )

    with VideoPages(app.fetcher, replace(OF_ROGUES, most_bytes=1_000)) as videos:
        videos._words = frozenset()  # no child of its own for these

        assert say({"title": "fine"}) == FoundVideo(shown=True, title="fine")
        assert say(LIES[lie]) == FoundVideo(shown=True, trouble="yt-dlp crashed on it")


@pytest.mark.parametrize("said", [math.nan, math.inf, -math.inf, -1, 0, "x", None, 10**400, True])
def test_a_length_that_is_none_is_left_out(said: object):
    seconds = _ytdlp._seconds(said)

    assert seconds is None or 0 < seconds < math.inf


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_whoever_takes_it_over_can_hold_it_for_so_long_only(app: App):
    with VideoPages(app.fetcher, VideoLimits(wall_seconds=8)) as videos:
        videos._words = frozenset()
        found = videos.look(
            Blob(b"<video src=x>", "text/html"), "http://a.example/#hang", with_sound=False
        )

    assert found is not None
    assert found.trouble == "it takes too long"


def test_a_process_that_does_not_start_is_told(app: App, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with VideoPages(app.fetcher) as videos:
        found = videos.look(Blob(b"<video src=x>"), "http://a.example/", with_sound=False)

    assert found is not None
    assert "does not start" in found.trouble


@pytest.mark.usefixtures("stand_in")
def test_closing_ends_those_who_look(app: App):
    page = Blob(b"<video src=x>", "text/html")
    with VideoPages(app.fetcher, OF_ROGUES) as videos:
        videos.look(page, "http://a.example/", with_sound=False)
        videos.close()

        with pytest.raises(Transient):
            videos.look(page, "http://a.example/#hang", with_sound=False)
