import numpy as np
import pytest

from lantern_embed import EmbeddingLayer, self_attention, softmax

B, T, C, HS = 2, 5, 7, 3


def weights(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((C, HS)) for _ in range(3)]


def inputs(seed=1):
    return np.random.default_rng(seed).standard_normal((B, T, C))


def test_softmax_is_positive_and_sums_to_one():
    w = softmax(inputs())
    assert np.all(w > 0)
    np.testing.assert_allclose(w.sum(axis=-1), 1, rtol=0, atol=1e-15)


def test_softmax_follows_its_formula():
    x = inputs()
    expected = np.exp(x) / np.exp(x).sum(axis=-1)[..., None]
    np.testing.assert_allclose(softmax(x), expected, rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_softmax_sums_along_the_axis_it_is_given(axis):
    x = inputs()
    w = softmax(x, axis=axis)
    assert w.shape == x.shape
    np.testing.assert_allclose(w.sum(axis=axis), 1, rtol=0, atol=1e-15)
    expected = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(w, expected, rtol=1e-14)


@pytest.mark.parametrize("x", [1000.0, -1000.0])
def test_softmax_neither_overflows_nor_divides_by_zero(x):
    # exp(1000) is inf, exp(-1000) is 0: both would give nan.
    assert softmax([x, x]).tolist() == [0.5, 0.5]
    assert softmax([x, x + 2000]).tolist() == [0.0, 1.0]


def test_softmax_takes_the_maximum_of_each_row_by_itself():
    # Less the maximum of them all, exp would be 0 throughout the second.
    assert softmax([[1000, 1000], [-1000, -1000]]).tolist() == [
        [0.5, 0.5],
        [0.5, 0.5],
    ]


def test_softmax_takes_minus_infinity_for_never():
    # What a causal mask writes into the scores.
    assert softmax([-np.inf, 3.0]).tolist() == [0.0, 1.0]


def test_softmax_leaves_its_argument_alone():
    x = inputs()
    softmax(x)
    assert x.tobytes() == inputs().tobytes()


def test_attention_follows_its_formula_in_plain_loops():
    X, (Wq, Wk, Wv) = inputs(), weights()
    expected = np.zeros((B, T, HS))
    for b in range(B):
        for t in range(T):
            q = [sum(X[b, t] * Wq[:, h]) for h in range(HS)]
            likes = []
            for s in range(T):
                k = [sum(X[b, s] * Wk[:, h]) for h in range(HS)]
                score = sum(q[h] * k[h] for h in range(HS)) / HS**0.5
                likes.append(np.exp(score))
            for s in range(T):
                for h in range(HS):
                    v = sum(X[b, s] * Wv[:, h])
                    expected[b, t, h] += likes[s] / sum(likes) * v
    out = self_attention(X, Wq, Wk, Wv)
    assert out.shape == (B, T, HS)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14)


def test_one_position_attends_to_itself_alone():
    X, (Wq, Wk, Wv) = inputs()[:, :1], weights()
    out = self_attention(X, Wq, Wk, Wv)
    np.testing.assert_allclose(out, X @ Wv, rtol=1e-14)


def test_attention_mixes_within_a_sequence_never_across_the_batch():
    X = inputs()
    before = self_attention(X, *weights())
    X[1] += 1
    after = self_attention(X, *weights())
    np.testing.assert_allclose(after[0], before[0], rtol=1e-14)
    assert not np.allclose(after[1], before[1], rtol=1e-3)


# Why the layer has a table P at all.
IDX = np.array([[4, 0, 4, 9, 2], [9, 4, 1, 1, 10]])
SHUFFLE = [3, 0, 4, 1, 2]


def test_without_positions_shuffled_tokens_give_the_same_rows_shuffled():
    E = EmbeddingLayer(11, 6, C).E
    out = self_attention(E[IDX], *weights())
    shuffled = self_attention(E[IDX[:, SHUFFLE]], *weights())
    np.testing.assert_allclose(shuffled, out[:, SHUFFLE], rtol=1e-12)


def test_with_positions_order_matters():
    layer = EmbeddingLayer(11, 6, C)
    out = self_attention(layer.forward(IDX), *weights())
    shuffled = self_attention(layer.forward(IDX[:, SHUFFLE]), *weights())
    assert not np.allclose(shuffled, out[:, SHUFFLE], rtol=1e-3)
