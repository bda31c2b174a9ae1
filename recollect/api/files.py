"""The uploaded file itself, behind an address that works for a day without a key in the request:
as long as the key that asked for it opens the document."""

import hashlib
import hmac
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response

from recollect import db, documents, encryption
from recollect.api.deps import ApiRoute, BareId, CurrentApp, CurrentKey, PathId, Reader
from recollect.api.document_schemas import FileUrl
from recollect.app import App, signing_keys
from recollect.blobs import get_whole
from recollect.errors import (
    AuthenticationError,
    NotFoundError,
    Permanent,
    PermissionDeniedError,
)
from recollect.model import KeyId, Tenant, storable
from recollect.orgs import orgs

router = APIRouter(tags=["documents"], route_class=ApiRoute)
LIFETIME = 24 * 60 * 60
"""Seconds that an address of a file works."""


@router.get(
    "/v3/documents/{id}/file-url", summary="Get the address of the file", operation_id="getFileUrl"
)
def address(
    id: PathId, request: Request, tenant: Reader, key: CurrentKey, app: CurrentApp
) -> FileUrl:
    """Valid for 24 hours, or until the key is revoked, for anyone who has it; 404 if the document
    was not uploaded as a file."""
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id)
        documents.file(tx, tenant, document.id)
        until = int(db.now(tx).timestamp()) + LIFETIME
    mark = _marks(app, tenant.id, document.id, key.id, until)[0]
    base = (app.config.public_url or str(request.base_url)).rstrip("/")
    signed = f"key={key.id}&until={until}&mark={mark}"
    return FileUrl(url=f"{base}/v3/files/{tenant.id}/{document.id}?{signed}")


@router.head("/v3/files/{org}/{id}", include_in_schema=False)
@router.get(
    "/v3/files/{org}/{id}",
    summary="Download a file",
    operation_id="downloadFile",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"format": "binary"}}}}},
)
def download(
    org: Annotated[str, Path(description="Id of the organisation.", examples=["default"])],
    id: BareId,
    request: Request,
    app: CurrentApp,
    until: Annotated[int, Query(ge=0, le=10**12)],
    mark: Annotated[str, Query(max_length=100)],
    key: Annotated[str, Query(max_length=100, description="Id of the key that asked.")] = "",
) -> Response:
    """The bytes as they were uploaded; needs no key, the address is signed."""
    ours = _marks(app, org, id, key, until)
    if not any(hmac.compare_digest(mark.encode(), known.encode()) for known in ours):
        raise PermissionDeniedError("Forbidden", "this link was not made by this service")
    with app.db.begin() as tx:
        if until < db.now(tx).timestamp():
            raise PermissionDeniedError("Forbidden", "this link has expired")
        try:
            asked = orgs.key(tx, KeyId(key))
        except AuthenticationError as error:
            message = "the key that asked for this link was revoked or has expired"
            raise PermissionDeniedError("Forbidden", message) from error
        blob = documents.file(tx, Tenant(asked.org.id, asked.tags, asked.id), id)
    # Bytes never change under their key.
    named = storable(f"{blob.key} {blob.name}").encode()
    headers = {
        "etag": f'"{hashlib.sha256(named).hexdigest()[:32]}"',
        "cache-control": "private, max-age=300",
    }
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    try:
        data = get_whole(app.blobs, blob.key)
    except Permanent as error:
        raise NotFoundError("File not found", str(error)) from error
    name = quote(blob.name or "file", safe="")
    # Never shown in our origin: a stranger's HTML or SVG would run there.
    headers |= {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)


def _marks(app: App, org: str, id: str, key: str, until: int) -> list[str]:
    """One by each key of the installation that signs, newest first."""
    signed = f"{org}\0{id}\0{key}\0{until}".encode("utf-8", "surrogatepass")
    keys = [encryption.derived(one, "addresses of files") for one in signing_keys(app.config)]
    return [hmac.digest(one, signed, "sha256").hex() for one in keys]
