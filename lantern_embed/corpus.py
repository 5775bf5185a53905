"""The Lantern Bay corpus: its text, its alphabet, and the way between them.

Every name here is a constant, not to be written to, or a pure function, so
importing the module twice, or from two projects, always gives the same ids.
"""

import operator

import numpy as np

# Each sentence keeps its trailing space: joined, the text needs no separator.
SENTENCES = (
    "the lamp keeper walks the shore at dusk. ",
    "the lamp keeper lights the lantern when the fog rolls in. ",
    "the boats come home when the lantern glows. ",
    "the boats wait outside the bay when the fog is thick. ",
    "a small boat drifts near the rocks at dawn. ",
    "the keeper rings the bell when a boat drifts near the rocks. ",
    "the tide rises at dusk and falls at dawn. ",
    "the gulls call over the bay when the tide is low. ",
    "the keeper counts the boats and writes the count in a book. ",
    "the lantern burns all night and rests at dawn. ",
)
CORPUS = "".join(SENTENCES) * 20

chars = sorted(set(CORPUS))
vocab_size = len(chars)
stoi = {c: i for i, c in enumerate(chars)}
itos = dict(enumerate(chars))


def encode(s):
    """Turn a string into a list of token ids.

    Parameters
    ----------
    s : str
        Text made of the characters in `chars`.

    Returns
    -------
    list of int
        One id per character, each in ``range(vocab_size)``.

    Raises
    ------
    TypeError
        If `s` is not a string.
    ValueError
        If a character is outside the vocabulary; names it and its position.

    Examples
    --------
    >>> encode("tide")
    [19, 10, 5, 6]
    """
    if not isinstance(s, str):
        raise TypeError(f"encode wants a string, got {type(s).__name__}")
    for t, c in enumerate(s):
        if c not in stoi:
            raise ValueError(
                f"character {c!r} at position {t} is not in the vocabulary "
                f"{''.join(chars)!r}"
            )
    return [stoi[c] for c in s]


def decode(ids):
    """Turn token ids back into a string.

    Parameters
    ----------
    ids : iterable of int
        A list, a one-dimensional array, a generator, ...

    Returns
    -------
    str
        One character per id.

    Raises
    ------
    TypeError
        If an entry is not an integer; names it and its position.
    IndexError
        If an id is outside ``range(vocab_size)``; names it and its position.

    Examples
    --------
    >>> decode([19, 10, 5, 6])
    'tide'
    """
    s = []
    for t, i in enumerate(ids):
        try:
            if isinstance(i, (bool, np.bool_)):
                raise TypeError  # an int to Python, but no id to anybody
            i = operator.index(i)
        except TypeError:
            raise TypeError(
                f"decode wants integers, got {i!r} at position {t}"
            ) from None
        # Checked by hand: a negative id would be read from the end.
        if not 0 <= i < vocab_size:
            raise IndexError(
                f"id {i} at position {t} is outside 0..{vocab_size - 1} "
                f"(vocab_size is {vocab_size})"
            )
        s.append(chars[i])
    return "".join(s)


data = np.array(encode(CORPUS), dtype=np.int64)
data.flags.writeable = False  # shared by all; batches are often views of it
