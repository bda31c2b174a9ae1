"""What a mail quotes of those before it, in plain text and in markup.

Each mail stands in its thread once; without this an answer would cost the whole conversation.
"""

import re
from collections.abc import Sequence

GAPS = re.compile(r"\n{3,}")
FORWARD = re.compile(r"\s*(fwd?|wg|tr|rv|enc|vs|転送|转发)\s*[:\uff1a]", re.IGNORECASE)
"""subjects of mails that pass others on"""
WROTE = re.compile(
    r"(\b(wrote|schrieb\b.{0,100}|a écrit|escribió|escreveu|ha scritto|schreef\b.{0,100}"
    r"|skrev\b.{0,100}|kirjoitti|napisał(\(a\))?|(на)?пи[сш]\S{1,6})|写道|のメッセージ)"
    r"\s*[:\uff1a]$",
    re.IGNORECASE,
)
DATE = re.compile(r"\b(19|20)\d\d\b|\b\d{1,2}[:.h]\d\d\b|\b\d{1,2}[./]\d{1,2}[./]\d\d")
OPENING = re.compile(r"(on|am|le|el|il|op|em|den|dnia)\b", re.IGNORECASE)
"""first words of the line above a quote"""
ORIGINAL = re.compile(
    r"[-_]{3,}\s*(original message|original appointment|ursprüngliche nachricht|message d'origine"
    r"|mensaje original|mensagem original|messaggio originale|oorspronkelijk bericht"
    r"|исходное сообщение|原始邮件|元のメッセージ)\s*[-_]{3,}$",
    re.IGNORECASE,
)


def _field(*names: str) -> re.Pattern[str]:
    """A line of a head as Outlook writes it, in Markdown or not: `**From:** Ann`."""
    return re.compile(
        rf"[*_ ]{{0,4}}({'|'.join(names)})[*_ \xa0]{{0,4}}[:\uff1a][*_ ]{{0,4}}\S", re.IGNORECASE
    )


SENDER = _field("from", "von", "de", "da", "van", "från", "fra", "od", "от", "发件人", "差出人")
SENT = _field(
    "sent", "date", "gesendet", "datum", "envoyé", "enviado", "enviada em", "fecha", "data",
    "inviato", "verzonden", "skickat", "sendt", "wysłano", "отправлено", "дата", "发送时间",
    "送信日時",
)  # fmt: skip
SUBJECT = _field(
    "subject", "betreff", "objet", "asunto", "assunto", "oggetto", "onderwerp", "ämne", "emne",
    "temat", "тема", "主题", "件名",
)  # fmt: skip
HEAD_LINES = 8
RULE = re.compile(r"[-_* ]*")
"""a line that only sets apart, or an empty one"""
TAG = re.compile(r"<(/?)(div|blockquote)\b([^<>]{0,2000})>", re.IGNORECASE)
QUOTED = re.compile(
    r"gmail_quote|yahoo_quoted|moz-cite-prefix|protonmail_quote|type\s*=\s*[\"']?cite\b",
    re.IGNORECASE,
)
"""in a tag that begins a quote"""


def without_quotes(text: str) -> str:
    """What a mail itself says: not what follows `On … wrote:` behind `>`, nor what follows the
    head that Outlook puts above the mail it answers."""
    lines = text.split("\n")
    kept: list[str] = []
    quoting = inside = False
    for line in lines[: _answered_at(lines)]:
        quoted = line.startswith(">")
        if quoted and not inside and (start := _attribution(kept)) is not None:
            del kept[start:]
            quoting = True
        inside = quoted or (inside and not line)
        if not (quoted and quoting):
            kept.append(line)
    return GAPS.sub("\n\n", "\n".join(kept)).strip()


def without_quoted_markup(html: str) -> str:
    """The same for what mail programs mark as quoted."""
    kept: list[str] = []
    start = depth = 0
    within = ""
    for tag in TAG.finditer(html):
        closing, name, attributes = tag[1], tag[2].lower(), tag[3]
        if not within:
            if not closing and QUOTED.search(attributes):
                kept.append(html[start : tag.start()])
                within, depth = name, 1
        elif name == within:
            depth += -1 if closing else 1
            if depth == 0:
                within, start = "", tag.end()
    if not within:
        kept.append(html[start:])
    return "".join(kept)


def _attribution(lines: Sequence[str]) -> int | None:
    """Where the line (or what it was broken into) begins that introduces a quote below."""
    end = len(lines)
    while end and len(lines) - end < 2 and not lines[end - 1].strip():
        end -= 1
    paragraph: list[str] = []
    for line in reversed(lines[max(0, end - 3) : end]):
        if not line.strip() or line.startswith(">"):
            break
        paragraph.insert(0, line.strip())
    joined = " ".join(paragraph)
    if not paragraph or len(joined) > 500 or joined[-1] not in ":\uff1a":
        return None
    if not WROTE.search(joined) and not ("@" in joined and DATE.search(joined)):
        return None
    count = 1
    while count < len(paragraph) and not DATE.search(" ".join(paragraph[-count:])):
        count += 1
    if not DATE.search(" ".join(paragraph[-count:])):
        return end - 1
    if count < len(paragraph) and not OPENING.match(paragraph[-count]):
        count += OPENING.match(paragraph[-count - 1]) is not None
    return end - count


def _answered_at(lines: Sequence[str]) -> int:
    """The line from which on Outlook repeats the mail that is answered; behind the last: none."""
    for at, line in enumerate(lines):
        if ORIGINAL.match(line.strip()):
            return at
        if not SENDER.match(line):
            continue
        below = lines[at + 1 : at + HEAD_LINES]
        if any(SENT.match(one) for one in below) and any(SUBJECT.match(one) for one in below):
            above = at
            while above and RULE.fullmatch(lines[above - 1]):
                above -= 1
            return above
    return len(lines)
