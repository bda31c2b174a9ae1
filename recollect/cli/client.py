"""The service as the command line sees it: an address, a key, and calls that answer or raise."""

import io
import json
import re
import ssl
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Annotated, Any, ClassVar, NoReturn, Self, cast
from urllib.parse import quote, urlsplit

import typer

from recollect.config import Config, host_of, is_this_machine, load
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    RecollectError,
    RequestError,
    SetupError,
    Transient,
)
from recollect.fetch import Endpoint, EndpointAnswer

WHERE_KEYS_ARE = (
    "the service needs a valid API key. That of the first start is in DATA_DIR/api-key;"
    " `recollect keys create` creates others. Pass one with --key or RECOLLECT_API_KEY"
)
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the tries of a patient service."""
LONGEST_PAUSE = 60.0
PAGE = 1100
"""The most documents that one answer may list."""

_OPTIONS = {
    "asOf": "--as-of",
    "containerTags": "--tag",
    "containerTag": "--tag",
    "customId": "--id",
    "documentLimit": "--limit",
    "events": "--event",
    "filters": "--filter",
    "q": "the query",
}
"""Fields of requests, and how they are given here."""
_FIELD = re.compile(rf"(^|; )({'|'.join(_OPTIONS)})(?:\.\d+(?=:)|(?=[.:\[]))")
"""With the number of one of several: options are given one by one."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Address of the service; default RECOLLECT_URL, then http://HOST:PORT.",
        rich_help_panel="Service",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="API key; default RECOLLECT_API_KEY, then the file DATA_DIR/api-key.",
        rich_help_panel="Service",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="As of this time: 2026-11-20, or 2026-11-20T09:30:00Z."),
]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document as the service lists it."""

    id: str
    status: str
    stage: str | None
    title: str | None
    custom_id: str | None
    tags: Sequence[str]
    filepath: str | None
    url: str | None
    created_at: datetime
    updated_at: datetime
    error_code: str | None
    error_message: str | None
    archive_path: str | None
    """where a file lay in its archive"""
    members: int | None
    """of an archive: how many documents came out of it"""
    warnings: Sequence[str]
    """what of it was not read, and why"""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(
            id=given["id"],
            status=given["status"],
            stage=given["processingStage"],
            title=given["title"],
            custom_id=given["customId"],
            tags=given["containerTags"],
            filepath=given["filepath"],
            url=given.get("url"),
            created_at=datetime.fromisoformat(given["createdAt"]),
            updated_at=datetime.fromisoformat(given["updatedAt"]),
            error_code=given.get("errorCode"),
            error_message=given.get("errorMessage"),
            archive_path=given.get("archivePath"),
            members=given.get("members"),
            warnings=given.get("warnings", ()),
        )

    @property
    def source(self) -> str:
        """Where it came from, in the words of the user who added it."""
        return self.filepath or self.url or self.custom_id or ""

    @property
    def finished(self) -> bool:
        return self.status in ("done", "failed")


_MAY_BE_NULL = frozenset(
    {
        "authLink", "before", "customId", "detail", "disabledReason", "document", "error",
        "errorCode", "errorMessage", "excludeItems", "expiresIn", "filepath", "filterPrompt",
        "finishedAt", "includeItems", "knownUntil", "nextAttemptAt", "nextSyncAt",
        "processingStage", "pushes", "queuedBefore", "rank", "rankBefore", "reason", "runBefore",
        "secret", "share", "title", "words",
    }
)  # fmt: skip
"""Fields of answers that may lack a value. A name that has one in some answers and may have none in
others is not here: it is read by `get` where it may have none."""


class ServiceAnswer(dict[str, Any]):
    """An object that came from the service: what is read by name is there, and so are the members
    of a list."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        lacks = value is None and name not in _MAY_BE_NULL
        return self.__missing__(name) if lacks or _has_holes(value) else value

    def __missing__(self, name: str) -> NoReturn:
        raise SetupError(
            f"the answer of the service lacks {name!r}: it is another version of Recollect than"
            " this one, or something else; is its address right?"
        )


def _has_holes(value: object) -> bool:
    return isinstance(value, list) and None in value


def _holds_objects(body: object) -> bool:
    members = cast("list[object]", body) if isinstance(body, list) else [body]
    return all(isinstance(one, ServiceAnswer) for one in members)


_EVENT = re.compile(rb"event: (?P<name>\w+)\ndata: (?P<data>[^\n]*)")


