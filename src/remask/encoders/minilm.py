"""all-MiniLM-L6-v2 (Wang et al. 2020, fine-tuned on pairs of sentences): the features of texts.

The network is BERT with six layers. Features are the mean over the tokens of a text, scaled to
length 1. Nothing is downloaded: weights and tokenizer are files of a Python package.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from remask.encoders.catalogue import FILES, EncoderError, has_package, missing
from remask.encoders.encoder import CHUNK, Encoder, Samples

_WORDS, _WIDTH, _LAYERS, _HEADS, _INNER = 30522, 384, 6, 12, 1536
_POSITIONS = 512
_LONGEST = 256  # tokens; the model was trained with at most these
_PAD = 0
_EPS = 1e-12

Tokenize = Callable[[Sequence[str]], list[list[int]]]


class TextEncoder(Encoder):
    """An encoder of texts: `forward` takes token ids, and ids equal to `pad` are ignored."""

    kind = "text"
    pad: int = _PAD
    """The id that fills the end of shorter texts."""
    _tokenize: Tokenize

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids int64 [B, L] of texts, truncated and filled to the same length."""
        return self._filled(self._tokenize(list(texts)))

    @override
    def encode(self, samples: Samples, done: Callable[[int], None] | None = None) -> Tensor:
        """Compute the features of texts, float32 [B, F] on the CPU; see `Encoder.encode`."""
        if isinstance(samples, str) or not all(isinstance(text, str) for text in samples):
            raise EncoderError(f"the encoder {self.name!r} takes a list of texts")
        ids = self._tokenize([str(text) for text in samples])
        return self.encode_chunks(self._chunks(ids), len(ids), done)

    def _chunks(self, ids: list[list[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of texts of similar length, which need little filling."""
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            yield torch.tensor(rows), self._filled([ids[row] for row in rows])

    def _filled(self, ids: list[list[int]]) -> Tensor:
        filled = torch.full((len(ids), max(map(len, ids), default=0)), self.pad)
        for row, tokens in zip(filled, ids, strict=True):
            row[: len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        return filled


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    """Average states [B, L, F] over the mask [B, L], scaled to length 1: [B, F]."""
    weights = mask.to(states.dtype)[..., None]
    means = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    return F.normalize(means, dim=-1)


class _Layer(nn.Module):
    """Self-attention, then two linear layers, each with a residual and layer normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.mixed = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        self.mixed_norm = nn.LayerNorm(_WIDTH, eps=_EPS)
        self.inner, self.outer = nn.Linear(_WIDTH, _INNER), nn.Linear(_INNER, _WIDTH)
        self.outer_norm = nn.LayerNorm(_WIDTH, eps=_EPS)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """[B, L, F] -> [B, L, F]; the mask [B, 1, 1, L] is true for tokens to attend to."""
        shape = (*states.shape[:2], _HEADS, -1)
        query, key, value = (
            part(states).reshape(shape).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = self.mixed(attended.transpose(1, 2).reshape(states.shape))
        states = self.mixed_norm(states + mixed)
        return self.outer_norm(states + self.outer(F.gelu(self.inner(states))))  # type: ignore[no-any-return]


class MiniLM(TextEncoder):
    """The network of all-MiniLM-L6-v2."""

    name = "minilm"
    features = _WIDTH

    def __init__(self, tokenize: Tokenize) -> None:
        super().__init__()
        self._tokenize = tokenize
        self.words = nn.Embedding(_WORDS, _WIDTH)
        self.positions = nn.Embedding(_POSITIONS, _WIDTH)
        self.segments = nn.Embedding(2, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH, eps=_EPS)
        self.layers = nn.ModuleList(_Layer() for _ in range(_LAYERS))
        self.frozen()

    def forward(self, inputs: Tensor) -> Tensor:
        """Token ids int64 [B, L] -> features [B, 384] of length 1."""
        mask = inputs != self.pad
        places = torch.arange(inputs.shape[1], device=inputs.device)
        embedded = self.words(inputs) + self.positions(places) + self.segments.weight[0]
        states = self.norm(embedded)
        for layer in self.layers:
            states = layer(states, mask[:, None, None])
        return pooled(states, mask)


# Our names in the file of weights.
_NAMES = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mixed": "attention.output.dense",
    "mixed_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "outer_norm": "output.LayerNorm",
}


def load_minilm(name: str = MiniLM.name) -> MiniLM:
    """Load MiniLM from its package. Raises MissingPackageError or EncoderError."""
    if not has_package("tokenizers"):
        raise missing(name)
    weights, tokens = FILES[name]
    published = safetensors.torch.load(weights.read(name))
    net = MiniLM(_tokenizer(tokens.read(name)))
    state = {}
    for key in net.state_dict():
        *place, module, part = key.split(".")
        prefix = f"encoder.layer.{place[1]}." if place else ""
        state[key] = published[f"{prefix}{_NAMES[module]}.{part}"]
    net.load_state_dict(state)
    net.fingerprint = weights.sha256
    return net


def _tokenizer(contents: bytes) -> Tokenize:
    """Make a function from texts to token ids, at most 256 each."""
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_buffer(contents)
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LONGEST)

    def tokenize(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]

    return tokenize
