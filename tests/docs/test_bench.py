"""Each part of the benchmark still runs, at a size that says nothing about speed."""

import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bench import beside, evaluate, quality, sets
from bench.__main__ import PARTS
from bench.figures import Figure, Floor, alternate, as_json, below, floors, table
from bench.ground import PROJECT, Ground
from tests.conftest import Service
from tests.fakes.sets import write


@pytest.fixture(scope="module")
def ground(service: Service) -> Generator[Ground]:
    """With the model that the other service has built already."""
    with Ground() as found:
        shutil.copytree(service.data_dir / "cache", found.tmp / "model" / "cache")
        yield found


LONG = {
    "start",
    "memory",
    "quality",
    "scale",
    "replicas",
    "crawl",
    "extract",
    "ingest",
    "post",
    "citations",
}
"""these take their time however small they are: nightly; what ingest and post do, search and edit
begin with"""


@pytest.mark.costly
@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=[pytest.mark.slow] if part in LONG else []) for part in PARTS],
)
def test_a_part_gives_the_figures_that_floors_and_pages_name(
    ground: Ground, part: str, tmp_path: Path
):
    module: ModuleType = PARTS[part]
    options = {"data": write(tmp_path)} if module is quality else {}

    figures: list[Figure] = list(module.measure(ground, module.TINY, **options))

    ids = [figure.id for figure in figures]
    assert len(set(ids)) == len(ids)
    assert {id for id in floors() if id.startswith(f"{part}.")} <= set(ids)
    assert f"`{part}`" in (PROJECT / "docs" / "bench.md").read_text()
    assert below(figures, {id: Floor("value", least=0) for id in ids}) == []


@pytest.mark.slow
@pytest.mark.costly
def test_the_command_says_of_a_set_what_the_benchmark_says(
    ground: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    covid = next(one for one in sets.public(write(tmp_path)) if one.name == "covid")
    assert isinstance(covid, sets.Set)

    assert evaluate.compare(ground, covid, 2) == 0
    assert "hitAt1   bench 1.0000  recollect evaluate 1.0000" in capsys.readouterr().out


def test_a_figure_below_its_floor_is_named():
    slow = Figure("ingest.long", "long documents", 12.0, "chunks/s", 0.5, "bare embedding")
    kept = {"ingest.long": Floor("ratio", least=0.85), "memory.idle": Floor("value", most=450)}

    assert below([slow], kept) == [slow]
    assert "ratio ≥ 0.85  BELOW" in table([slow], kept)
    assert as_json([slow], kept)[0]["ok"] is False
    assert below([Figure("memory.idle", "idle", 450.0, "MB")], kept) == []


def test_a_ratio_without_its_counterpart_has_no_floor():
    alone = Figure("extract.html", "files", 3.0, "MB/s", None, "no trafilatura here")
    kept = {"extract.html": Floor("ratio", least=0.8)}

    assert below([alone], kept) == []
    assert "ratio ≥ 0.8" not in table([alone], kept)


def test_a_ratio_is_to_what_was_measured_before_and_after():
    bare = [10.0, 20.0, 40.0]

    found, ratios = alternate(2, lambda number: bare[number], lambda number: 15.0 * (number + 1))

    assert found == [15.0, 30.0]
    assert ratios == [1.0, 1.0]


def test_the_recall_of_another_store_counts_those_in_scope():
    vectors = np.eye(4, dtype=np.float32)
    queries = vectors[:2]
    within = np.array([True, True, True, False])

    assert beside.recall(vectors, within, queries, [[0, 1, 2], [1]]) == pytest.approx(2 / 3)
    assert beside.recall(vectors, within & False, queries, [[], []]) == 1.0


def test_a_store_that_is_not_installed_says_so(tmp_path: Path):
    asked = tmp_path / "asked.npz"
    np.savez(asked, vectors=np.eye(2), tags=["a", "a"], draws=[0, 1], queries=[], scopes="{}")

    with pytest.raises(RuntimeError, match="chromadb"):
        beside.ask(Path(sys.executable), "chroma", asked, tmp_path / "chroma")
