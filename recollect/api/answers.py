"""What each operation answers when all goes well, as the OpenAPI document shows it.

One small story, told by the service itself: answers to the examples of the requests, with the ids
and moments of one run. A new operation needs its own here; tests/contract/test_answers.py says so.
"""

from collections.abc import Mapping
from typing import Any

from recollect.api import evaluation_answers
from recollect.api.namespaces import answers as namespaces


def _page(items: int, limit: int, pages: int = 1) -> dict[str, int]:
    return {"currentPage": 1, "limit": limit, "totalItems": items, "totalPages": pages}


# --- documents ---------------------------------------------------------------------------------

_NOTE = "4Oy2FocdV4YJngvC3JSg82"
_PLAN = "cF8hpZQWirTpG47UaSSLJ0"
_TEXT = "We meet on Mondays at nine."
_QUEUED = {"id": _NOTE, "status": "queued"}
_LISTED: Mapping[str, Any] = {
    "id": _NOTE,
    "status": "done",
    "processingStage": None,
    "type": "text",
    "title": _TEXT,
    "summary": None,
    "url": None,
    "customId": "notes/1",
    "containerTags": ["team:a"],
    "containerTag": "team:a",
    "metadata": {"year": 2026},
    "connectionId": None,
    "filepath": None,
    "createdAt": "2026-11-22T12:36:00.379Z",
    "updatedAt": "2026-11-22T12:36:00.461Z",
}
_DOCUMENTS: Mapping[str, Any] = {
    "addDocument": _QUEUED,
    "addDocuments": {
        "results": [
            {"id": "o4S5r3Rdbv6N81T1wzEcEq", "status": "queued"},
            {"id": "MoPN3GyblrcRVUL3m1Mdvr", "status": "queued"},
        ],
        "success": 2,
        "failed": 0,
    },
    "uploadFile": {"id": _PLAN, "status": "queued"},
    "listDocuments": {"memories": [_LISTED], "pagination": _page(1, 20)},
    "listProcessing": {
        "documents": [
            {
                "id": _PLAN,
                "status": "processing",
                "processingStage": "extracting",
                "type": "text",
                "title": "plan.md",
                "summary": None,
                "customId": None,
                "containerTags": ["team:a"],
                "metadata": None,
                "connectionId": None,
                "createdAt": "2026-11-22T12:36:00.631Z",
                "updatedAt": "2026-11-22T12:36:00.631Z",
                "stuck": False,
            }
        ],
        "totalCount": 1,
    },
    "countDocuments": {"queued": 0, "processing": 1, "done": 3, "failed": 0},
    "retryDocuments": {"ids": [_PLAN]},
    "deleteDocuments": {
        "success": False,
        "deletedCount": 1,
        "errors": [{"id": "notes/2", "error": "Document not found"}],
    },
    "getDocument": {
        **_LISTED,
        "content": _TEXT,
        "source": "api",
        "taskType": "memory",
        "dreamingStatus": "done",
        "latestRevision": 1,
        "activeContentUpdateId": None,
        "tombstonedAt": None,
        "documentDate": None,
        "raw": None,
        "ogImage": None,
        "spatialPoint": None,
        "attempts": 1,
        "nextAttemptAt": None,
        "queuedBefore": None,
        "timings": {"extracting": 0.2, "chunking": 0.2, "embedding": 30.3, "indexing": 18.0},
        "warnings": [],
        "chunks": {"total": 1, "reused": 0, "embedded": 1, "removed": 0},
    },
    "updateDocument": {"id": _NOTE, "status": "done"},
    "listVersions": {
        "versions": [
            {
                "revision": 2,
                "title": "Minutes",
                "characters": 28,
                "chunkCount": 1,
                "knownFrom": "2026-11-22T12:36:04.287Z",
                "knownUntil": None,
            },
            {
                "revision": 1,
                "title": "Minutes",
                "characters": 27,
                "chunkCount": 1,
                "knownFrom": "2026-11-22T12:36:00.379Z",
                "knownUntil": "2026-11-22T12:36:04.287Z",
            },
        ]
    },
    "getChunks": {
        "documentId": _PLAN,
        "chunks": [
            {
                "id": f"{_PLAN}.0",
                "position": 0,
                "content": "# Plan\n\nWe open in May.",
                "type": "text",
                "metadata": None,
                "createdAt": "2026-11-22T12:36:00.631Z",
                "start": 0,
                "end": 23,
                "place": {"heading": ["Plan"]},
            }
        ],
        "total": 1,
    },
    "getFileUrl": {
        "url": f"http://127.0.0.1:6767/v3/files/RHajSjRUH1l6pDeNVPy3J6/{_PLAN}?until=1795437362"
        "&mark=84326d5ffe4c8c303979ff3e4e8df14f4e6552e4fce0e16989cbf1dfa2af8818"
    },
    "addConversation": {
        "id": "FBMcqY6WB4zqetjzFN468Y",
        "conversationId": "chat/1",
        "status": "queued",
    },
    "searchDocuments": {
        "results": [
            {
                "documentId": _NOTE,
                "title": _TEXT,
                "type": "text",
                "score": 1.0,
                "chunks": [
                    {
                        "content": _TEXT,
                        "score": 1.0,
                        "isRelevant": True,
                        "position": 0,
                        "start": 0,
                        "end": 27,
                        "similarity": 0.645479,
                        "lexical": 1.99692,
                        "place": {},
                    }
                ],
                "metadata": {"year": 2026},
                "createdAt": "2026-11-22T12:36:00.379Z",
                "updatedAt": "2026-11-22T12:36:00.461Z",
                "customId": "notes/1",
                "url": None,
                "filepath": None,
                "summary": None,
            }
        ],
        "timing": 88.355,
        "total": 1,
    },
}

