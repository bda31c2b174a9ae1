"""Secrets at rest: which key opens what, and where."""

import base64
from itertools import permutations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from recollect import encryption
from recollect.errors import SetupError

OLD, NEW, OTHER = (letter * 32 for letter in (b"o", b"n", b"x"))
PLACE = ("org", "githubClientSecret")
# Sealed by the version that had one key, with b"o" * 32.
SEALED_BEFORE = "sealed1:WJB7jAPsCTOYUs//FfJLnZNQDV2RLLGhGNUC/NvPpAiBmQ=="

WORDS = st.text(st.characters(codec="utf-8"))
KEYS = st.binary(min_size=32, max_size=32)


@given(key=KEYS, secret=WORDS, place=st.lists(WORDS, min_size=1, max_size=3))
def test_what_was_sealed_opens(key: bytes, secret: str, place: list[str]):
    sealed = encryption.seal([key], secret, place=place)

    assert encryption.unseal([key], sealed, place=place) == secret
    assert sealed.isascii()
    assert encryption.seal([key], secret, place=place) != sealed


@given(place=st.lists(WORDS, min_size=1, max_size=3), other=st.lists(WORDS, max_size=3))
def test_it_opens_in_its_place_only(place: list[str], other: list[str]):
    sealed = encryption.seal([OLD], "s3cret", place=place)

    if other != place:
        with pytest.raises(SetupError):
            encryption.unseal([OLD], sealed, place=other)


@pytest.mark.parametrize("elsewhere", [("orggithub", "ClientSecret"), ("org",), (*PLACE, "")])
def test_places_do_not_run_into_each_other(elsewhere: tuple[str, ...]):
    with pytest.raises(SetupError):
        encryption.unseal([OLD], encryption.seal([OLD], "s3cret", place=PLACE), place=elsewhere)


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_damaged_one_opens_nowhere(cut: int):
    sealed = encryption.seal([OLD], "s3cret", place=PLACE)
    head, _, text = sealed.rpartition(":")
    data = bytearray(base64.b64decode(text))
    data[-cut % len(data)] ^= 1
    flipped = f"{head}:{base64.b64encode(data).decode()}"

    for broken in (sealed[:-cut], flipped, sealed.replace(":", ""), text, head, f"{head}:"):
        with pytest.raises(SetupError, match="githubClientSecret"):
            encryption.unseal([OLD], broken, place=PLACE)


def test_the_newest_key_seals_and_any_opens():
    sealed = encryption.seal([NEW, OLD], "s3cret", place=PLACE)
    before = encryption.seal([OLD], "s3cret", place=PLACE)

    assert encryption.unseal([NEW], sealed, place=PLACE) == "s3cret"
    for keys in permutations([OTHER, NEW, OLD]):
        assert encryption.unseal(keys, sealed, place=PLACE) == "s3cret"
        assert encryption.unseal(keys, before, place=PLACE) == "s3cret"
    for key, text in ((OLD, sealed), (NEW, before)):
        with pytest.raises(SetupError, match="after the new one, separated by a comma"):
            encryption.unseal([key, OTHER], text, place=PLACE)


def test_what_an_older_key_sealed_is_stale():
    sealed = encryption.seal([OLD], "s3cret", place=PLACE)

    assert not encryption.stale([OLD], sealed)
    assert not encryption.stale([OLD, NEW], sealed)
    assert encryption.stale([NEW, OLD], sealed)
    assert encryption.stale([OTHER], sealed)


def test_the_first_format_still_opens_and_is_stale():
    assert encryption.unseal([OLD], SEALED_BEFORE, place=PLACE) == "s3cret"
    assert encryption.unseal([NEW, OLD], SEALED_BEFORE, place=PLACE) == "s3cret"
    assert encryption.stale([OLD], SEALED_BEFORE)
    for keys, place in (([NEW], PLACE), ([OLD], ("other", PLACE[1]))):
        with pytest.raises(SetupError):
            encryption.unseal(keys, SEALED_BEFORE, place=place)


def test_one_cannot_be_passed_off_as_the_other_format():
    new = encryption.seal([OLD], "s3cret", place=PLACE)
    _, id, text = new.split(":")

    for forged in (f"sealed1:{text}", SEALED_BEFORE.replace("sealed1:", f"sealed2:{id}:")):
        with pytest.raises(SetupError):
            encryption.unseal([OLD], forged, place=PLACE)


def test_a_secret_says_which_key_it_was():
    by_old, by_new = (encryption.seal([key], "s3cret", place=PLACE) for key in (OLD, NEW))
    swapped = f"{by_new.rpartition(':')[0]}:{by_old.rpartition(':')[2]}"

    with pytest.raises(SetupError):
        encryption.unseal([NEW, OLD], swapped, place=PLACE)


def test_it_is_aes_gcm_as_anybody_writes_it():
    """So that a backup can be opened without this program."""
    format, id, text = encryption.seal([OLD], "s3cret", place=PLACE).split(":")
    data = base64.b64decode(text)
    key = HKDF(SHA256(), 32, salt=None, info=b"recollect: secrets at rest").derive(OLD)
    bound = b"".join(len(p).to_bytes(4) + p for p in (b"sealed2:", b"org", b"githubClientSecret"))

    assert AESGCM(key).decrypt(data[:12], data[12:], bound) == b"s3cret"
    assert (format, len(id)) == ("sealed2", 8)
    assert bytes.fromhex(id) not in key + OLD
