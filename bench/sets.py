"""Questions with a known answer: public sets, read from files, and sets that are made here.

Nothing is downloaded, and no public set is part of this repository: their licences allow to
evaluate, not all of them to pass on. `docs/bench.md` says where each is had. A set that is made
here is the same on every machine.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from bench import corpus


@dataclass(frozen=True, slots=True)
class Source:
    """A document as it is sent: the path and the body of the request."""

    body: Mapping[str, Any]
    path: str = "/v3/documents"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What answers: a passage of the document of this number that holds one of `texts`.

    Without `texts` any passage of the document does.
    """

    document: int
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    wanted: Sequence[Wanted]
    tag: str | None = None
    """the container tag that it is asked in"""


@dataclass(frozen=True, slots=True)
class Set:
    """`corpus` names the documents: sets of the same corpus are asked in one organisation.

    `measures` are those of `bench.quality`; `judged`: nonsense and unrelated questions are asked,
    too.
    """

    name: str
    corpus: str
    documents: Sequence[Source]
    questions: Sequence[Question]
    measures: Sequence[str]
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """A public set whose files are not there, and where they were looked for."""

    name: str
    missing: str


COVID = "200423_covidQA.json"
CRANFIELD = ("cran.all.1400", "cran.qry", "cranqrel")
LANGUAGES = ("de", "ru", "zh")
LOCOMO = "locomo10.json"
NAMES = (
    *("texts", "dates", "codes", "covid", "cranfield", "locomo", "xquad-en"),
    *(f"xquad-{language}" for language in LANGUAGES),
    *(f"xquad-{language}-en" for language in LANGUAGES),
)


def public(data: Path | None) -> Iterator[Set | Absent]:
    """The public sets in a folder. Raises SystemExit for a file that is something else."""
    makers: list[tuple[str, tuple[str, ...], Callable[..., Set]]] = [
        ("covid", (COVID,), covid),
        ("cranfield", CRANFIELD, cranfield),
        ("locomo", (LOCOMO,), locomo),
        ("xquad-en", ("xquad.en.json",), lambda file: xquad("en", file, file)),
    ]
    for language in LANGUAGES:
        own, english = f"xquad.{language}.json", "xquad.en.json"
        makers += [
            (f"xquad-{language}", (own,), _same(language)),
            (f"xquad-{language}-en", (english, own), _across(language)),
        ]
    for name, files, make in makers:
        paths = [(data or Path()) / file for file in files]
        missing = [path.name for path in paths if data is None or not path.exists()]
        if missing:
            yield Absent(name, ", ".join(missing))
            continue
        try:
            yield make(*paths)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise SystemExit(f"{', '.join(map(str, paths))}: not the set {name}: {why}") from error


def _same(language: str) -> Callable[[Path], Set]:
    return lambda file: xquad(language, file, file)


def _across(language: str) -> Callable[[Path, Path], Set]:
    return lambda english, file: xquad(language, english, file)


def covid(file: Path) -> Set:
    """COVID-QA (Möller et al., 2020; Apache-2.0): questions of experts about long papers."""
    return _squad("covid", "covid", file, file, ("hit5", "hit1", "answer5", "answer1"), judged=True)


def xquad(language: str, documents: Path, asked: Path) -> Set:
    """XQuAD (Artetxe et al., 2020; CC BY-SA 4.0), asked in the language of the texts or across."""
    if documents == asked:
        corpus, measures = f"xquad-{language}", ("hit1", "hit5")
        return _squad(corpus, corpus, documents, asked, measures, judged=language == "en")
    return _squad(f"xquad-{language}-en", "xquad-en", documents, asked, ("hit5", "hit1"))


def _squad(
    name: str,
    corpus: str,
    documents: Path,
    asked: Path,
    measures: Sequence[str],
    *,
    judged: bool = False,
) -> Set:
    """A set in the format of SQuAD; each paragraph is a document."""
    # Another language's answers are its own words: there the document has to do.
    same = documents == asked
    questions = [
        Question(one["question"], [Wanted(number, _answers(one) * same)])
        for number, paragraph in enumerate(_paragraphs(asked))
        for one in paragraph["qas"]
        if one["answers"]
    ]
    sources = [Source({"content": paragraph["context"]}) for paragraph in _paragraphs(documents)]
    return Set(name, corpus, sources, questions, measures, judged)