# --- memories ----------------------------------------------------------------------------------

_DARK = "cBxc5t7UoS38PHE9QLUPft"
_LIGHT = "IXRZM3PPg0pOY9rElgLlmk"
_FIRST: Mapping[str, Any] = {
    "id": _DARK,
    "memory": "Ann prefers dark mode.",
    "version": 1,
    "parentMemoryId": None,
    "rootMemoryId": None,
    "isLatest": True,
    "isForgotten": False,
    "isStatic": True,
    "isInference": False,
    "buckets": [],
    "sourceCount": 1,
    "metadata": None,
    "forgetAfter": None,
    "forgetReason": None,
    "createdAt": "2026-11-22T12:36:03.296Z",
    "updatedAt": "2026-11-22T12:36:03.296Z",
}
_SECOND: Mapping[str, Any] = {
    **_FIRST,
    "id": _LIGHT,
    "memory": "Ann prefers light mode.",
    "version": 2,
    "parentMemoryId": _DARK,
    "rootMemoryId": _DARK,
    "createdAt": "2026-11-22T12:36:03.682Z",
    "updatedAt": "2026-11-22T12:36:03.682Z",
}
_TEA: Mapping[str, Any] = {
    "id": "KFykhgYDuobmozeW6qp3ct",
    "memory": "Ann drinks green tea.",
    "similarity": 0.937852,
    "metadata": None,
    "updatedAt": "2026-11-22T12:36:03.517Z",
    "version": 1,
}
_MEMORIES: Mapping[str, Any] = {
    "addMemories": {"documentId": "7KiA51Qxil4jdf80Da975r", "memories": [_FIRST]},
    "updateMemory": _SECOND,
    "forgetMemory": {"id": _DARK, "forgotten": True},
    "listMemories": {
        "memoryEntries": [
            {
                **_SECOND,
                "containerTag": "user_123",
                "documentIds": ["7KiA51Qxil4jdf80Da975r"],
                "history": [_SECOND, {**_FIRST, "isLatest": False}],
            }
        ],
        "pagination": _page(1, 20),
    },
    "forgetMatchingMemories": {
        "dryRun": True,
        "count": 1,
        "remaining": 0,
        "forgetBatchId": None,
        "summary": "1 memory would be forgotten",
        "candidates": [
            {
                "id": "BEu7NJqcTtZpxOptNME8yx",
                "memory": "Ann worked in the old office in Bonn.",
                "score": 0.841243,
            }
        ],
    },
    "searchMemories": {"results": [_TEA], "timing": 43.854, "total": 1},
    "getProfile": {
        "profile": {
            "static": ["Ann prefers light mode."],
            "dynamic": ["Ann drinks green tea."],
            "buckets": {},
        },
        "searchResults": {
            "results": [{**_TEA, "similarity": 0.861574}],
            "timing": 31.97,
            "total": 1,
        },
    },
    "listProfileBuckets": {
        "buckets": [{"key": "work", "description": "What the user does for a living."}]
    },
}

