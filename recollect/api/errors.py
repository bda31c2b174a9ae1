"""How errors become answers: one body, `{error, details?, issues?}`, for all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from recollect import log
from recollect.errors import (
    DATABASE_AWAY,
    DISK_FULL,
    NO_ROOM,
    READ_ONLY,
    BadRequestError,
    DatabaseAway,
    Issue,
    Permanent,
    RateLimitError,
    RequestError,
    Unavailable,
    by_place,
    in_words,
    sentence_of,
)
from recollect.loop import tell_bug

LOG = log.get("api")
LIKE = 0.75
"""Share of its letters that a wrong path has in common with the one that is told in its place."""
LONGEST_PATH = 200
"""Characters of it that are looked at."""
ONE_PART = "a file is one part of a form: in JavaScript a File, a stream, or toFile(buffer, name)"
"""The published client for JavaScript sends each byte of a Buffer as a field of its own."""
RPC_ERROR = -32603
"""The one code of JSON-RPC by which no client goes on in another way."""
ErrorPage = Callable[[Request, int, str, str | None, dict[str, str] | None], Response]
_NO_OBJECT = ("model_attributes_type", "dict_type", "model_type", "missing")


def request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    headers: dict[str, str] = {}
    if isinstance(error, RateLimitError):
        headers["retry-after"] = str(error.seconds)
    if error.permanent:
        headers["x-should-retry"] = "false"
    if error.status == 401:
        headers["www-authenticate"] = _challenge(request)
    return answer(request, error.status, error.message, error.details, error.issues, headers)


def _challenge(request: Request) -> str:
    """At /mcp it says where an assistant learns how to get a token (RFC 9728)."""
    if request.scope["path"] != request.scope["root_path"] + "/mcp":
        return "Bearer"
    public = request.app.state.app.config.public_url or str(request.base_url)
    own = quote(public.rstrip("/"), safe=":/[]%")
    wrong = 'error="invalid_token", ' if "authorization" in request.headers else ""
    return f'Bearer {wrong}resource_metadata="{own}/.well-known/oauth-protected-resource/mcp"'


def invalid(request: Request, error: Exception) -> Response:
    """Pydantic's findings in the contract's shape: 400, never 422."""
    assert isinstance(error, RequestValidationError)
    issues = [_issue(fault) for fault in by_place(error.errors())]
    details = "; ".join(
        f"{'.'.join(map(str, issue.path))}: {issue.message}" if issue.path else issue.message
        for issue in issues[:5]
    )
    return request_error(request, BadRequestError(details, issues))


def http_error(request: Request, error: Exception) -> Response:
    """What the framework itself raises: no such route, wrong method, an unreadable body."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, RequestError):  # raised while the body was read
        return request_error(request, error.__cause__)
    if isinstance(error.__cause__, OSError):  # its parts are kept in files of ours meanwhile
        told = f"the folder for temporary files (TMPDIR) takes nothing: {error.__cause__.strerror}"
        code = DISK_FULL if error.__cause__.errno in NO_ROOM else "dependency_down"
        return unavailable(request, Unavailable(told, code=code))
    path = request.url.path
    if error.status_code == 404:
        near = _without_slash(request) or _nearest(path, request.app.state.paths)
        hint = f"; do you mean {near}?" if near else "; see /docs for what there is"
        details = f"there is no {request.method} {path}{hint}"
        return answer(request, 404, "Not found", details)
    if error.status_code == 405:
        allowed = _methods(request) or (error.headers or {}).get("Allow", "")
        details = f"{path} takes {allowed}"
        return answer(request, 405, "Method not allowed", details, headers={"allow": allowed})
    return request_error(request, BadRequestError(_unreadable(error)))


