import numpy as np
import pytest

from lantern_embed import (
    CORPUS,
    chars,
    data,
    decode,
    encode,
    itos,
    stoi,
    vocab_size,
)

# The course's text, one sentence a line; each ends in a space.
SENTENCES = """\
the lamp keeper walks the shore at dusk.
the lamp keeper lights the lantern when the fog rolls in.
the boats come home when the lantern glows.
the boats wait outside the bay when the fog is thick.
a small boat drifts near the rocks at dawn.
the keeper rings the bell when a boat drifts near the rocks.
the tide rises at dusk and falls at dawn.
the gulls call over the bay when the tide is low.
the keeper counts the boats and writes the count in a book.
the lantern burns all night and rests at dawn.
"""
ALPHABET = " .abcdefghiklmnoprstuvwy"


def test_corpus_is_the_ten_sentences_twenty_times():
    assert CORPUS == SENTENCES.replace("\n", " ") * 20
    assert len(CORPUS) == 10_020


def test_alphabet_is_sorted_and_has_24_characters():
    assert chars == list(ALPHABET)
    assert vocab_size == 24


def test_stoi_and_itos_are_inverse():
    assert stoi == {c: i for i, c in enumerate(ALPHABET)}
    assert itos == dict(enumerate(ALPHABET))


def test_data_is_the_encoded_corpus_in_64_bits_on_every_platform():
    assert data.dtype == np.int64
    assert data.shape == (10_020,)
    assert data.tolist() == [ALPHABET.index(c) for c in CORPUS]


def test_encode_gives_a_list_of_plain_ints():
    ids = encode("tide")
    assert ids == [19, 10, 5, 6]
    assert type(ids) is list
    assert {type(i) for i in ids} == {int}


def test_encode_and_decode_are_inverse_on_the_whole_corpus():
    assert decode(encode(CORPUS)) == CORPUS


def test_the_empty_string_is_no_special_case():
    assert encode("") == []
    assert decode([]) == ""


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param((19, 10, 5, 6), id="tuple"),
        pytest.param(np.array([19, 10, 5, 6]), id="int64 array"),
        pytest.param(np.array([19, 10, 5, 6], np.uint8), id="uint8 array"),
        pytest.param(np.array([6, 5, 10, 19])[::-1], id="reversed view"),
        pytest.param([np.int8(19), 10, 5, np.uint64(6)], id="mixed"),
    ],
)
def test_decode_takes_any_iterable_of_ints(ids):
    assert decode(ids) == "tide"


def test_decode_reads_an_iterator_just_once():
    assert decode(iter([19, 10, 5, 6])) == "tide"


def test_first_and_last_id_decode():
    assert decode([0, 23]) == " y"


@pytest.mark.parametrize(
    ("s", "c", "t"),
    [
        # The first of two strangers is named, not the last.
        pytest.param("the Bay Zoo", "B", 4, id="capital"),
        pytest.param("7 boats", "7", 0, id="first place"),
        pytest.param("fog\n", "\n", 3, id="last place, shown escaped"),
    ],
)
def test_encode_names_a_stranger_and_its_position(s, c, t):
    with pytest.raises(ValueError) as caught:
        encode(s)
    assert str(caught.value) == (
        f"character {c!r} at position {t} is not in the vocabulary "
        f"{ALPHABET!r}"
    )


@pytest.mark.parametrize("s", [b"tide", ["t", "i"], None, 5])
def test_encode_refuses_what_is_no_string(s):
    with pytest.raises(TypeError) as caught:
        encode(s)
    assert str(caught.value) == (
        f"encode wants a string, got {type(s).__name__}"
    )


@pytest.mark.parametrize(
    ("ids", "i", "t"),
    [
        # A list would read -1 as its last entry, without a word.
        pytest.param([0, 5, -1], -1, 2, id="just below"),
        pytest.param([24], 24, 0, id="just above"),
        pytest.param([3, 99, 98], 99, 1, id="the first of two"),
        pytest.param([3, 2**70], 2**70, 1, id="beyond 64 bits"),
        pytest.param(np.array([3, 200], np.uint8), 200, 1, id="array"),
    ],
)
def test_decode_names_an_id_outside_and_its_position(ids, i, t):
    with pytest.raises(IndexError) as caught:
        decode(ids)
    assert str(caught.value) == (
        f"id {i} at position {t} is outside 0..23 (vocab_size is 24)"
    )


@pytest.mark.parametrize(
    ("ids", "shown", "t"),
    [
        pytest.param([5, 1.0], "1.0", 1, id="float"),
        pytest.param("19", "'1'", 0, id="string"),
        pytest.param([5, 5, None], "None", 2, id="None"),
        pytest.param(np.array([[5]]), "array([5])", 0, id="two dimensions"),
    ],
)
def test_decode_names_what_is_no_integer(ids, shown, t):
    with pytest.raises(TypeError) as caught:
        decode(ids)
    assert str(caught.value) == (
        f"decode wants integers, got {shown} at position {t}"
    )


@pytest.mark.parametrize("yes", [True, np.True_])
def test_decode_takes_no_boolean_for_an_id(yes):
    with pytest.raises(TypeError, match="wants integers, got .*True.* at"):
        decode([3, yes])