# --- tags, settings, keys ----------------------------------------------------------------------

_TAG: Mapping[str, Any] = {
    "containerTag": "team:a",
    "name": "Team A",
    "entityContext": "Minutes of the weekly meeting.",
    "profileBuckets": None,
    "documentCount": 4,
    "createdAt": "2026-11-22T12:36:00.379Z",
    "updatedAt": "2026-11-22T12:36:04.287Z",
}
_MERGE: Mapping[str, Any] = {
    "mergeId": "4J86BUcTZFcIuHCyI0oU6K",
    "status": "queued",
    "success": False,
    "error": None,
    "mergedCount": 0,
    "targetTag": "team:a",
    "sourceTags": ["team:old"],
    "keptDocuments": [],
    "createdAt": "2026-11-22T12:36:04.562Z",
    "updatedAt": "2026-11-22T12:36:04.562Z",
}
_SETTINGS: Mapping[str, Any] = {
    "shouldLLMFilter": False,
    "includeItems": None,
    "excludeItems": {"urlPatterns": ["*/drafts/*"], "titlePatterns": []},
    "filterPrompt": None,
    "workspacePrompt": None,
    "keepVersions": 0,
    "chunkSize": None,
    "profileBuckets": None,
    "notionCustomKeyEnabled": False,
    "notionClientId": None,
    "notionClientSecret": None,
    "googleDriveCustomKeyEnabled": False,
    "googleDriveClientId": None,
    "googleDriveClientSecret": None,
    "onedriveCustomKeyEnabled": False,
    "onedriveClientId": None,
    "onedriveClientSecret": None,
    "githubCustomKeyEnabled": False,
    "githubClientId": None,
    "githubClientSecret": None,
}
_CRAWL = "P7QkqN1ZE5XVQ5KsI9iNK4"
_ORGANISATION: Mapping[str, Any] = {
    "listContainerTags": {"containerTags": [_TAG], "pagination": _page(1, 100)},
    "getContainerTag": _TAG,
    "updateContainerTag": _TAG,
    "deleteContainerTag": {
        "success": True,
        "containerTag": "team:a",
        "deletedCount": 4,
        "connections": [],
    },
    "mergeContainerTags": _MERGE,
    "getContainerTagMerge": {
        **_MERGE,
        "status": "completed",
        "success": True,
        "mergedCount": 1,
        "updatedAt": "2026-11-22T12:36:05.052Z",
    },
    "getSettings": _SETTINGS,
    "updateSettings": {
        "orgId": "RHajSjRUH1l6pDeNVPy3J6",
        "orgSlug": "default",
        "updated": _SETTINGS,
    },
    "resetOrganization": {"success": True, "deletedCount": 3},
    "previewSettings": {
        "adds": 0,
        "drops": 1,
        "undecided": 0,
        "asked": 0,
        "connections": [
            {
                "connectionId": _CRAWL,
                "provider": "web-crawler",
                "known": 12,
                "adds": 0,
                "drops": 1,
                "undecided": 0,
                "examples": [
                    {
                        "effect": "drop",
                        "id": "https://docs.example.org/next",
                        "title": "Draft of the next version",
                        "url": "https://docs.example.org/next",
                        "before": None,
                        "reason": "excludeItems: Draft *",
                    }
                ],
            }
        ],
        "notes": [
            "The filter acts on new things only: documents that are here stay. Drops are those"
            " that it would refuse if they came today."
        ],
    },
    "listAssistants": {
        "assistants": [
            {
                "id": "kQ3vVxJrW1pYc7TzN5bHfA",
                "name": "Claude",
                "keyId": "163cb1744390",
                "scope": "read",
                "containerTags": ["team:a"],
                "createdAt": "2026-11-22T12:36:05.328Z",
                "lastUsedAt": "2026-11-22T13:36:05.328Z",
            }
        ]
    },
    "createScopedKey": {
        "key": "sm_163cb1744390_thisIsAnExampleOfOneAndOpensNothingAtAll000000000",
        "id": "163cb1744390",
        "name": "scoped to team:a",
        "containerTag": "team:a",
        "expiresAt": "2026-12-22T12:36:05.328Z",
        "allowedEndpoints": [
            "/v3/documents",
            "/v3/memories",
            "/v3/search",
            "/v3/test-questions",
            "/v3/test-runs",
            "/v3/container-tags",
            "/v3/connections",
            "/v3/webhooks",
            "/v4/answer",
            "/v4/conversations",
            "/v4/memories",
            "/v4/profile",
            "/v4/search",
            "/v3/session",
            "/v3/analytics",
            "/ns",
            "/namespaces",
            "/connectors",
            "/feedback",
        ],
    },
    "getSession": {
        "user": {"name": "laptop", "email": None},
        "org": {"id": "RHajSjRUH1l6pDeNVPy3J6", "name": "default", "slug": "default"},
        "plan": "enterprise",
        "scope": {"type": "full", "permission": "admin"},
    },
    "answerQuestion": {
        "state": "answered",
        "answer": "The team meets on Mondays at nine. [1]",
        "sentences": [
            {"text": "The team meets on Mondays at nine.", "sources": [1], "unsupported": False}
        ],
        "sources": [
            {
                "number": 1,
                "content": "We meet on Mondays at nine.",
                "score": 0.87,
                "documentId": "RHajSjRUH1l6pDeNVPy3J6",
                "customId": "notes/1",
                "title": "Notes",
                "position": 0,
                "start": 0,
                "end": 27,
                "place": {},
            }
        ],
        "droppedCitations": 0,
        "reason": None,
        "code": None,
        "timing": 1840.2,
    },
    "linkSession": {
        "path": "/console/login?once=3yJm0Hh2yq8PzqkL1p6Zr0tVw9s4uXbN7cQeRfTgYhU",
        "expiresIn": 120,
    },
    "countEverything": {
        "totalMemories": 4,
        "totalMemoryEntries": 3,
        "totalConnections": 1,
        "totalContainerTags": 2,
    },
    "listDocumentsWithMemories": {
        "documents": [
            {
                **_LISTED,
                "id": "7KiA51Qxil4jdf80Da975r",
                "title": "Ann prefers dark mode.",
                "customId": None,
                "metadata": None,
                "containerTags": ["user_123"],
                "containerTag": "user_123",
                "chunkCount": 0,
                "memoryEntries": [_FIRST],
            }
        ],
        "pagination": _page(1, 20),
    },
    "listAudit": {
        "records": [
            {
                "id": 6,
                "at": "2026-11-22T12:36:06.520Z",
                "actor": "key:0a6d3cfb9db2",
                "action": "connection.created",
                "object": _CRAWL,
                "result": "done",
                "address": "127.0.0.1",
                "request": "03e0e7367fc49052",
                "details": {"provider": "web-crawler"},
            }
        ]
    },
}

