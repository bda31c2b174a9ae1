"""The SDK's side: the protocol's words for the tools, and the two ways in."""

import asyncio
import io
import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from recollect import __version__, log
from recollect.errors import (
    RecollectError,
    RequestError,
    Transient,
    Unavailable,
    by_place,
    in_words,
    sentence_of,
)
from recollect.mcp import documents
from recollect.mcp.documents import SCHEME, TEMPLATE, ListedAnswer
from recollect.mcp.seam import Session, whole
from recollect.mcp.tool import ArgumentsSchema, Tool
from recollect.mcp.tools import TOOLS

LOG = log.get("mcp")
NAMES: Mapping[str, str] = {
    "--tag": "tag",
    "containerTag": "tag",
    "containerTags": "tag",
    "q": "query",
    "asOf": "as_of",
    "customId": "custom_id",
    "documentLimit": "document_limit",
}
"""What the API, and the command line behind stdio, call the arguments of the tools."""
_USE_ITS_ID = re.compile(
    r"name the containerTag, or use the id|use the id that the service gave it"
)
_FIELD = re.compile(r"(?<!\S)(--tag|[A-Za-z]+)(?=(?:[.\[][^\s:]*)?: )")
INSTRUCTIONS = (
    "Recollect holds the user's own documents: notes, files, pages, and what connected sources"
    " bring. Search it before answering about anything they may have collected, cite the source of"
    " what you use, and add what they ask you to remember."
)
MARKDOWN = "text/markdown"

Ctx = ServerRequestContext[Any, Any]


def build(session_of: Callable[[Ctx], Session]) -> Server[Any]:
    """The server; `session_of` tells on whose behalf a request came."""
    known = {tool.name: tool for tool in TOOLS}
    described = [_described(tool) for tool in TOOLS]

    async def list_tools(
        ctx: Ctx, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=described)

    async def call_tool(ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = known.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}")
        return await _called(tool, session_of(ctx), params.arguments or {})

    async def list_resources(
        ctx: Ctx, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        page = _page(params.cursor if params else None)
        found = await _or_refused(documents.resources(session_of(ctx), page))
        return types.ListResourcesResult(
            resources=[_resource(document) for document in found.documents],
            next_cursor=str(page + 1) if found.more else None,
        )

    async def list_templates(
        ctx: Ctx, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="document",
            title="Document",
            uri_template=TEMPLATE,
            description="The extracted text of a document, by id or custom_id.",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        ctx: Ctx, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        quoted = uri.removeprefix(SCHEME)
        if quoted == uri or not quoted or any(mark in quoted for mark in "/?#"):
            raise MCPError(INVALID_PARAMS, f"resources are {TEMPLATE}, not {uri!r}")
        text = await _or_refused(documents.text_of(session_of(ctx), quoted))
        contents = types.TextResourceContents(uri=uri, mime_type=MARKDOWN, text=text)
        return types.ReadResourceResult(contents=[contents])

    server = Server[Any](
        "recollect",
        version=__version__,
        title="Recollect",
        description="Self-hosted knowledge ingestion and search.",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    server.middleware.append(_saying_which)
    return server


async def _saying_which(ctx: Ctx, call_next: CallNext) -> HandlerResult:
    """Of parameters that are not the protocol's the SDK would only say that they are wrong."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        told = f"Invalid request parameters: {_faults(error)}"
        raise MCPError(INVALID_PARAMS, told) from error


class Http:
    """ASGI application that answers MCP's POSTs; `scope["state"]["mcp"]` is the `Session`.

    It keeps nothing between two requests: any API process can answer the next one, and a restart
    loses nobody.
    """

    def __init__(self) -> None:
        self._manager = StreamableHTTPSessionManager(
            build(_session_of_request),
            json_response=True,
            stateless=True,
            # The door has looked at Host and Origin, the edge at the size.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=sys.maxsize,
        )
        self.alive = asyncio.Event()

    async def live(self) -> None:
        """Serve until cancelled."""
        async with self._manager.run():
            self.alive.set()
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


class _Lines(io.TextIOWrapper):
    """Messages as they come in; the SDK would pass over one that it cannot parse, unanswered."""

    def __init__(self, source: BinaryIO) -> None:
        super().__init__(source, encoding="utf-8", errors="replace")

    def readline(self, size: int = -1, /) -> str:
        return whole(super().readline(size).encode()).decode()


def serve_stdio(session: Session) -> None:
    """Answer the assistant that started this process, until it closes our standard input."""
    server = build(lambda ctx: session)

    async def run() -> None:
        async with stdio_server(anyio.wrap_file(_Lines(sys.stdin.buffer))) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


def _session_of_request(ctx: Ctx) -> Session:
    assert ctx.request is not None
    return ctx.request.scope["state"]["mcp"]


async def _called(tool: Tool[Any, Any], session: Session, given: dict[str, Any]) -> Any:
    """Call a tool. A fault becomes the answer of the tool, so that the model can read it and mend
    its call."""
    try:
        arguments = tool.arguments.model_validate(given)
    except ValidationError as error:
        told = f"These arguments are not right, call again with others: {_faults(error)}"
        return _failed(told)
    try:
        answer = (await tool.run(session, arguments)).model_dump(mode="json")
    except RecollectError as error:
        return _failed(advice(error, tool.names))
    except Exception:
        LOG.exception("bug", tool=tool.name)
        return _failed("Internal error of the service; its log says more.")
    text = types.TextContent(text=json.dumps(answer, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=answer)


def _failed(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


async def _or_refused(asked: Any) -> Any:
    """Raise the protocol's own error for a resource: resources have no other answer for a fault."""
    try:
        return await asked
    except RecollectError as error:
        code = INVALID_PARAMS if isinstance(error, RequestError) else types.INTERNAL_ERROR
        raise MCPError(code, advice(error)) from error


def advice(error: RecollectError, names: Mapping[str, str] | None = None) -> str:
    """What went wrong, and what to do about it, in words for a model and its user; `names` of a
    tool go before those of all."""
    called = {**NAMES, **(names or {})}
    said = sentence_of(error) if isinstance(error, Unavailable) else str(error)
    told = _FIELD.sub(lambda field: called.get(field[1], field[1]), said)
    told = _USE_ITS_ID.sub("use its id, from `list`", told)
    match error:
        case RequestError(status=403):
            return (
                f"{told}. The key of this connection does not allow it: use only the tags it may"
                " touch, or ask the user for a key that may (`recollect keys create`)."
            )
        case RequestError(status=404):
            return f"{told}. Call `list`, `search` or `sync_status` for ids that exist."
        case Transient():
            wait = f" in {error.after.total_seconds():g} seconds" if error.after else " in a moment"
            return f"{told}. Try again{wait}."
        case _:
            return told


def _faults(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {in_words(fault)}"
        for fault in by_place(error.errors())
    )


def _page(cursor: str | None) -> int:
    if cursor is None:
        return 1
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 7 and int(cursor) > 0):
        raise MCPError(INVALID_PARAMS, "cursor: not one that this service gave")
    return int(cursor)


def _resource(document: ListedAnswer) -> types.Resource:
    return types.Resource(
        uri=document.uri,
        name=document.source or document.id,
        title=document.title,
        description=f"{document.type}; tags: {', '.join(document.tags)}",
        mime_type=MARKDOWN,
    )


def _described(tool: Tool[Any, Any]) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(schema_generator=ArgumentsSchema),
        output_schema=tool.answer.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent or tool.read_only,
            open_world_hint=tool.open_world,
        ),
    )
