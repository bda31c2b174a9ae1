"""What endpoints ask for: the App, the key, and the tenant behind it; and a query that says
nothing twice.

They wait for nothing and are coroutines all the same: FastAPI hands a plain function to a thread.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import unquote

from fastapi import Depends, Path, Request, Response, Security
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import AfterValidator

from recollect import connectors
from recollect.api.wire import text
from recollect.app import App
from recollect.errors import BadRequestError, PermissionDeniedError
from recollect.model import Key, Scope, Tenant
from recollect.orgs import tags

_RANK = {Scope.READ: 0, Scope.WRITE: 1, Scope.ADMIN: 2}
# The edge has checked the key; this tells the OpenAPI document that there is one.
bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key.")


class ApiRoute(APIRoute):
    """Of what a query says twice, one would be lost, so it is refused."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        once = frozenset(_single(self.dependant))

        async def within(request: Request) -> Response:
            given = [name for name, _ in request.query_params.multi_items() if name in once]
            for name in set(given):
                if given.count(name) > 1:
                    raise BadRequestError(f"{name}: stands in the query twice")
            return await handle(request)

        return within


async def current_app(request: Request) -> App:
    return request.app.state.app


async def current_key(request: Request, _: Annotated[object, Security(bearer)]) -> Key:
    return request.scope["state"]["key"]


CurrentApp = Annotated[App, Depends(current_app)]
CurrentKey = Annotated[Key, Depends(current_key)]


async def reader(key: CurrentKey) -> Tenant:
    return _tenant(key)


async def writer(key: CurrentKey) -> Tenant:
    return _allowed(key, Scope.WRITE)


async def admin(key: CurrentKey) -> Tenant:
    return _unlimited(key, _allowed(key, Scope.ADMIN))


async def whole(key: CurrentKey) -> Tenant:
    return _unlimited(key, _tenant(key))


Reader = Annotated[Tenant, Depends(reader)]
Whole = Annotated[Tenant, Depends(whole)]
Writer = Annotated[Tenant, Depends(writer)]
Admin = Annotated[Tenant, Depends(admin)]
_ONE_SEGMENT = AfterValidator(lambda segment: text(unquote(segment)))
_AN_ID = ["7msRU48jI0KqwTPC6nnlhv"]
PathId = Annotated[
    str, _ONE_SEGMENT, Path(description="Id or customId, percent-encoded.", examples=_AN_ID)
]
"""of a document"""
BareId = Annotated[str, _ONE_SEGMENT, Path(description="Id.", examples=_AN_ID)]
TagName = Annotated[str, _ONE_SEGMENT, Path(description="A container tag.", examples=["user_123"])]
ProviderName = Annotated[
    str, _ONE_SEGMENT, Path(description="A provider.", examples=[connectors.example().provider])
]
ProviderOrId = Annotated[
    str, _ONE_SEGMENT, Path(description="Id of a connection, or a provider.", examples=_AN_ID)
]


effective_tags = tags.asked


async def _sent_again(request: Request) -> bool:
    return request.headers.get("x-stainless-retry-count", "").lstrip("0").isdecimal()


SentAgain = Annotated[bool, Depends(_sent_again)]
"""Whether a client says that it sends a request again, since it got no answer: the published ones
count so."""


def refuse_slips(request: Request, name: str) -> None:
    """A deletion whose query may say one thing, by this name: a slip in that would delete what was
    to be spared. Raises BadRequestError."""
    given = [one for one, _ in request.query_params.multi_items()]
    if given not in ([], [name]):
        wrong = next((one for one in given if one != name), name)
        raise BadRequestError(f"{wrong}: the query takes {name}, once, and nothing else")


def wants(accept: str | None, kind: str) -> bool:
    """Whether this kind of answer is named before JSON and before anything."""
    kinds = [one.partition(";")[0].strip().lower() for one in (accept or "").split(",")]
    found = [one for one in kinds if one in (kind, "application/json", "*/*")]
    return found[:1] == [kind]


def _unlimited(key: Key, tenant: Tenant) -> Tenant:
    if key.tags is not None:
        raise PermissionDeniedError("Forbidden", "this key is limited to container tags")
    return tenant


def _allowed(key: Key, scope: Scope) -> Tenant:
    if _RANK[key.scope] < _RANK[scope]:
        raise PermissionDeniedError(
            "Forbidden", f"this key has the scope {key.scope}, which does not allow it"
        )
    return _tenant(key)


def _tenant(key: Key) -> Tenant:
    return Tenant(key.org.id, key.tags, key.id)


def _single(dependant: Dependant) -> Iterator[str]:
    """Names of a query that stand for one value, not for a list."""
    for field in dependant.query_params:
        if not _is_list(field.field_info.annotation):
            yield field.alias
    for part in dependant.dependencies:
        yield from _single(part)


def _is_list(annotation: object) -> bool:
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return True
    return any(_is_list(one) for one in get_args(annotation))