# --- connections -------------------------------------------------------------------------------

_RUN = "6fUA0QG1EXTuQLg9UGjrk0"
_SET_UP = "7msRU48jI0KqwTPC6nnlhv"
_GITHUB = "fZGcDcoT92k5FKuxF5JDAw"
_CONNECTION: Mapping[str, Any] = {
    "id": _CRAWL,
    "provider": "web-crawler",
    "createdAt": "2026-11-22T12:36:06.520Z",
    "documentLimit": 500,
    "metadata": {"startUrl": "https://docs.example.org"},
    "containerTags": ["docs"],
    "lastSyncRun": {
        "status": "completed",
        "startedAt": "2026-11-22T12:36:06.557Z",
        "completedAt": "2026-11-22T12:36:18.204Z",
    },
    "state": "ready",
    "error": None,
    "errorCode": None,
    "paused": False,
    "lastSyncedAt": "2026-11-22T12:36:18.190Z",
    "nextSyncAt": "2026-11-29T12:01:41.175Z",
    "pushes": None,
}
_WANTED = {"message": "Sync of 1 web-crawler connection requested", "provider": "web-crawler"}
_CONNECTIONS: Mapping[str, Any] = {
    "listConnections": [_CONNECTION],
    "createConnection": {"id": _CRAWL, "redirectsTo": None, "authLink": None, "expiresIn": None},
    "getConnectionByTags": _CONNECTION,
    "listConnectionDocuments": [
        {
            "id": _SET_UP,
            "title": "Set up",
            "type": "webpage",
            "status": "done",
            "url": "https://docs.example.org/set-up",
            "summary": None,
            "createdAt": "2026-11-22T12:36:08.374Z",
            "updatedAt": "2026-11-22T12:36:09.905Z",
        }
    ],
    "importConnection": _WANTED,
    "getConnection": _CONNECTION,
    "updateConnection": {**_CONNECTION, "documentLimit": 1000},
    "authorizeConnection": {
        "id": _GITHUB,
        "redirectsTo": "https://app.example.org/connected",
        "authLink": "https://github.com/login/oauth/authorize?response_type=code"
        "&client_id=Ov23liAnExampleOfOne&redirect_uri=https%3A%2F%2Frecollect.example.org"
        "%2Fv3%2Fconnections%2Fauth%2Fcallback%2Fgithub"
        "&state=vuLLGOeHAHXwLS4GQQvUtBWb8H7dqvS6fvPAB1cSOp0&scope=repo%20user%3Aemail"
        "&code_challenge=JXGAsqhAMWan8FzoDrepxMjo2uevhV2Lpyd9iVX7Zaw"
        "&code_challenge_method=S256",
        "expiresIn": "1 hour",
    },
    "syncConnection": _WANTED,
    "checkConnection": {
        "connectionId": _GITHUB,
        "provider": "github",
        "holds": False,
        "assumptions": [
            {
                "name": "rights",
                "state": "fails",
                "sentence": "the token lacks repo: authorize the connection again",
            }
        ],
    },
    "listSyncRuns": [
        {
            "id": _RUN,
            "connectionId": _CRAWL,
            "status": "completed",
            "triggerType": "manual",
            "startedAt": "2026-11-22T12:36:06.557Z",
            "completedAt": "2026-11-22T12:36:18.204Z",
            "itemsProcessed": 12,
            "itemsFailed": 0,
            "added": 11,
            "changed": 1,
            "unchanged": 0,
            "removed": 0,
            "skipped": {"robots": 2},
            "error": None,
            "errorCode": None,
            "notes": [],
        }
    ],
    "listSyncChanges": {
        "changes": [
            {
                "documentId": _SET_UP,
                "change": "changed",
                "at": "2026-11-22T12:36:08.374Z",
                "title": "Set up",
                "url": "https://docs.example.org/set-up",
                "chunks": 40,
                "newChunks": 2,
                "share": 0.05,
            }
        ],
        "pagination": _page(12, 100),
    },
    "listConnectionItems": {
        "items": [
            {
                "id": "https://docs.example.org/set-up",
                "verdict": "document",
                "detail": None,
                "title": "Set up",
                "url": "https://docs.example.org/set-up",
                "documentId": _SET_UP,
                "seenAt": "2026-11-22T12:36:08.374Z",
            }
        ],
        "verdicts": {"document": 12, "robots": 2},
        "pagination": _page(14, 100),
    },
    "listConnectionResources": {
        "resources": [
            {
                "id": "1296269",
                "name": "handbook",
                "full_name": "octocat/handbook",
                "description": "How we work",
                "private": True,
                "default_branch": "main",
                "updated_at": "2026-11-19T08:30:00.000Z",
            }
        ],
        "total_count": 1,
    },
    "configureConnection": {
        "success": True,
        "message": "1 picked; the sync has begun, and changes are looked for every few minutes",
        "webhooksRegistered": 0,
    },
    "deleteConnection": {"id": _CRAWL, "provider": "web-crawler"},
}

