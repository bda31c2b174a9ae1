"""`?wait=`: told by notices, and so many at a time; streams too."""

import asyncio
import contextlib
from collections.abc import Callable

import httpx
import pytest

from recollect.api import documents
from recollect.app import App
from recollect.db import Database
from recollect.errors import RateLimitError, Unavailable
from recollect.events.streams import STREAMS_OF_A_KEY, WAITS_OF_A_KEY, Events, StreamPlaces
from recollect.model import DocumentId
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.contract.calls import add, refused


def test_a_notice_of_the_document_wakes_and_one_of_another_does_not(
    client: httpx.Client, app: App, db: Database
) -> None:
    watched, other = add(client, "The one."), add(client, "Another one.")
    client.delete(f"/v3/documents/{other}")

    async def run() -> tuple[bool, bool]:
        events = Events(db.url)
        async with (
            events.of(DocumentId(watched)) as told,
            events.of(DocumentId(other)) as another,
        ):
            await asyncio.to_thread(drain, app)
            await asyncio.wait_for(told.wait(), 60)
            return told.is_set(), another.is_set()

    assert asyncio.run(run()) == (True, False)


def test_a_key_has_so_many_waits_and_others_have_theirs(
    client: httpx.Client, limited: Callable[..., httpx.Client], app: App
) -> None:
    id = add(client, containerTags=["notes"])
    another = limited(tags=["notes"])

    async def wait(http: httpx.AsyncClient) -> httpx.Response:
        return await http.get(f"/v3/documents/{id}", params={"wait": 60})

    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            base_url=client.base_url,
            headers=client.headers,
            timeout=120,
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        ) as http:
            waiting = [asyncio.create_task(wait(http)) for _ in range(WAITS_OF_A_KEY + 5)]
            # Those that are too many are refused; a look of ours before that would take a place.
            refusals = set[asyncio.Task[httpx.Response]]()
            while len(refusals) < 5:
                ended, _ = await asyncio.wait(
                    set(waiting) - refusals, timeout=60, return_when=asyncio.FIRST_COMPLETED
                )
                assert ended
                refusals |= ended
            assert await asyncio.to_thread(is_full)
            # Neither a look nor another key's wait is refused meanwhile, nor what takes a thread.
            assert (await http.get(f"/v3/documents/{id}")).status_code == 200
            assert (await http.get("/health")).status_code == 200
            theirs = await asyncio.to_thread(
                another.get, f"/v3/documents/{id}", params={"wait": 0.1}
            )
            assert theirs.json()["status"] == "queued"
            await asyncio.to_thread(drain, app)
            return await asyncio.gather(*waiting)

    def is_full() -> bool:
        answer = client.get(f"/v3/documents/{id}", params={"wait": 0.01})
        if answer.status_code == 200:
            return False
        refused(answer, 429)
        assert int(answer.headers["Retry-After"]) > 0
        return True

    answers = asyncio.run(run())
    assert {answer.status_code for answer in answers} == {200, 429}
    done = [answer.json()["status"] for answer in answers if answer.status_code == 200]
    assert set(done) == {"done"}
    assert len(done) == WAITS_OF_A_KEY
    assert client.get(f"/v3/documents/{id}?wait=1").status_code == 200, "the places are free again"


def test_the_longest_wait_ends_before_proxies_and_clients_give_up(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert documents.LONGEST_WAIT < 58
    monkeypatch.setattr(documents, "LONGEST_WAIT", 0.05)
    answer = client.get(f"/v3/documents/{add(client)}?wait=60", timeout=30)

    assert answer.json()["status"] == "queued"


def test_who_hangs_up_leaves_its_place(client: httpx.Client) -> None:
    id = add(client)

    async def hang_up() -> None:
        async with httpx.AsyncClient(
            base_url=client.base_url,
            headers=client.headers,
            timeout=120,
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        ) as http:
            tasks = [
                asyncio.create_task(http.get(f"/v3/documents/{id}?wait=60"))
                for _ in range(WAITS_OF_A_KEY + 1)
            ]
            # One too many is refused once all places are taken.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(hang_up())
    free = f"/v3/documents/{id}?wait=0.01"
    eventually(lambda: client.get(free).status_code == 200, timeout=20)


def test_a_key_has_so_many_streams(
    client: httpx.Client, limited: Callable[..., httpx.Client]
) -> None:
    path = "/v3/documents/events"
    with contextlib.ExitStack() as stack:
        for _ in range(STREAMS_OF_A_KEY):
            stream = stack.enter_context(client.stream("GET", path))
            assert stream.status_code == 200
        refused(client.get(path), 429)
        with limited(tags=["notes"]).stream("GET", path) as theirs:
            assert theirs.status_code == 200
    eventually(lambda: opens(client, path))


def opens(client: httpx.Client, path: str) -> bool:
    with client.stream("GET", path) as stream:
        return stream.status_code == 200


def test_places_are_few_for_a_key_and_bounded_in_all() -> None:
    places = StreamPlaces("streams", of_a_key=2, most=4)
    held = [places.take("one", "a"), places.take("one", "a")]
    with pytest.raises(RateLimitError, match="this key has 2 streams"):
        places.take("one", "a")
    held.append(places.take("two", "b"))
    held.append(places.take("three", "c"))
    with pytest.raises(Unavailable, match="all 4"):
        places.take("four", "d")
    held[0].leave()
    held[0].leave()
    held.append(places.take("four", "d"))
    with pytest.raises(Unavailable):
        places.take("five", "e")


def test_an_organisation_of_many_keys_leaves_places_to_others() -> None:
    places = StreamPlaces("streams", of_a_key=1, most=8)
    held = [places.take("greedy", str(key)) for key in range(4)]
    with pytest.raises(RateLimitError, match="this organisation has 4 streams"):
        places.take("greedy", "further")
    held += [places.take("second", f"second {key}") for key in range(2)]
    with pytest.raises(RateLimitError, match="others need the 2 that are left"):
        places.take("second", "further")
    held.append(places.take("third", "third"))
    held[0].leave()
    held[1].leave()
    held.append(places.take("greedy", "further"))
