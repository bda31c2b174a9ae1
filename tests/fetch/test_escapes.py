"""Nothing gets out: seen by the packets, where every address of the world would answer."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.conftest import eventually, start_service, stop_service
from tests.fakes.island import Island, ashore, missing
from tests.fakes.siege import besiege, visit_neighbours
from tests.fakes.site import Site
from tests.fetch.test_fetch_addresses import PUBLIC_V4, PUBLIC_V6

needs_island = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@needs_island
def test_an_island_sees_whoever_leaves_it() -> None:
    seen = ashore(visit_neighbours)

    assert seen["good"] == [*PUBLIC_V4, *PUBLIC_V6]
    assert set(seen["sought"]) == {
        *PUBLIC_V4,
        *PUBLIC_V6,
        "169.254.169.254",
        "10.1.2.3 for the address of example.net",
    }


@needs_island
def test_no_packet_goes_to_an_inner_address_whatever_a_stranger_says() -> None:
    seen = ashore(besiege)

    assert seen["tried"] > 1_500
    assert seen["sought"] == [PUBLIC_V4[2]], "it redirects, or is the answer of the moment"
    assert seen["asked"] > seen["got"] > 0, "the secret was there to be had"


def live_alone() -> dict[str, Any]:
    """The whole service, from its first start to a crawl and a search."""
    with Island() as island, TemporaryDirectory() as folder, Site() as site:
        Path(folder).chmod(0o755)  # where PostgreSQL has a user of its own
        site.write("/", "Herons eat frogs.", ["https://example.com/", "http://10.0.0.1/"])
        service = start_service(Path(folder) / "data")
        try:
            with service.client() as client:
                made = client.post(
                    "/v3/connections/web-crawler",
                    json={"metadata": {"startUrl": site.url("/")}, "containerTags": ["alone"]},
                )
                assert made.status_code < 300, made.text

                def hits() -> list[Any]:
                    asked = {"q": "what do herons eat", "containerTags": ["alone"]}
                    return client.post("/v3/search", json=asked).json()["results"]

                found = eventually(hits, 90)
                inner = client.post("/v3/documents", json={"content": "http://169.254.169.254/"})
        finally:
            stop_service(service)
    return {"found": len(found), "inner": inner.status_code, "sought": sorted(island.sought())}


@needs_island
@pytest.mark.slow
def test_the_service_works_without_a_network_and_looks_for_none() -> None:
    seen = ashore(live_alone, timeout=300)

    assert seen["found"] == 1
    assert seen["inner"] == 400
    assert seen["sought"] == []
