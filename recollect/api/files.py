"""The uploaded file itself, behind an address that works for a day without a key."""

import hashlib
import hmac
import time
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response

from recollect import documents
from recollect.api.deps import BareId, CurrentApp, PathId, Reader
from recollect.api.schemas import FileUrl
from recollect.app import App, secret_keys
from recollect.errors import NotFoundError, Permanent, PermissionDeniedError
from recollect.model import OrgId, Tenant

router = APIRouter(tags=["documents"])
LIFETIME = 24 * 60 * 60
"""Seconds that an address of a file works."""


@router.get("/v3/documents/{id}/file-url", summary="Address of the file", operation_id="getFileUrl")
def address(id: PathId, request: Request, tenant: Reader, app: CurrentApp) -> FileUrl:
    """Valid for 24 hours, for whoever has it; 404 if the document was not uploaded as a file."""
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id)
        documents.file(tx, tenant, document.id)
    until = int(time.time()) + LIFETIME
    mark = _marks(app, tenant.id, document.id, until)[0]
    base = (app.config.public_url or str(request.base_url)).rstrip("/")
    return FileUrl(url=f"{base}/v3/files/{tenant.id}/{document.id}?until={until}&mark={mark}")


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
    app: CurrentApp,
    until: Annotated[int, Query(ge=0, le=10**12)],
    mark: Annotated[str, Query(max_length=100)],
) -> Response:
    """The bytes as they were uploaded; needs no key, the address is signed."""
    ours = _marks(app, org, id, until)
    if not any(hmac.compare_digest(mark.encode(), known.encode()) for known in ours):
        raise PermissionDeniedError("Forbidden", "this address was not made here")
    if until < time.time():
        raise PermissionDeniedError("Forbidden", "this address has expired")
    with app.db.begin() as tx:
        blob = documents.file(tx, Tenant(OrgId(org)), id)
    try:
        data = app.blobs.get(blob.key)
    except Permanent as error:
        raise NotFoundError("File not found", str(error)) from error
    name = quote(blob.name or "file", safe="")
    # Never shown in our origin: a stranger's HTML or SVG would run there.
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
        "cache-control": "private, max-age=300",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)


def _marks(app: App, org: str, id: str, until: int) -> list[str]:
    """One by each key of the installation, newest first."""
    signed = f"file\0{org}\0{id}\0{until}".encode("utf-8", "surrogatepass")
    return [hmac.new(key, signed, hashlib.sha256).hexdigest() for key in secret_keys(app.config)]
