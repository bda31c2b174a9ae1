"""Source code, known by its name: kept as it is; its title is the name of the file."""

from recollect.extract._text import clean_line, decode, looks_like_text
from recollect.model import Blob, Extracted

TYPES = frozenset(
    {
        *("text/x-python", "text/javascript", "application/javascript", "text/x-c", "text/x-java"),
        *("text/x-go", "text/x-rust", "text/x-shellscript", "text/css", "application/sql"),
        *("application/yaml", "application/toml", "text/x-script.python"),
        *(".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".tsx", ".c", ".h", ".cc", ".cpp"),
        *(".hpp", ".cs", ".java", ".kt", ".scala", ".go", ".rs", ".rb", ".php", ".pl", ".lua"),
        *(".r", ".jl", ".swift", ".m", ".dart", ".ex", ".exs", ".erl", ".hs", ".clj", ".ml"),
        *(".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".sql", ".css", ".scss", ".less"),
        *(".vue", ".svelte", ".proto", ".graphql", ".tf", ".yaml", ".yml", ".toml", ".ini"),
        *(".cfg", ".conf", ".cmake", ".gradle", ".tex", ".ts"),
    }
)
LOADS = ("chardet",)
SAMPLE = b"a = 1\n"


def sniff(head: bytes) -> bool | None:
    return None if looks_like_text(head) else False


def extract(blob: Blob) -> Extracted:
    return Extracted(decode(blob.data), title=clean_line(blob.name or "") or None, markdown=False)
