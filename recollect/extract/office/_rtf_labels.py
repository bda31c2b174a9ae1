r"""Numbers of paragraphs that an RTF has for readers that do not count: `{\listtext 1.\tab}`.

xberg drops them, makes bullets of all lists, and takes away a "1." that an item begins with.
"""

import re

_SIGNS = rb"bullet|e[mn](?:dash|space)|qmspace|[lr]d?(?:bl)?quote"
_LABEL = re.compile(
    rb"\{\\(?:listtext|pntext)(?![a-z])((?:[^{}]|\{[^{}]*+\}|(?!))*+)\}"
    # What says how the paragraph looks: Word begins it behind the number.
    rb"((?:[\r\n]|\{\\\*\\pn(?:[^{}]|\{[^{}]*+\}|(?!))*+\}|\\(?!(?:par|line|page|sect|column|tab|cell|row"
    rb"|nestcell|nestrow|trowd|" + _SIGNS + rb")(?![a-z])|u-?\d)"
    rb"[a-z]++(?:-?\d++)?[ ]?|(?!))*+)"
)
_FORMAT = re.compile(rb"\\(?!u-?\d|(?:" + _SIGNS + rb")(?![a-z]))[a-z]+-?\d*[ ]?|[\r\n{}]")
_ESCAPE = re.compile(rb"\\(?:u(-?\d{1,6})[ ]?|'[0-9a-fA-F]{2}|[a-z]+[ ]?|.)")
_LONGEST = 400
"""bytes, most of them numbers of characters"""
_BULLET = b"o"
_FOREIGN = 0x370
"""Letters from here on are no bullets of a font of signs, and those for private use no letters."""
_MARK = "\U0010fffc"
_ITEM = re.compile(f"^( *(?:- )*)- ([^\n{_MARK}]{{1,{_LONGEST}}}{_MARK})", re.MULTILINE)
_BEHIND = re.compile(f"{_MARK} *")


def told(data: bytes) -> bytes:
    """The RTF with such numbers as text of their paragraphs. Bullets stay what they are."""
    return _LABEL.sub(_told, data)


def placed(text: str) -> str:
    """The Markdown that comes of it, the numbers instead of the bullets."""
    return _BEHIND.sub(" ", _ITEM.sub(r"\1\2", text)) if _MARK in text else text


def _told(label: re.Match[bytes]) -> bytes:
    said = _FORMAT.sub(b"", label[1]).strip()
    if not (0 < len(said) <= _LONGEST and _counts(said)):
        return label[0]
    return b"%s{%s{\\uc0\\u%d }}" % (label[2], said, ord(_MARK))


def _counts(said: bytes) -> bool:
    """Whether it has a letter or digit."""
    if any(
        code and (number := int(code) & 0xFFFF) >= _FOREIGN and chr(number).isalnum()
        for code in _ESCAPE.findall(said)
    ):
        return True
    plain = _ESCAPE.sub(b"", said).strip()
    return plain != _BULLET and any(map(str.isalnum, plain.decode("ascii", "ignore")))
