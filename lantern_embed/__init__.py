"""Lantern Embed: the input stage of a GPT, built by hand in NumPy."""

from .attention import self_attention, softmax
from .corpus import CORPUS, chars, data, decode, encode, itos, stoi, vocab_size
from .gradcheck import check_gradients, numeric_grad, rel_err, scalar_loss
from .layer import EmbeddingLayer
from .scatter import scatter_add

__version__ = "1.0.0"
__all__ = [
    "CORPUS",
    "EmbeddingLayer",
    "chars",
    "check_gradients",
    "data",
    "decode",
    "encode",
    "itos",
    "numeric_grad",
    "rel_err",
    "scalar_loss",
    "scatter_add",
    "self_attention",
    "softmax",
    "stoi",
    "vocab_size",
]
