"""What endpoints ask for: the App, the key, and the tenant behind it.

They wait for nothing and are coroutines all the same: FastAPI hands a plain function to a thread.
"""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPBearer
from pydantic import AfterValidator

from recollect.api.wire import text
from recollect.app import App
from recollect.errors import PermissionDeniedError
from recollect.model import Key, Scope, Tenant
from recollect.orgs import tags

_RANK = {Scope.READ: 0, Scope.WRITE: 1, Scope.ADMIN: 2}
# The edge has checked the key; this tells the OpenAPI document that there is one.
bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key.")


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
ProviderName = Annotated[
    str, _ONE_SEGMENT, Path(description="A provider.", examples=["web-crawler"])
]
ProviderOrId = Annotated[
    str, _ONE_SEGMENT, Path(description="Id of a connection, or a provider.", examples=_AN_ID)
]


effective_tags = tags.asked


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
