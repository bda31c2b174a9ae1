"""The newer API, whose paths begin with `/ns/{namespace}`: another door to the same service.

A namespace is a container tag. The door translates names and shapes; what it needs is done by the
functions that `/v3` and `/v4` call, on behalf of a tenant that may touch this one tag, so that ids
of other namespaces do not exist here.
"""

from recollect.api.namespaces import (
    connectors,
    content,
    memories,
    organization,
    profiles,
    reading,
    spaces,
)

MODULES = (content, reading, memories, profiles, connectors, spaces, organization)
"""in the order of their routes"""
