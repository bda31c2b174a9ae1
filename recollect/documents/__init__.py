"""Documents: one piece of content with a life cycle, and the queue that is its table.

Content changes count up `revision`. A worker's claim is fenced by `claims`, which counts every
claim there ever was: `advance`, `finish`, `retry` and `fail` of a worker that lost its lease touch
nothing and raise LeaseLost. A revision that is overtaken while it is processed may still finish;
then the row is due again at once, so content that grows faster than it is processed never starves.

The files of an archive are documents of their own, its members. Whoever locks several rows locks
archives and all else first, by id, then members, by id.
"""

from recollect.documents._adding import Joined, Unjoined, add, bear, join, reprocess, update
from recollect.documents._asked import (
    DocumentChange,
    DocumentQuery,
    NewDocument,
    NewMember,
    Said,
    SyncedDocument,
)
from recollect.documents._blobs import (
    blobs_may_go,
    disown_blobs,
    doomed_blobs,
    forget_blobs,
    hold_blobs,
    known_blobs,
    name_blobs,
)
from recollect.documents._changing import AT_ONCE, SWEPT, sweep
from recollect.documents._clock import Moment, moment, recall, step_along
from recollect.documents._finishing import drop_entries, finish, known_hashes, stash, unpacked
from recollect.documents._queue import (
    MOST_AHEAD,
    TURNS_KEPT,
    Turn,
    advance,
    ahead,
    bury,
    claim,
    fail,
    next_due_in,
    reindex,
    release,
    renew,
    retry,
)
from recollect.documents._reading import (
    chunks,
    condition,
    counts,
    file,
    find,
    get,
    text_sizes,
    texts,
)
from recollect.documents._removing import (
    delete,
    delete_all,
    delete_named,
    delete_where,
    drop,
    withdraw,
)
from recollect.documents._rows import (
    BELOW,
    COLUMNS,
    DIRECT,
    TERM_SPACE,
    TITLE_LENGTH,
    is_address,
    read,
    scope,
    sought,
    text_content,
)
from recollect.documents._synced import (
    content_hash,
    detach,
    discard,
    of_connection,
    postpone,
    put,
    resume,
)
from recollect.documents._tagging import retag, untag

__all__ = [
    "AT_ONCE",
    "BELOW",
    "COLUMNS",
    "DIRECT",
    "MOST_AHEAD",
    "SWEPT",
    "TERM_SPACE",
    "TITLE_LENGTH",
    "TURNS_KEPT",
    "DocumentChange",
    "DocumentQuery",
    "Joined",
    "Moment",
    "NewDocument",
    "NewMember",
    "Said",
    "SyncedDocument",
    "Turn",
    "Unjoined",
    "add",
    "advance",
    "ahead",
    "bear",
    "blobs_may_go",
    "bury",
    "chunks",
    "claim",
    "condition",
    "content_hash",
    "counts",
    "delete",
    "delete_all",
    "delete_named",
    "delete_where",
    "detach",
    "discard",
    "disown_blobs",
    "doomed_blobs",
    "drop",
    "drop_entries",
    "fail",
    "file",
    "find",
    "finish",
    "forget_blobs",
    "get",
    "hold_blobs",
    "is_address",
    "join",
    "known_blobs",
    "known_hashes",
    "moment",
    "name_blobs",
    "next_due_in",
    "of_connection",
    "postpone",
    "put",
    "read",
    "recall",
    "reindex",
    "release",
    "renew",
    "reprocess",
    "resume",
    "retag",
    "retry",
    "scope",
    "sought",
    "stash",
    "step_along",
    "sweep",
    "text_content",
    "text_sizes",
    "texts",
    "unpacked",
    "untag",
    "update",
    "withdraw",
]
