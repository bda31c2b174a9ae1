"""What the endpoints of the door share: the namespace, ids in paths, and how refusals are told."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from pydantic import AfterValidator, BaseModel, ConfigDict

from recollect import log
from recollect.api.deps import ApiRoute, Reader, SentAgain, Writer
from recollect.api.namespaces._words import FIELDS, DoorError
from recollect.api.wire import RequestBody, text
from recollect.errors import (
    AmbiguousError,
    BadRequestError,
    Permanent,
    RateLimitError,
    Refused,
    RequestError,
)
from recollect.model import Tenant
from recollect.orgs import tags
from recollect.sync.connect import PlanError, UpstreamError

LOG = log.get("api")
MOST_ID = 255


class Closed(RequestBody):
    """A body with these fields and no others: what callers of the older API send by habit would
    else widen a search without a word."""

    model_config = ConfigDict(extra="forbid", populate_by_name=False)


class Nothing(Closed):
    """A body that holds nothing: what stood in it would be passed over, and all be deleted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}]})


def closed(**body: Any) -> ConfigDict:
    """As `schemas.example`, of a closed body."""
    return ConfigDict(json_schema_extra={"examples": [body]})


class DoorRoute(ApiRoute):
    """Fields of the body that stand in the query are refused; and nothing is a 409 or a 5xx for
    good, since the clients repeat those."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle: Callable[[Request], Awaitable[Response]] = super().get_route_handler()
        of_query = {field.alias for field in self.dependant.query_params}
        of_body = set(_fields(self.dependant)) - of_query
        [about] = {"config", "selection"} & of_body or {"metadata"}
        fields = {**FIELDS, "metadata": about}

        async def within(request: Request) -> Response:
            for name in request.query_params:
                if name in of_body:
                    raise BadRequestError(f"{name}: belongs in the body, not in the query")
            try:
                return await handle(request)
            except RateLimitError:
                raise
            except RequestError as error:
                raise DoorError(error, self._status(error), fields) from error
            except Refused:
                raise
            except Permanent as error:
                LOG.warning("refused elsewhere", error=str(error))
                raise BadRequestError(
                    "something that the service needs refuses what it is asked; the log has more"
                ) from error

        return within

    def _status(self, error: RequestError) -> int:
        """That of the error, unless the clients would repeat for good what never succeeds."""
        match error:
            case PlanError():
                return 402  # on the older paths 403
            case AmbiguousError():
                return 400
            case UpstreamError(permanent=False):
                return 503
            case RequestError(permanent=True) if error.status != self.status_code:
                return 400
            case _:
                return error.status


def _fields(dependant: Dependant) -> Iterator[str]:
    """The names in the body of a route's requests; those of a form are a dependency's."""
    for parameter in dependant.body_params:
        found = parameter.field_info.annotation
        for kind in (found, *getattr(found, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from (field.alias or name for name, field in kind.model_fields.items())
        yield parameter.alias
    for part in dependant.dependencies:
        yield from _fields(part)


_ANSWERS: dict[int | str, dict[str, Any]] = {
    403: {"description": "The key does not allow it."},
    404: {"description": "No such document, memory, connector, namespace, or path."},
    409: {"description": "A passing conflict, or a bucket of the organisation."},
}


def router(tag: str) -> APIRouter:
    return APIRouter(tags=[f"namespaces: {tag}"], route_class=DoorRoute, responses=_ANSWERS)


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of a request.

    `inside` is a tenant that may touch it alone; `key` the one of the request's key, for what
    concerns things with further tags; `retried`: see `Labels`.
    """

    name: str
    inside: Tenant
    key: Tenant
    retried: bool = False


def _named(raw: str, tenant: Tenant) -> Space:
    [name] = tags.asked(tenant, unquote(raw), None, default=False, field="namespace")
    return Space(name, Tenant(tenant.id, [name], tenant.key), tenant)


_Name = Annotated[str, Path(description="A container tag.", examples=["user_123"])]


async def reading(namespace: _Name, tenant: Reader) -> Space:
    return _named(namespace, tenant)


async def writing(namespace: _Name, tenant: Writer, retried: SentAgain) -> Space:
    return replace(_named(namespace, tenant), retried=retried)


Reads = Annotated[Space, Depends(reading)]
Writes = Annotated[Space, Depends(writing)]


def _id(raw: str) -> str:
    """The rest of the path: the Python client sends ids as they are, slashes included."""
    id = text(unquote(raw))
    if not 1 <= len(id) <= MOST_ID:
        raise ValueError(f"1 to {MOST_ID} characters")
    return id


RestId = Annotated[
    str,
    AfterValidator(_id),
    Path(description="Id, or the id that its writer gave.", examples=["7msRU48jI0KqwTPC6nnlhv"]),
]
Number = Annotated[int, Query(ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(ge=1, le=100)]


def words(*known: str) -> Callable[[Sequence[str]], list[str]]:
    """A check of a list in a query: `a=x&a=y` and `a=x,y` are the same."""

    def check(given: Sequence[str]) -> list[str]:
        said = [word.strip() for one in given for word in one.split(",")]
        found = [word for word in said if word]
        for word in found:
            if word not in known:
                raise ValueError(f"one of {', '.join(known)}, not {word[:80]!r}")
        return found

    return check


def flat(metadata: object) -> dict[str, Any]:
    """Metadata as the door shows it: always an object."""
    return dict(cast("dict[str, Any]", metadata)) if metadata else {}