def unavailable(request: Request, error: Exception) -> Response:
    """Nothing was accepted, or its outcome is unknown; a client may simply send it again.

    But not when the other side will refuse us again: clients repeat every 5xx unless told.
    """
    LOG.warning("unavailable", error=str(error))
    if isinstance(error, Permanent):
        details = "something that the service needs refused a request; see the log"
        headers = {"x-should-retry": "false"}
        return answer(request, 503, "Service unavailable", details, headers=headers)
    details = "something that the service needs does not answer; try again in a moment"
    if isinstance(error, DatabaseAway):
        details = f"{DATABASE_AWAY}; try again in a moment"
    elif isinstance(error, Unavailable) and error.code in (DISK_FULL, READ_ONLY):
        details = sentence_of(error)
    return answer(request, 503, "Service unavailable", details, headers={"retry-after": "1"})


def refused(request: Request, error: Exception) -> Response:
    """The database cannot keep or compare what was sent: to send it again cannot help. It passed
    our own checks, so the log says so loudly."""
    tell_bug(LOG, error)
    return request_error(request, BadRequestError(str(error)))


def bug(request: Request) -> Response:
    return answer(request, 500, "Internal server error", "see the log under this x-request-id")


def answer(
    request: Request,
    status: int,
    message: str,
    details: str | None = None,
    issues: Sequence[Issue] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """The answer as JSON; as a page below the console, where a person reads it; and as JSON-RPC at
    /mcp, since assistants show its message and nothing else."""
    path = request.scope["path"].removeprefix(request.scope["root_path"])
    page: ErrorPage | None = request.app.state.error_page
    if page is not None and (path + "/").startswith("/console/"):
        return page(request, status, message, details, headers)
    if path == "/mcp" and request.method == "POST":
        fault = {"code": RPC_ERROR, "message": f"{message}: {details}" if details else message}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": fault}, status, headers)
    body: dict[str, Any] = {"error": message}
    if details is not None:
        body["details"] = details
    if issues:
        body["issues"] = [{"path": list(i.path), "message": i.message} for i in issues]
    return JSONResponse(body, status, headers)


def _methods(request: Request) -> str:
    """All methods that the path takes; each of them is a route of its own."""
    found = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL
        for method in route.methods or ()
    }
    return ", ".join(sorted(found))


def _without_slash(request: Request) -> str | None:
    """The path without the slash at its end, if that is one."""
    path = request.scope["path"].rstrip("/")
    asked = {**request.scope, "path": path}
    known = (route for route in request.app.routes if isinstance(route, Route))
    return path if any(route.matches(asked)[0] is not Match.NONE for route in known) else None


def _nearest(path: str, known: Iterable[str]) -> str | None:
    """The path that is most like one that is not there, if any is much like it."""
    likeness = SequenceMatcher(b=path[:LONGEST_PATH])
    best, found = LIKE, None
    for name in known:
        likeness.set_seq1(name)
        if likeness.quick_ratio() > best and (ratio := likeness.ratio()) > best:
            best, found = ratio, name
    return found


def _unreadable(error: HTTPException) -> str:
    """Why the body could not be read, in words for anyone who sent it."""
    match error.__cause__:
        case UnicodeDecodeError():
            return "the body is not UTF-8"
        case RecursionError():
            return "the body nests too deeply"
        case ValueError():
            return "the body holds a number with too many digits"
        case _ if str(error.detail).startswith("Too many fields"):
            return f"the form has more than 1,000 fields; {ONE_PART}"
        case _:
            return str(error.detail)


def _issue(fault: Mapping[str, Any]) -> Issue:
    place = list(fault["loc"])
    if place[:1] and place[0] in ("body", "query", "path", "header"):
        del place[0]
    if "[key]" in place:  # how Pydantic says that the name itself is wrong
        del place[place.index("[key]") :]
    message = in_words(fault)
    if fault["type"] == "json_invalid":
        return Issue([], f"the body is not valid JSON: {fault['ctx']['error']}")
    if not place and fault["type"] in _NO_OBJECT:
        return Issue([], "the body must be a JSON object, sent as application/json")
    if message.startswith("Expected UploadFile"):
        return Issue(place, "must be a file, not a text field")
    return Issue(place, message)
