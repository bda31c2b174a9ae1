"""All that an assistant may do, as it is told."""

from typing import Any

from recollect.mcp.connections import (
    ConnectArguments,
    Connected,
    Connections,
    WhichConnections,
    connect,
    sync_status,
)
from recollect.mcp.documents import (
    AddArguments,
    Added,
    DocumentAnswer,
    DocumentPage,
    FetchedDocument,
    ForgetDocument,
    ForgottenAnswer,
    OneDocument,
    SearchAnswer,
    SearchFor,
    SomeDocuments,
    WantedDocument,
    add,
    fetch,
    forget,
    get,
    list_documents,
    search,
)
from recollect.mcp.known import (
    AboutWhom,
    ProfileAnswer,
    SomeTags,
    TagPage,
    list_tags,
    profile,
)
from recollect.mcp.tool import Tool

TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool(
        "search",
        "Search documents",
        "Find passages in the user's documents by meaning and words. Call it before you answer from"
        " memory about anything the user may have written down, read or collected. Answers with the"
        " best passages of each document; cite `source`, and call `get` for more of the text."
        " Memories, which are single facts of a container tag, are not among them: call `profile`"
        " with the same query.",
        SearchFor,
        SearchAnswer,
        search,
        read_only=True,
    ),
    Tool(
        "fetch",
        "Read a whole document",
        "Read the whole text of one document by the id that `search` gave. For a part of a long"
        " text, or for what a document still waits for, call `get`.",
        WantedDocument,
        FetchedDocument,
        fetch,
        read_only=True,
    ),
    Tool(
        "add",
        "Add a document",
        "Keep a text, or the page behind a URL, so that `search` finds it from now on. Call it when"
        " the user asks to remember, save or note something. Give a `custom_id` to what will be"
        " updated later.",
        AddArguments,
        Added,
        add,
        open_world=True,
    ),
    Tool(
        "get",
        "Read a document",
        "Read one document: its text from `start` on, where it came from, and whether it is"
        " searchable yet or why it failed.",
        OneDocument,
        DocumentAnswer,
        get,
        read_only=True,
    ),
    Tool(
        "list",
        "List documents",
        "List documents, the newest first, in pages; to browse, or to see what waits or failed. To"
        " find something by what it says, call `search`.",
        SomeDocuments,
        DocumentPage,
        list_documents,
        read_only=True,
    ),
    Tool(
        "list_tags",
        "List container tags",
        "See which container tags there are, what each is about, and how many documents it has."
        " Call it before you name a tag that you have not seen.",
        SomeTags,
        TagPage,
        list_tags,
        read_only=True,
    ),
    Tool(
        "profile",
        "Read a profile",
        "Read what is known about the person or the subject of a container tag: what stays true and"
        " what was true lately; with a query also the memories that answer it.",
        AboutWhom,
        ProfileAnswer,
        profile,
        read_only=True,
    ),
    Tool(
        "forget",
        "Delete a document",
        "Delete one document for good: text, passages and file. This cannot be undone: ask the user"
        " first, and name the document by its title.",
        ForgetDocument,
        ForgottenAnswer,
        forget,
        destructive=True,
    ),
    Tool(
        "connect",
        "Connect a source",
        "Keep a source such as a website or a drive in step with the service. Answers with a link"
        " where the user has to authorize it, or begins at once where nothing is to be authorized."
        " Every call makes one more connection: look with `sync_status` first.",
        ConnectArguments,
        Connected,
        connect,
        open_world=True,
        names={"metadata": "settings"},
    ),
    Tool(
        "sync_status",
        "Look at connections",
        "See how connections stand: state, last and next sync, what is wrong and what to do; with"
        " an id also the latest runs with their counts.",
        WhichConnections,
        Connections,
        sync_status,
        read_only=True,
    ),
)