def _answers(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Without the blanks that annotators marked around some: no passage begins or ends with one."""
    return tuple(answer["text"].strip() for answer in asked["answers"])


def _paragraphs(file: Path) -> list[Mapping[str, Any]]:
    given = json.loads(file.read_bytes())
    return [paragraph for article in given["data"] for paragraph in article["paragraphs"]]


NO_INTEREST = -1
"""how the judges of Cranfield said that a document is none"""


def cranfield(texts: Path, asked: Path, judgements: Path) -> Set:
    """Cranfield 1400 (Cleverdon, 1967): 225 questions of engineers, abstracts, all judged.

    Its documents are the titles and abstracts of others' papers under no stated licence.
    """
    numbered = {number: place for place, number in enumerate(_smart(texts))}
    sources = [
        Source({"content": f"{parts.get('T', '')}\n\n{parts.get('W', '')}".strip() or number})
        for number, parts in _smart(texts).items()
    ]
    good: dict[int, list[Wanted]] = {}
    for line in judgements.read_text().splitlines():
        question, document, grade = map(int, line.split())
        if grade != NO_INTEREST:
            good.setdefault(question, []).append(Wanted(numbered[str(document)]))
    # Judgements name a question by its place, not by the number that it bears.
    questions = [
        Question(parts["W"], good[place])
        for place, parts in enumerate(_smart(asked).values(), 1)
        if place in good
    ]
    return Set("cranfield", "cranfield", sources, questions, ("ndcg10",))


def _smart(file: Path) -> dict[str, dict[str, str]]:
    """The format of SMART: `.I number`, then fields `.T`, `.W`, …; by number."""
    found: dict[str, dict[str, str]] = {}
    for record in re.split(r"^\.I +", file.read_text(), flags=re.M)[1:]:
        number, _, rest = record.partition("\n")
        _, *parts = re.split(r"^\.([A-Z])\s*$", rest, flags=re.M)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        # Abstracts begin with their titles, which stand in a field of their own as well.
        found[str(int(number))] = {name: text.strip() for name, text in pairs}
    return found


UNANSWERABLE = 5
"""the category of LoCoMo's questions that have no answer"""
EVIDENCE = re.compile(r"D(\d+):(\d+)")
"""some questions name several turns in one word, or with zeros before"""


def locomo(file: Path) -> Set:
    """LoCoMo (Maharana et al., ACL 2024; CC BY-NC 4.0: for evaluation only): long conversations.

    `file` is the published list, or a folder with a file for each conversation. Each conversation
    is a container tag, each session a document, sent to `POST /v4/conversations` with its date as
    the first message and then a message for each turn. A question names the turns that its answer
    stands in; a turn has come up when one of its halves stands in a passage.
    """
    if file.is_dir():
        given = [json.loads(one.read_bytes()) for one in sorted(file.glob("*.json"))]
    else:
        given = json.loads(file.read_bytes())
    sources: list[Source] = []
    questions: list[Question] = []
    for number, sample in enumerate(given):
        tag = f"locomo-{number}"
        said = sample.get("conversation", sample)
        turns: dict[str, Wanted] = {}
        for name, told in said.items():
            if re.fullmatch(r"session_\d+", name) and told:
                for turn in told:
                    turns[turn["dia_id"]] = Wanted(len(sources), _halves(_words(turn)))
                sources.append(_session(f"{tag}-{name}", tag, said[f"{name}_date_time"], told))
        for one in sample["qa"]:
            named = [f"D{int(s)}:{int(t)}" for s, t in EVIDENCE.findall(" ".join(one["evidence"]))]
            wanted = [turns[turn] for turn in dict.fromkeys(named) if turn in turns]
            if wanted and one["category"] != UNANSWERABLE:
                questions.append(Question(one["question"], wanted, tag))
    return Set("locomo", "locomo", sources, questions, ("turns5", "turns15"))


def _session(id: str, tag: str, date: str, told: Sequence[Mapping[str, Any]]) -> Source:
    first = told[0]["speaker"]
    messages = [
        {
            "role": "user" if turn["speaker"] == first else "assistant",
            "name": turn["speaker"].replace(" ", "_"),
            "content": _words(turn),
        }
        for turn in told
    ]
    body = {
        "conversationId": id,
        "containerTags": [tag],
        "messages": [{"role": "system", "content": date}, *messages],
    }
    return Source(body, "/v4/conversations")


def _words(turn: Mapping[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return turn["text"] + (f" [{caption}]" if caption else "")


def _halves(text: str) -> tuple[str, str]:
    text = " ".join(text.split())
    half = len(text) // 2 + 1
    return text[:half], text[-half:]


def made(passages: int, questions: int) -> list[Set]:
    """The sets that any machine has; `passages` and `questions`: how many of each kind."""
    return [texts(passages, questions), dates(), codes()]


FIRST_DAY = date(2024, 1, 5)


def dates() -> Set:
    """36 days, a document each, asked by their date."""
    days = [FIRST_DAY + timedelta(days=10 * n) for n in range(36)]
    return Set(
        "dates",
        "dates",
        [Source({"content": f"The meeting was on {day} in Bonn."}) for day in days],
        [Question(f"What was on {day}?", [Wanted(n)]) for n, day in enumerate(days)],
        ("hit1",),
    )


def codes() -> Set:
    """Identifiers and codes, each among others that are made of the same parts."""
    choose = random.Random(23)
    verbs, things = ("get", "set", "find", "drop"), ("User", "Order", "Invoice")
    names = ("ada", "grace", "alan", "edsger")
    kinds: list[list[str]] = [
        [f"CVE-{year}-{number}" for year in (2023, 2024, 2025) for number in (1234, 4321, 2143)],
        [f"v{a}.{b}.{c}" for a, b, c in ((1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 2, 1))],
        [f"ISO {number}" for number in (27001, 27002, 9001, 9002, 14001)],
        [f"{verb}{thing}ById" for verb in verbs for thing in things],
        [f"{one}@{other}.example.com" for one in names for other in names if one != other],
        [f"src/{one}/{other}.py" for one in names for other in names if one != other],
        [f"{hour:02}:{minute:02}" for hour in (9, 10, 21) for minute in (9, 10, 45)],
        [f"ERR_{one}_{other}" for one in ("DISK", "NET") for other in ("FULL", "LOST", "SLOW")],
        [f"+49 228 {number}" for number in (555123, 555321, 123555)],
    ]
    all = [code for kind in kinds for code in kind]
    sentences = ("It says {} in the log.", "We noted {} on Monday.", "Please look at {} again.")
    return Set(
        "codes",
        "codes",
        [Source({"content": choose.choice(sentences).format(code)}) for code in all],
        [Question(code, [Wanted(n)]) for n, code in enumerate(all)],
        ("hit1",),
    )


SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
NAME = re.compile(r"\S*[_(){}\[\]<>=`*]\S*|\b\w+\.\w+\b|\b\w*[a-z][A-Z]\w*\b|\b[A-Z]{2,}\w*\b")
"""what looks like the name of something in a program"""
HEADING = re.compile(r"^(?:#{1,4} (?P<md>.+)|(?P<rst>[^\n]{8,70})\n(?:={8,}|-{8,}|\*{8,}))$", re.M)
COMMENT = re.compile(r"(?:^[ ]*# .*\n)+", re.M)
LEAST, MOST = 200, 4_000
"""characters of a passage"""
SEED = 17


@dataclass(frozen=True, slots=True)
class Pair:
    kind: str
    asked: str
    answer: str


def texts(passages: int, questions: int) -> Set:
    """Questions that are made of documents at hand, never written for the purpose.

    - `summary`: the first sentence of a docstring, without the names of code in it; wanted is the
      rest of that docstring.
    - `heading`: a heading of at least three words in a README or the language reference; wanted is
      the text below it.
    - `comment`: a comment of a whole sentence in a program; wanted is the code below it.
    - `opening`: the first sentence of a paragraph of prose; wanted are its other sentences.

    What was taken for the question is cut out of the passage, so that words alone do not decide.
    """
    choose = random.Random(SEED)
    asked: list[Pair] = []
    others: list[Pair] = []
    for some in pairs().values():
        chosen = choose.sample(some, min(passages, len(some)))
        asked += chosen[:questions]
        others += chosen[questions:]
    return Set(
        "texts",
        "texts",
        [Source({"content": one.answer}) for one in (*asked, *others)],
        [Question(one.asked, [Wanted(n)]) for n, one in enumerate(asked)],
        ("mrr10", "recall10"),
        judged=True,
    )


def pairs() -> dict[str, list[Pair]]:
    """All that the documents at hand give, by kind."""
    found: dict[tuple[str, str], Pair] = {}
    answers: set[str] = set()
    for pair in (*_summaries(), *_headings(), *_comments(), *_openings()):
        if LEAST <= len(pair.answer) <= MOST and pair.answer not in answers:
            answers.add(pair.answer)
            found.setdefault((pair.kind, pair.asked), pair)
    kinds = dict.fromkeys(kind for kind, _ in found)
    return {kind: [one for one in found.values() if one.kind == kind] for kind in kinds}


def _summaries() -> Iterator[Pair]:
    for text in corpus.docstrings():
        first, _, rest = text.partition("\n\n")
        words = " ".join(NAME.sub(" ", first).split())
        if len(first) < 200 and len(words.split()) >= 5:
            yield Pair("summary", words, rest.strip())


def _headings() -> Iterator[Pair]:
    for text in (*corpus.readmes(), *corpus.topics()):
        found = list(HEADING.finditer(text))
        ends = [*(one.start() for one in found[1:]), len(text)]
        for one, end in zip(found, ends, strict=False):
            words = (one["md"] or one["rst"]).strip(" #*`")
            below = text[one.end() : end].strip()
            if len(words.split()) >= 3 and words.lower() not in below.lower():
                yield Pair("heading", words, below[:MOST])


def _comments() -> Iterator[Pair]:
    for source in corpus.sources():
        for one in COMMENT.finditer(source):
            words = " ".join(line.strip().removeprefix("# ") for line in one[0].splitlines())
            below = source[one.end() :].split("\n\n", 1)[0]
            if 8 <= len(words.split()) <= 40 and words[0].isupper() and "#" not in below:
                yield Pair("comment", words, below.strip())


def _openings() -> Iterator[Pair]:
    for text in corpus.paragraphs():
        first, *rest = SENTENCE.split(" ".join(text.split()))
        if 6 <= len(first.split()) <= 30 and len(rest) >= 2:
            yield Pair("opening", first, " ".join(rest))


def nonsense(count: int) -> list[str]:
    """Questions of words that no language has, one to six of them."""
    choose = random.Random(29)
    letters = "bcdfghjklmnpqrstvwxz" * 2 + "aeiouy"

    def word() -> str:
        return "".join(choose.choice(letters) for _ in range(choose.randint(5, 11)))

    return [" ".join(word() for _ in range(choose.randint(1, 6))) for _ in range(count)]


ASKED = (
    "How long does it take to {}?",
    "What do I need to {}?",
    "Which mistakes do beginners make when they {}?",
    "What is the cheapest way to {}?",
    "How can I teach a child to {}?",
)
DONE = """
boil potatoes for a salad
knit a woollen scarf
tune a classical guitar
fold a paper crane
train a puppy to sit
bake a chocolate cake
repair a flat bicycle tyre
prune rose bushes
polish leather shoes
roast coffee beans at home
whiten yellow curtains
juggle three balls
ferment cabbage into kimchi
play the opening of a chess game
sharpen a kitchen knife
sew a button on a shirt
paint a garden fence
iron a silk blouse
groom a poodle
sharpen ice skates
brew ginger beer
carve a pumpkin
braid long hair
tie a bow tie
clean a fish tank
stretch before yoga
wax a surfboard
build a snowman
pickle cucumbers
fry dumplings without oil
wrap a birthday present
mow a wet lawn
dance the tango
remove chewing gum from a carpet
pack a suitcase for two weeks
hang wallpaper in a hallway
whistle with two fingers
peel a mango
season a cast iron pan
throw a frisbee far
""".strip().splitlines()


def unrelated(count: int) -> list[str]:
    """Sensible questions of the household, which none of the sets' documents answers."""
    all = [asked.format(done) for done in DONE for asked in ASKED]
    return random.Random(31).sample(all, min(count, len(all)))
