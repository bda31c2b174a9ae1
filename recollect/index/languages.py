"""The languages that words are stemmed in, and the frequent short words that tell them apart."""

import struct
from collections.abc import Iterable

# Frequent short words, for telling languages apart and for leaving them out of queries.
STOP_WORDS = {
    "en": (
        "a about after all also an and any are as at be because been but by can could did do does "
        "for from had has have he her his how i if in into is it its just me more my no not of on "
        "or our out s she should so some t than that the their them then there these they this to "
        "up was we were what when where which who why will with would you your"
    ),
    "de": (
        "aber als am an auch auf aus bei bin bis das dass dem den der des die dies diese doch du "
        "durch ein eine einem einen einer er es für gegen hat haben ich ihr im in ist ja kann kein "
        "man mehr mit nach nicht noch nur oder ob sich sie sind so über um und uns unter vom von "
        "vor war was wenn werden wie wir wird wo zu zum zur"
    ),
    "fr": (
        "à au aux avec c ce ces cette comme d dans de des du elle en est et être eux il ils j je l "
        "la le les leur lui m mais me même mes mon n ne nous on ont ou où par pas plus pour qu que "
        "quel qui s sa se ses si son sont sur t te tu un une vous y"
    ),
    "es": (
        "a al como con cuando de del desde donde el ella en entre era es esta está este esto ha "
        "hay la las le lo los más me mi muy no nos o para pero por porque que qué se ser si sin "
        "sobre son su sus también te un una uno y ya yo"
    ),
    "it": (
        "a ai al alla anche c che chi ci come con d da dal dalla de degli dei del della delle di e "
        "è gli ha hanno i il in io l la le lo ma mi nel nella non o per perché più quando questa "
        "questo se si sono su sua suo sul tra un una uno"
    ),
    "pt": (
        "a ao aos as até com como da das de do dos e é ela ele em entre era essa esse esta está "
        "este eu foi há isso já mais mas me muito na não nas no nos o os ou para pela pelo por "
        "quando que se sem ser seu sua são também tem um uma você"
    ),
    "nl": (
        "aan al als bij dan dat de deze die dit door een en er geen had heb hebben heeft het hij "
        "hoe ik in is je kan maar me meer met mijn naar niet nog nu of om onder ook op over te tot "
        "u uit van voor waar was wat we werd wie worden wordt zal ze zich zij zijn zo"
    ),
    "sv": (
        "alla att av blev bli de dem den denna det detta då där efter ej eller en ett från för ha "
        "hade han har hon hur i inte jag kan man med men mot mycket ni nu när någon och om på "
        "sedan sig sin ska som så till under upp ut var vad vi vid vill är över"
    ),
    "no": (
        "alle at av ble bli de dem den denne der det dette du eller en er et etter for fra før ha "
        "hadde han har hun hva hvis hvor ikke jeg kan man med men mot må når noe nå og også om opp "
        "over på seg sin skal som så til under ut var ved vi vil å"
    ),
    "da": (
        "af alle at blev blive da de dem den denne der det dette du efter eller en er et for fra "
        "før ha havde han har hun hvad hvis hvor hvordan i ikke jeg kan man med men mod når noget "
        "nu og også om op over på sig sin skal som så til under ud var ved vi vil"
    ),
    "fi": (
        "ei että en hän he ihan ja jo joka jos jotka kanssa kuin kun me mikä minä mitä mutta myös "
        "ne niin nyt oli olla olen on ovat se sekä sen sitä sinä tai tämä te tätä vain vielä voi"
    ),
    "pl": (
        "ale bo być był była było by ci co czy dla do gdzie go i ich ja jak jako je jego jej jest "
        "już która które który lub ma mnie na nad nie o od po pod przez przy są się tak tego ten "
        "to tylko w we więc z za ze że"
    ),
    "cs": (
        "a aby ale ani až bez by byl byla bylo být co do i ja jak jako je jeho její jen jsem jsou "
        "k kde když která které který ma má mezi na nebo není o od po pod pro protože při s se si "
        "také tak to tento u v ve z za ze že"
    ),
    "hu": (
        "a az azt be csak de egy el ez ezt ha hogy hol is itt kell ki le lesz meg mert mi mint "
        "most már még nagyon nem ő olyan ott s sem számára szerint és után vagy van vannak volt"
    ),
    "ro": (
        "a acest această ai al ale am ar are au ca care că ce cel cu cum când da dacă de din doar "
        "după e ea el este eu fi fost în la le lui mai mult ne nu o pe pentru pot prin sa sau se "
        "și sunt să un una unde unei unui"
    ),
    "tr": (
        "ama ancak bana bir biz bu çok da daha de değil diye en gibi hem her için ile ise kadar ki "
        "mi mu mı nasıl ne neden o olan olarak onun oldu sen siz sonra şey şu var ve veya ya yok"  # noqa: RUF001 Turkish
    ),
}
STEMMERS = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "it": "italian",
    "pt": "portuguese",
    "nl": "dutch",
    "sv": "swedish",
    "no": "norwegian",
    "da": "danish",
    "fi": "finnish",
    "pl": "polish",
    "cs": "czech",
    "hu": "hungarian",
    "ro": "romanian",
    "tr": "turkish",
    "ru": "russian",
    "el": "greek",
    "hy": "armenian",
    "ar": "arabic",
    "hi": "hindi",
    "ta": "tamil",
}
LATIN = tuple(STOP_WORDS)
"""the languages between which a chunk's stop words decide; the first when there are none"""

SPEAKERS: dict[str, tuple[str, ...]] = {}
for _code, _stops in STOP_WORDS.items():
    for _stop in _stops.split():
        SPEAKERS[_stop] = (*SPEAKERS.get(_stop, ()), _code)
_TALLY = struct.Struct(f"<{len(LATIN)}Q")
VOTES = {
    stop: int.from_bytes(_TALLY.pack(*(720 // len(by) * (one in by) for one in LATIN)), "little")
    for stop, by in SPEAKERS.items()
}
"""What a stop word says for each language, a word of several less for each: the numbers of all
languages side by side in one, so that a sum counts for all of them."""


def spoken(words: Iterable[str]) -> list[str]:
    """The languages that the stop words speak for most."""
    tally = sum(filter(None, map(VOTES.get, words)))
    if not tally:
        return [LATIN[0]]
    votes = _TALLY.unpack(tally.to_bytes(_TALLY.size, "little"))
    most = max(votes)
    return [code for code, said in zip(LATIN, votes, strict=True) if said == most]