class Service:
    """One service with one key; may be shared by threads.

    Calls raise RequestError when the service refuses, Transient when it cannot answer now, and
    SetupError when there is none, or something else, at its address.
    """

    answered: ClassVar[bool] = False
    """whether one did, so that what fails from then on may be due to what it said"""

    def __init__(
        self, url: str, key: str | None, pauses: Sequence[float] = (), *, timeout: float = 60.0
    ) -> None:
        """`pauses`: seconds to wait before each further try when the service cannot answer;
        `timeout`: seconds without any progress."""
        self.url = url.rstrip("/")
        self._key = key
        self._pauses = pauses
        self._stop = threading.Event()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(self.url, headers=headers, timeout=timeout)

    def patient(self) -> "Service":
        """The same for long work: a restart of the service or a rate limit is waited out."""
        return Service(self.url, self._key, PAUSES)

    def stop(self) -> None:
        """End all waiting between tries, in whatever thread."""
        self._stop.set()

    def get(self, path: str) -> dict[str, Any]:
        return self._answered(lambda: self._endpoint.request("GET", path))

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._answered(lambda: self._endpoint.request(method, path, json=body))

    def array(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Of calls that answer with an array."""
        return self._answered(lambda: self._endpoint.request(method, path, json=body), list)

    def unused(self, tags: Sequence[str] | None) -> str:
        """`; no document has the tag a` for the first such of the tags, without those that stand
        for several (`team:*`); empty if documents have all of them."""
        for tag in tags or ():
            if tag.endswith("*"):
                continue
            try:
                count = self.get(f"/v3/container-tags/{quote(tag, safe='')}")["documentCount"]
            except NotFoundError:
                count = 0
            if not count:
                return f"; no document has the tag {tag}"
        return ""

    def trouble(self) -> str | None:
        """Why it cannot work now, in its own words. None: it can, or other calls tell."""
        try:
            told = json.loads(self._endpoint.request("GET", "/ready").data)
        except (Transient, ValueError, RecursionError):
            return None
        return told.get("reason") if isinstance(told, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    def document(self, id: str, as_of: str | None = None) -> dict[str, Any]:
        """One document by id or customId, all that the service shows of it; `as_of`: as it was."""
        then = "" if as_of is None else f"?asOf={quote(as_of, safe='')}"
        return self.get(f"/v3/documents/{quote(id, safe='')}{then}")

    def versions(self, id: str) -> dict[str, Any]:
        return self.get(f"/v3/documents/{quote(id, safe='')}/versions")

    def page(self, **query: object) -> tuple[list[DocumentRow], int]:
        """One page of a list, and how many documents match in all."""
        answer = self.send("POST", "/v3/documents/list", query)
        return [DocumentRow.of(given) for given in answer["memories"]], answer["pagination"][
            "totalItems"
        ]

    def documents(self, **query: object) -> Iterator[DocumentRow]:
        """All documents that match, the oldest first."""
        number, total = 1, 1
        while (number - 1) * PAGE < total:
            found, total = self.page(**query, order="asc", limit=PAGE, page=number)
            yield from found
            number += 1

    def upload(
        self, open: Callable[[], IO[bytes]], name: str, mime: str, fields: Mapping[str, str]
    ) -> dict[str, Any]:
        """Send a file, which is opened for each try and read while it is sent. Raises OSError when
        it becomes shorter meanwhile."""

        def ask() -> EndpointAnswer:
            with open() as file:
                sent = (name, cast(IO[bytes], _AsLongAsItWas(file)), mime)
                return self._endpoint.request(
                    "POST", "/v3/documents/file", data=fields, files={"file": sent}
                )

        return self._answered(ask)

    async def events(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """Name and data of each event of an answer that is a stream, as they come."""
        try:
            async with self._endpoint.stream(path, json=body) as answer:
                rest = b""
                async for part in answer.parts:
                    rest += part
                    if answer.status == 200:
                        *whole, rest = rest.split(b"\n\n")
                        for event in filter(None, map(_EVENT.fullmatch, whole)):
                            data = json.loads(event["data"], object_hook=ServiceAnswer)
                            Service.answered = True
                            yield event["name"].decode(), data
                if answer.status != 200:
                    self._read(EndpointAnswer(answer.status, answer.headers, rest), dict)
        except Transient as error:
            raise self._explained(error) from error

    def _answered(self, ask: Callable[[], EndpointAnswer], kind: type = dict) -> Any:
        pauses = iter(self._pauses)
        while True:
            try:
                return self._read(ask(), kind)
            except Transient as error:
                pause = next(pauses, None)
                if pause is None or self._stop.is_set():
                    raise self._explained(error) from error
                after = error.after.total_seconds() if error.after else 0.0
                self._stop.wait(min(max(pause, after), LONGEST_PAUSE))

    def _read(self, answer: EndpointAnswer, kind: type) -> Any:
        if answer.status == 204 and kind is dict:
            return ServiceAnswer()
        try:
            body = json.loads(answer.data, object_hook=ServiceAnswer)
        except (ValueError, RecursionError):
            body = None
        good = 200 <= answer.status < 300
        if not (isinstance(body, kind if good else dict) and _holds_objects(body)):
            if answer.status >= 500:
                raise Transient(f"{self.url} answered {answer.status}")
            raise self._strange(answer)
        if not good:
            raise _refusal(answer, cast(dict[str, Any], body))
        Service.answered = True
        return body

    def _strange(self, answer: EndpointAnswer) -> RecollectError:
        """An answer that is not the service's: of a proxy in front of it, or of something else."""
        if answer.status == 413:
            return BadRequestError(
                f"the proxy at {self.url} takes no request as large as this one: raise its limit to"
                " 80 MB (nginx: client_max_body_size 80m)"
            )
        told = f"{self.url} answered {answer.status}, but not as Recollect does"
        to = answer.headers.get("location", "").partition("?")[0]
        if 300 <= answer.status < 400 and to.isprintable():
            return SetupError(f"{told}: it leads to {to}. Give the address that it leads to")
        return SetupError(f"{told}; is that the right address?")

    def _explained(self, error: Transient) -> RecollectError:
        if error.code != "unreachable":
            return error
        if (trouble := _tls_trouble(error)) is None:
            return SetupError(f"no service at {self.url}; start it with `recollect serve`")
        plain = self.url.replace("https:", "http:", 1)
        return SetupError(f"{self.url}: {trouble}; without TLS its address is {plain}")


def open_service(url: str | None, key: str | None, *, timeout: float = 60.0) -> Service:
    """The service that the options, else the settings name.

    Raises SetupError, and BadRequestError for an address that is not one.
    """
    config = load()
    address = (url or config.url or config.address).rstrip("/")
    parts = urlsplit(address)
    is_plain = not (parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        source = "--url" if url else "RECOLLECT_URL"
        raise BadRequestError(f"{source} {address}: give it as http://HOST:PORT")
    if key is None and config.api_key is not None:
        key = config.api_key.get_secret_value()
    key = (key or "").strip() or _kept_key(config, address)
    if key and not (key.isascii() and key.isprintable()):
        raise BadRequestError(f"this is not an API key; {WHERE_KEYS_ARE}")
    return Service(address, key, timeout=timeout)


def _kept_key(config: Config, address: str) -> str | None:
    """The key that `serve` made on this machine, for services on this machine only."""
    if address != config.address and not is_this_machine(host_of(address)):
        return None
    path = config.data_dir / "api-key"
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(
            f"the key in {path} cannot be read ({error.strerror});"
            " give one with --key or RECOLLECT_API_KEY"
        ) from error


def in_words_of_ours(details: str) -> str:
    """What the API calls a field, as the option that gave it."""
    return _FIELD.sub(lambda found: f"{found[1]}{_OPTIONS[found[2]]}", details)


def _tls_trouble(error: BaseException | None) -> str | None:
    """Why something answers there, but not in TLS, or not as who it should be."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message})"
        if isinstance(error, ssl.SSLError):
            return "what answers there does not speak TLS"
        error = error.__cause__ or error.__context__
    return None


class _AsLongAsItWas(io.RawIOBase):
    """A file up to the length that it has now: a log may grow while it is sent."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._length = file.seek(0, io.SEEK_END)
        file.seek(0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            return self._file.seek(self._length + offset)
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._length - self._file.tell())
        data = self._file.read(left if size < 0 else min(size, left))
        if left and size and not data:
            raise OSError("it became shorter while it was sent; add it again")
        return data


def _refusal(answer: EndpointAnswer, body: Mapping[str, Any]) -> RecollectError:
    """What the service said, as the error that it raised."""
    message = str(body.get("error", f"the service answered {answer.status}"))
    details = str(body["details"]) if body.get("details") else None
    match answer.status:
        case 401:
            return AuthenticationError(WHERE_KEYS_ARE)
        case 403:
            return PermissionDeniedError(message, details)
        case 404:
            return NotFoundError(message, details)
        case 409:
            return ConflictError(message, details)
        case 400 | 413 | 415 | 422:
            return BadRequestError(in_words_of_ours(details or message))
        case status if status in (408, 429) or status >= 500:
            wait = answer.headers.get("retry-after", "")
            return Transient(
                f"{message}: {details}" if details else message,
                after=timedelta(seconds=int(wait)) if re.fullmatch(r"[0-9]{1,9}", wait) else None,
            )
        case _:
            return RequestError(message, details)
