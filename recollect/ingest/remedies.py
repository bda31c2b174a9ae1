"""What a person does about a document that failed, by error code: one sentence or two, in Markdown.

The table in `docs/troubleshooting.md` has the same sentences, and a test keeps it so.
"""

from collections.abc import Mapping

_ADDRESS = (
    "Check the address; `recollect check-url URL` says what is wrong with it. To open a private"
    " network, set `RECOLLECT_ALLOW_NETWORKS`, then retry."
)
_AWAY = "Wait, then retry. `recollect check-url URL` shows whether the other side answers by now."
_SPEECH = (
    "Set up an engine that transcribes speech (`RECOLLECT_TRANSCRIBER…`; `recollect doctor` names"
    " what is there), then retry."
)
_MODEL = "Check the settings of the model with `recollect doctor`, then retry."

_REMEDIES: Mapping[str, str] = {
    "unsupported_kind": "Convert it to a kind that the message lists and send it again, or name"
    " its kind with `fileType`.",
    "unreadable_content": "Open it on your own machine. If it opens there, save it again and send"
    " it whole; if not, it is damaged: find another copy.",
    "encrypted_file": "Remove the password and send it again.",
    "empty_content": "If it is a scan and `recollect doctor` shows `off pictures`, install text"
    " recognition (`pip install 'recollect[ocr]'`) and retry. If not, there is nothing to find in"
    " it: delete it.",
    "too_large": "Split it into files below the limit that the message names, and send those.",
    "extraction_timeout": "Split the file, or save it again with another program, and send it"
    " again.",
    "extraction_memory": "If its reader was killed, give the machine or the container more memory,"
    " then retry. If not, split the file, or save it again with another program, and send it"
    " again.",
    "extraction_crashed": "Save it again with another program and send it again. If it is an"
    " ordinary file, please report it.",
    "ocr_unavailable": "Run `recollect doctor`: it says why text recognition does not load. Then"
    " retry.",
    "not_transcribed": _SPEECH,
    "transcriber_failed": _SPEECH,
    "transcriber_refused": _SPEECH,
    "invalid_url": _ADDRESS,
    "blocked_target": _ADDRESS,
    "bad_redirect": _ADDRESS,
    "dns_failure": _AWAY,
    "unreachable": _AWAY,
    "tls_failure": _AWAY,
    "timeout": _AWAY,
    "bad_response": _AWAY,
    "unsupported_encoding": _AWAY,
    "bad_answer": _MODEL,
    "embedding_refused": _MODEL,
    "model_refused": "Choose another language model (`RECOLLECT_LLM_MODEL`; `recollect doctor`"
    " asks it), then retry.",
    "model_held_off": "Look into the log of the language model's endpoint, or raise its limit"
    " (tokens in a request, or in a minute); the document is tried again by itself, for about a"
    " week.",
    "embedding_held_off": "Look into the log of the embedding model's endpoint, or raise its limit"
    " (tokens in a request, or in a minute), then retry.",
    "broken_model": "Let `RECOLLECT_RERANK_MODEL` name the folder of a reranking model.",
    "waiting_for_turn": "Nothing: pictures and recordings are read one at a time. If it takes too"
    " long, add workers.",
    "worker_died": "Read the message and the log; often the machine has too little memory. Then"
    " retry.",
    "database_contended": "Retry when there is less to do; the message names the SQLSTATE.",
    "database_refused": "Change the value that the message names at its source, and send it again.",
    "internal_error": "Please report it with the traceback in the log. A retry may help.",
    "missing_blob": "Send the file again, or, where it came out of an archive, retry that;"
    " `recollect verify` lists all that are missing or damaged.",
}
_ANSWERED = (
    "Check the address and what it shows to someone who is not signed in, then retry: the server"
    " answered with this status."
)
OTHERWISE = "Read the message, then retry; delete it if it is not needed."


def of(code: str) -> str:
    """For any code; those that are not in the table get a sentence that always holds."""
    return _REMEDIES.get(code) or (_ANSWERED if code.startswith("http_") else OTHERWISE)
