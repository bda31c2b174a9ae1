"""The MCP server for assistants: calls of its tools come in, what the HTTP API answers goes out.

It is there over HTTP at `/mcp`, and over stdio.

The tools (`tools`) ask the service through one seam (`seam`): its own HTTP API with the caller's
key, so that they can do what the key may do and nothing else. Over HTTP the API is called inside
of the process (`inside`), over stdio from outside. The SDK is loaded when the first assistant
comes: it takes memory that an idle service should not hold.
"""

from recollect.mcp.door import Door

__all__ = ["Door"]