# --- events ------------------------------------------------------------------------------------

_HOOK: Mapping[str, Any] = {
    "id": "8svsewtpRk4SgNagmfm6na",
    "url": "https://app.example.org/hooks/recollect",
    "description": "",
    "events": ["document.done", "document.failed"],
    "containerTags": None,
    "disabled": False,
    "disabledReason": None,
    "failingSince": None,
    "failures": 0,
    "createdAt": "2026-11-22T12:36:05.429Z",
    "createdBy": "0a6d3cfb9db2",
}
_SHOWN_ONCE = "whsec_VGhpcyBpcyBhbiBleGFtcGxlLCBubyBzZWNyZXQhISE="
_TRIED: Mapping[str, Any] = {
    "id": "msg_636959db69ea4e23ac8edc3f0f819edd",
    "type": "webhook.test",
    "state": "pending",
    "attempts": 0,
    "nextAttemptAt": "2026-11-22T12:36:05.521Z",
    "createdAt": "2026-11-22T12:36:05.523Z",
    "endedAt": None,
    "log": [],
    "payload": {
        "type": "webhook.test",
        "timestamp": "2026-11-22T12:36:05.523Z",
        "data": {"endpointId": "8svsewtpRk4SgNagmfm6na"},
    },
}
_EVENTS: Mapping[str, Any] = {
    "listWebhooks": {"endpoints": [_HOOK]},
    "createWebhook": {**_HOOK, "secret": _SHOWN_ONCE},
    "updateWebhook": {**_HOOK, "secret": _SHOWN_ONCE},
    "listDeliveries": {
        "deliveries": [
            {
                **_TRIED,
                "state": "delivered",
                "attempts": 1,
                "nextAttemptAt": None,
                "endedAt": "2026-11-22T12:36:06.041Z",
                "log": [
                    {"at": "2026-11-22T12:36:06.041Z", "status": 204, "reason": None, "ms": 31.4}
                ],
            }
        ],
        "pagination": _page(1, 20),
    },
    "replayDelivery": _TRIED,
    "testWebhook": _TRIED,
}

ANSWERS: Mapping[str, Any] = {
    **_DOCUMENTS,
    **_MEMORIES,
    **_ORGANISATION,
    **_CONNECTIONS,
    **_EVENTS,
    **evaluation_answers.ANSWERS,
    **namespaces.ANSWERS,
    "health": {"status": "ok"},
    "ready": {
        "status": "ready",
        "canary": {"ok": True, "reason": None, "ageSeconds": 41, "ms": 212.6},
    },
}
"""By operationId: the body of the success of each operation that answers JSON."""
