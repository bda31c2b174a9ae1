"""What the operations of the namespace door answer when all goes well (see `answers`)."""

from collections.abc import Mapping
from typing import Any

_STORY: Mapping[str, Any] = {
    "nsAddDocument": {"id": "5XYNNtvYTiSw7eSQXwoEJg", "status": "queued"},
    "nsAddDocuments": {
        "results": [
            {"id": "aVq7tpNSXGjuHvx3DmPYrw", "status": "queued"},
            {
                "id": "",
                "status": "error",
                "error": "Invalid request parameters",
                "details": "content: must not be empty",
            },
        ],
        "count": 1,
        "failed": 1,
    },
    "nsUploadFile": {"id": "uKOUKAvTjWWgCBLRDFCBls", "status": "queued"},
    "nsReplaceWithFile": {"id": "aVq7tpNSXGjuHvx3DmPYrw", "status": "queued"},
    "nsUpdateFile": {"id": "aVq7tpNSXGjuHvx3DmPYrw", "status": "queued"},
    "nsUpdateDocument": {"id": "5XYNNtvYTiSw7eSQXwoEJg", "status": "done"},
    "nsGetDocument": {
        "id": "5XYNNtvYTiSw7eSQXwoEJg",
        "customId": "notes/1",
        "title": "Ann moved to Bonn in May.",
        "type": "text",
        "url": None,
        "summary": None,
        "content": "Ann moved to Bonn in May.",
        "metadata": {"source": "chat", "reviewed": True},
        "system": {
            "createdAt": "2026-11-23T03:45:52.982Z",
            "updatedAt": "2026-11-23T03:45:54.399Z",
            "status": "done",
            "dreamingStatus": "done",
            "memoryCount": 0,
        },
        "chunks": [
            {
                "id": "5XYNNtvYTiSw7eSQXwoEJg.0",
                "position": 0,
                "content": "Ann moved to Bonn in May.",
                "type": "text",
                "metadata": {},
                "start": 0,
                "end": 25,
                "place": {},
                "system": {"createdAt": "2026-11-23T03:45:52.982Z"},
            }
        ],
    },
    "nsDeleteDocuments": {"count": 1, "errors": [{"id": "notes/9", "error": "Document not found"}]},
    "nsSearch": {
        "results": [
            {
                "id": "EgGRVPX3PaETCcujlvaqBo",
                "memory": "Ann lives in Bonn.",
                "metadata": {},
                "similarity": 0.750754,
                "isLatest": True,
                "isInference": False,
                "system": {
                    "updatedAt": "2026-11-23T03:45:54.493Z",
                    "createdAt": "2026-11-23T03:45:54.493Z",
                },
                "included": {
                    "document": {
                        "id": "0xxgEfmVJPhbxR5xMP6kak",
                        "title": "Ann lives in Ulm.",
                        "type": "text",
                        "metadata": {},
                        "summary": None,
                        "system": {
                            "createdAt": "2026-11-23T03:45:54.456Z",
                            "updatedAt": "2026-11-23T03:45:54.456Z",
                        },
                    }
                },
            },
            {
                "id": "GmI3FMrNzOMzhhpjqs0jPV",
                "memory": "Ann worked in the old office in Bonn.",
                "metadata": {},
                "similarity": 0.653816,
                "isLatest": True,
                "isInference": False,
                "system": {
                    "updatedAt": "2026-11-23T03:45:54.456Z",
                    "createdAt": "2026-11-23T03:45:54.456Z",
                },
                "included": {
                    "document": {
                        "id": "0xxgEfmVJPhbxR5xMP6kak",
                        "title": "Ann lives in Ulm.",
                        "type": "text",
                        "metadata": {},
                        "summary": None,
                        "system": {
                            "createdAt": "2026-11-23T03:45:54.456Z",
                            "updatedAt": "2026-11-23T03:45:54.456Z",
                        },
                    }
                },
            },
        ],
        "searchTime": 58.748,
    },
    "nsList": {
        "documents": [
            {
                "id": "5XYNNtvYTiSw7eSQXwoEJg",
                "customId": "notes/1",
                "title": "Ann moved to Bonn in May.",
                "type": "text",
                "summary": None,
                "url": None,
                "metadata": {"source": "chat", "reviewed": True},
                "system": {
                    "createdAt": "2026-11-23T03:45:52.982Z",
                    "updatedAt": "2026-11-23T03:45:54.399Z",
                    "status": "done",
                    "dreamingStatus": "done",
                    "memoryCount": 0,
                },
            }
        ],
        "chunks": [],
        "memories": [],
        "pagination": {"currentPage": 1, "limit": 10, "totalItems": 1, "totalPages": 1},
    },
    "nsCountMemories": {"counts": [{"id": "notes/1", "memoryCount": 0}]},
    "nsGetMemory": {
        "id": "EgGRVPX3PaETCcujlvaqBo",
        "memory": "Ann lives in Bonn.",
        "metadata": {},
        "isStatic": True,
        "isInference": False,
        "isLatest": True,
        "isForgotten": False,
        "version": 2,
        "system": {
            "createdAt": "2026-11-23T03:45:54.493Z",
            "updatedAt": "2026-11-23T03:45:54.493Z",
        },
        "included": {
            "related": {
                "parents": [
                    {
                        "id": "bgVWu20bGkhi9jNBo4TIDR",
                        "relation": "updates",
                        "version": 1,
                        "memory": "Ann lives in Ulm.",
                        "metadata": {},
                        "system": {"updatedAt": "2026-11-23T03:45:54.456Z"},
                        "document": {
                            "id": "0xxgEfmVJPhbxR5xMP6kak",
                            "title": "Ann lives in Ulm.",
                            "type": "text",
                            "metadata": {},
                            "summary": None,
                            "system": {
                                "createdAt": "2026-11-23T03:45:54.456Z",
                                "updatedAt": "2026-11-23T03:45:54.456Z",
                            },
                        },
                    }
                ],
                "children": [],
                "siblings": [],
            },
            "document": {
                "id": "0xxgEfmVJPhbxR5xMP6kak",
                "title": "Ann lives in Ulm.",
                "type": "text",
                "metadata": {},
                "summary": None,
                "system": {
                    "createdAt": "2026-11-23T03:45:54.456Z",
                    "updatedAt": "2026-11-23T03:45:54.456Z",
                },
            },
        },
    },
    "nsForgetMemories": {
        "count": 1,
        "matches": [{"id": "EgGRVPX3PaETCcujlvaqBo", "memory": "Ann lives in Bonn."}],
        "errors": [],
    },
    "nsForgetMatching": {
        "count": 1,
        "matches": [
            {"id": "GmI3FMrNzOMzhhpjqs0jPV", "memory": "Ann worked in the old office in Bonn."}
        ],
        "errors": [],
    },
    "nsGetProfile": {
        "profile": {
            "static": [{"id": "EgGRVPX3PaETCcujlvaqBo", "memory": "Ann lives in Bonn."}],
            "dynamic": [
                {"id": "GmI3FMrNzOMzhhpjqs0jPV", "memory": "Ann worked in the old office in Bonn."}
            ],
            "buckets": {"work": []},
        }
    },
    "nsGetBuckets": {"buckets": {"work": "What the user does for a living."}},
    "nsSetBuckets": {"buckets": {"work": "What the user does for a living."}},
    "nsDeleteBuckets": {"buckets": {}},
    "nsCreateConnector": {"id": "sPgp3PeDe6FDQH9uXjeWjw", "authorization": None},
    "nsGetConnector": {
        "id": "sPgp3PeDe6FDQH9uXjeWjw",
        "provider": "web-crawler",
        "namespace": "user_123",
        "account": None,
        "capabilities": {"selectable": False, "webhooks": False},
        "config": {"startUrl": "https://docs.example.org/", "crawlDepth": 3},
        "selection": None,
        "documentLimit": 10000,
        "documentCount": 0,
        "latestRun": {
            "errorCode": "provider_unavailable",
            "error": "robots.txt cannot be read",
            "system": {
                "status": "completed",
                "startedAt": "2026-11-23T03:45:55.228Z",
                "completedAt": "2026-11-23T03:45:58.331Z",
            },
        },
        "system": {
            "status": "active",
            "createdAt": "2026-11-23T03:45:55.202Z",
            "lastSuccessfulSyncAt": "2026-11-23T03:45:58.327Z",
        },
        "syncs": [
            {
                "errorCode": "provider_unavailable",
                "error": "robots.txt cannot be read",
                "system": {
                    "status": "completed",
                    "startedAt": "2026-11-23T03:45:55.228Z",
                    "completedAt": "2026-11-23T03:45:58.331Z",
                },
                "id": "5ltsVREKT1QyePxriPM9pw",
                "trigger": "cron",
                "itemsProcessed": 0,
                "itemsFailed": 2,
                "failures": [],
            }
        ],
    },
    "nsListConnectors": {
        "connectors": [
            {
                "id": "sPgp3PeDe6FDQH9uXjeWjw",
                "provider": "web-crawler",
                "namespace": "user_123",
                "account": None,
                "capabilities": {"selectable": False, "webhooks": False},
                "config": {"startUrl": "https://docs.example.org/", "crawlDepth": 3},
                "selection": None,
                "documentLimit": 10000,
                "documentCount": 0,
                "latestRun": {
                    "errorCode": "provider_unavailable",
                    "error": "robots.txt cannot be read",
                    "system": {
                        "status": "completed",
                        "startedAt": "2026-11-23T03:45:55.228Z",
                        "completedAt": "2026-11-23T03:45:58.331Z",
                    },
                },
                "system": {
                    "status": "active",
                    "createdAt": "2026-11-23T03:45:55.202Z",
                    "lastSuccessfulSyncAt": "2026-11-23T03:45:58.327Z",
                },
            }
        ],
        "pagination": {"currentPage": 1, "limit": 10, "totalItems": 1, "totalPages": 1},
    },
    "nsUpdateConnector": {
        "id": "sPgp3PeDe6FDQH9uXjeWjw",
        "provider": "web-crawler",
        "namespace": "user_123",
        "account": None,
        "capabilities": {"selectable": False, "webhooks": False},
        "config": {"startUrl": "https://docs.example.org/", "crawlDepth": 3},
        "selection": None,
        "documentLimit": 1000,
        "documentCount": 0,
        "latestRun": {
            "errorCode": "provider_unavailable",
            "error": "robots.txt cannot be read",
            "system": {
                "status": "completed",
                "startedAt": "2026-11-23T03:45:55.228Z",
                "completedAt": "2026-11-23T03:45:58.331Z",
            },
        },
        "system": {
            "status": "active",
            "createdAt": "2026-11-23T03:45:55.202Z",
            "lastSuccessfulSyncAt": "2026-11-23T03:45:58.327Z",
        },
    },
    "nsSyncConnector": {"id": "sPgp3PeDe6FDQH9uXjeWjw", "status": "queued"},
    "nsDeleteConnector": {"id": "sPgp3PeDe6FDQH9uXjeWjw", "deleted": True},
    "nsListNamespaces": {
        "namespaces": [
            {
                "id": "user_123",
                "namespace": "user_123",
                "documentCount": 4,
                "memoryCount": 1,
                "description": None,
                "system": {
                    "createdAt": "2026-11-23T03:45:52.982Z",
                    "updatedAt": "2026-11-23T03:45:54.755Z",
                },
            }
        ],
        "pagination": {"currentPage": 1, "limit": 10, "totalItems": 1, "totalPages": 1},
    },
    "nsGetNamespace": {
        "namespace": "user_123",
        "supportingContext": "Notes about Ann.",
        "system": {
            "createdAt": "2026-11-23T03:45:52.982Z",
            "updatedAt": "2026-11-23T03:45:54.755Z",
        },
    },
    "nsUpdateNamespace": {
        "namespace": "user_123",
        "supportingContext": "Notes about Ann.",
        "system": {
            "createdAt": "2026-11-23T03:45:52.982Z",
            "updatedAt": "2026-11-23T03:45:58.618Z",
        },
    },
    "nsDeleteNamespace": {
        "status": "deleted",
        "namespace": "elsewhere",
        "deletedDocumentsCount": 3,
        "deletedMemoriesCount": 1,
    },
    "nsGetOrganization": {"organizationalContext": "We make bicycles in Ulm.", "namespaceCount": 1},
    "nsUpdateOrganization": {
        "organizationalContext": "We make bicycles in Ulm.",
        "namespaceCount": 1,
    },
}

ANSWERS: Mapping[str, Any] = {
    **_STORY,
    "nsListAllConnectors": _STORY["nsListConnectors"],
    "nsListNamespacesToo": _STORY["nsListNamespaces"],
}
