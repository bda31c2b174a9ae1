"""Adding from a form: what its fields mean. The rules are those of the API, in `intake`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.datastructures import FormData, UploadFile

from recollect import extract
from recollect.app import App
from recollect.console import (
    _room,
)
from recollect.console._documents import those
from recollect.console._room import (
    LIVE,
    CurrentApp,
    Part,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    known_tags,
    page,
)
from recollect.errors import (
    BadRequestError,
    RequestError,
)
from recollect.ingest import intake
from recollect.ingest.intake import CUSTOM_ID, Labels, Sent
from recollect.model import (
    Document,
    DocumentId,
    Tenant,
    storable,
)
from recollect.orgs import tags

METADATA_ROWS = 3
LONGEST_PATH = 1_000
"""characters, as of the API"""
CHECKED = 50
"""Files of which one request brings the first bytes."""
FIELDS = ("content", "file", "tag", "customId", "metadata", "filepath")

Ids = Annotated[list[Text] | None, Query(max_length=1_000)]

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class FormDraft:
    """What a form holds, as it was typed."""

    content: str = ""
    title: str = ""
    opened_title: str = ""
    """of a document that is changed: what its title was when the form was opened"""
    tag: str = ""
    custom_id: str = ""
    filepath: str = ""
    rows: Sequence[tuple[str, str, str]] = ()
    """metadata as (key, type, value)"""


@rooms.get("/console/add")
def add_form(request: Request, tenant: Writer, app: CurrentApp) -> Response:
    return adding_page(request, app, tenant, FormDraft(), [], [])


@rooms.post("/console/add")
async def add(request: Request, tenant: Writer, app: CurrentApp) -> Response:
    # Read here because the framework's own reading would end a pasted text at 1 MB.
    limit = intake.CONTENT_LIMIT
    async with request.form(max_files=100, max_fields=500, max_part_size=limit) as form:
        return await run_in_threadpool(_add, request, app, tenant, form)


def _add(request: Request, app: App, tenant: Tenant, form: FormData) -> Response:
    """Add what the form holds, each on its own; what was refused is shown above the form."""
    draft = drafted(form)
    content = draft.content
    files = _files(form)
    texts = [content] if content.strip() else []
    try:
        labelled = _labelled(tenant, draft, len(files) + len(texts))
        if not files and not texts:
            raise BadRequestError("content: write a text, paste a URL, or choose a file")
    except RequestError as error:
        return _refused(request, app, tenant, draft, [("", error)], [], bool(files))
    added: list[DocumentId] = []
    refused: list[tuple[str, RequestError]] = []
    for text in texts:
        try:
            added.append(add_text(app, tenant, labelled, text).id)
            draft = replace(draft, content="")
        except RequestError as error:
            refused.append(("", error))
    for file in files:
        sent = Sent(file.file, file.filename, file.content_type)
        try:
            added.append(intake.take_file(app, tenant, labelled, sent).id)
        except RequestError as error:
            refused.append((file.filename or "", error))
    if refused:
        return _refused(request, app, tenant, draft, refused, added, bool(files))
    if _wants_json(request):
        return JSONResponse({"added": added, "faults": {}})
    return RedirectResponse(address("/console/progress", id=added), 303)


@rooms.post("/console/add/check")
async def check(request: Request, tenant: Writer) -> Response:
    """What would be refused, before it is sent: by field, and for each file (of which the first
    bytes came) the reason or null. `number`: how many things are about to be added."""
    async with request.form(max_files=CHECKED, max_fields=500) as form:
        return await run_in_threadpool(_check, tenant, form)


def _check(tenant: Tenant, form: FormData) -> Response:
    number = "".join(_fields(form, "number"))
    faults: dict[str, str] = {}
    try:
        _labelled(tenant, drafted(form), int(number) if number.isdecimal() else 1)
    except RequestError as error:
        faults = {field_of(error): _said(error)}
    return JSONResponse({"faults": faults, "files": [_unfit(file) for file in _files(form)]})


def _unfit(file: UploadFile) -> str | None:
    """Why a file is not taken, by its first bytes."""
    mime = storable(file.content_type or "")[:255] or None
    try:
        intake.kind_of(file.file.read(extract.HEAD), extract.safe_name(file.filename), mime)
    except RequestError as error:
        return _said(error)
    return None


def _labelled(tenant: Tenant, draft: FormDraft, number: int) -> Labels:
    """The labels for so many things; raises BadRequestError and PermissionDeniedError."""
    found = labels(tenant, draft.tag, draft.custom_id.strip(), draft.rows)
    if found.custom_id and number > 1:
        raise BadRequestError("customId: names one document; add one at a time")
    return replace(found, filepath=path(draft.filepath))


def _refused(
    request: Request,
    app: App,
    tenant: Tenant,
    draft: FormDraft,
    refused: Sequence[tuple[str, RequestError]],
    added: Sequence[DocumentId],
    had_files: bool,
) -> Response:
    """For the script what it asks for, else the form with what was typed, and the reasons."""
    if not _wants_json(request):
        return adding_page(request, app, tenant, draft, refused, added, had_files)
    faults = {"file" if name else field_of(error): _said(error) for name, error in refused}
    return JSONResponse({"added": added, "faults": faults}, refused[0][1].status)


def _wants_json(request: Request) -> bool:
    return request.headers.get("accept") == "application/json"


def field_of(error: RequestError) -> str:
    """The field of the form that an error names; empty: none of them."""
    named = (error.details or "").partition(":")[0]
    return named if named in FIELDS else ""


def _said(error: RequestError) -> str:
    return _room.sentence(error)


def adding_page(
    request: Request,
    app: App,
    tenant: Tenant,
    draft: FormDraft,
    refused: Sequence[tuple[str, RequestError]],
    added: Sequence[DocumentId],
    had_files: bool = False,
) -> Response:
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    blank = max(METADATA_ROWS - len(draft.rows), 0)
    values = {
        "draft": draft,
        "rows": [*draft.rows, *[("", "text", "")] * blank],
        "own_tags": tenant.tags,
        "known": known,
        "megabytes": app.config.max_file_mb,
        "kinds": extract.supported(),
        "refused": refused,
        "faults": {field_of(error): _said(error) for name, error in refused if not name},
        "had_files": had_files,
        "added": len(added),
        "progress": address("/console/progress", id=added),
        "snippets": _room.code(request, "addDocument"),
        "of_files": _room.code(request, "uploadFile"),
    }
    return page(request, "add.html", values, refused[0][1].status if refused else 200)


@rooms.get("/console/progress")
def progress(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    id: Ids = None,
    part: Part = "",
    q: Annotated[Text, Query(max_length=500)] = "",
    tag: Annotated[Text, Query(max_length=100)] = "",
) -> Response:
    """Some documents on their way, until all are searchable or have failed. `q`: what to ask them
    then."""
    with app.db.begin() as tx:
        found = those(tx, tenant, id or ())
    values = {"documents": found, "q": q, "ask": address("/console/search", q=q, tag=tag)}
    return page(request, "_progress.html" if part == LIVE else "progress.html", values)


def drafted(form: FormData) -> FormDraft:
    content, title, opened, tag, custom_id, filepath = (
        "".join(_fields(form, name))
        for name in ("content", "title", "openedTitle", "tag", "customId", "filepath")
    )
    names, kinds, values = (_fields(form, name) for name in ("key", "kind", "value"))
    rows = list(zip(names, kinds, values, strict=False))
    return FormDraft(content, title, opened, tag, custom_id, filepath, rows)


def _files(form: FormData) -> list[UploadFile]:
    return [part for part in form.getlist("file") if isinstance(part, UploadFile) and part.filename]


def _fields(form: FormData, name: str) -> list[str]:
    return [value for value in form.getlist(name) if isinstance(value, str)]


def labels(
    tenant: Tenant, tag: str, custom_id: str, rows: Sequence[tuple[str, str, str]]
) -> Labels:
    """Checked labels; empty fields mean absent. `tag`: one, or several with commas between them;
    `rows`: metadata as (key, type, value).

    Raises BadRequestError, and PermissionDeniedError for a tag that the key may not touch.
    """
    several = [name for part in tag.split(",") if (name := part.strip())]
    named = tags.asked(tenant, None, several, default=False, field="tag")
    if custom_id and (len(custom_id) > CUSTOM_ID or not intake.is_one_line(custom_id)):
        raise BadRequestError(f"customId: 1 to {CUSTOM_ID} characters, none of them a control")
    given = {key: _value(key, kind, value) for key, kind, value in rows if key or value}
    try:
        metadata = intake.metadata(given)
    except ValueError as error:
        raise BadRequestError(f"metadata: {error}") from error
    return Labels(tags=named, custom_id=custom_id or None, metadata=metadata or None)


def title(typed: str) -> str:
    """A title, checked. Raises BadRequestError."""
    named = typed.strip()
    if len(named) > LONGEST_PATH or not intake.is_one_line(named):
        raise BadRequestError(f"title: 1 to {LONGEST_PATH} characters, none of them a control")
    return named


def path(typed: str) -> str | None:
    """A file path, checked; None for an empty one. Raises BadRequestError."""
    named = typed.strip()
    if len(named) > LONGEST_PATH or not intake.is_one_line(named):
        raise BadRequestError(f"filepath: 1 to {LONGEST_PATH} characters, none of them a control")
    return named or None


def add_text(app: App, tenant: Tenant, labels: Labels, text: str) -> Document:
    """A text, or a content that is one http(s) URL and nothing else, which is fetched."""
    text = storable(text.replace("\r\n", "\n"))  # forms send CRLF whatever was typed
    try:
        content = intake.content_of(app, intake.text(text))
    except ValueError as error:
        raise BadRequestError(f"content: {error}") from error
    return intake.take(app, tenant, labels, content)


def _value(key: str, kind: str, value: str) -> Any:
    """What was typed, as the type that was chosen."""
    match kind:
        case "number":
            try:
                found: object = json.loads(value)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, bool) or not isinstance(found, int | float):
                raise BadRequestError(f"metadata: {key[:80]}: {value[:40]!r} is not a number")
            return found
        case "boolean":
            if value.strip().lower() not in ("true", "false"):
                raise BadRequestError(f"metadata: {key[:80]}: must be true or false")
            return value.strip().lower() == "true"
        case _:
            return value
