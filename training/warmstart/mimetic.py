"""A Qwen2 model whose weights start as an induction circuit, not as noise.

Copying a needle word for word is induction: find the earlier place where the last tokens
occurred, and say what came next. In short trials from random weights that circuit had
not appeared; here it is written down at the start (mimetic initialisation, after
Trockman & Kolter 2023, arXiv:2305.09828, and the induction heads of Olsson et al. 2022,
arXiv:2209.11895), and training only refines it. Nothing about it needs other than plain Qwen2:

- embeddings are random in the first half of the residual stream, the second half is empty;
- layer 0 looks one, two, three and about five tokens back, by its biases and RoPE alone, and
  writes what it sees into four slots of the empty half;
- layer 1, heads 0 and 1 look for the place whose slots say what this token and those before
  it are, and copy the token standing there; the tied output matrix turns the copy into that
  token's logit;
- layer 1, head 2 flags a place behind a key that the question asks for; two heads of layer 2
  tell every later place that there is such a flag, anywhere or in the section;
- layer 1, head 3 looks at the title of the document that a token stands in, or the name that an
  entry begins with, and writes its first tokens beside the last slot; two heads of layer 2 look
  where it is the same: which of the tokens there are asked for, they have to learn;
- layer 3, heads 0 and 1 start random: training shows them the value that those led to, as it shows
  layer 1's head 3 the title, lest it rest on the first token everywhere
  (`training.warmstart.guide`);
- the last layer, heads 0 and 1 copy what they look at; they are written as layer 1's, but what the
  layers between add drowns that: training shows them where each token of a reply stands already
  (`training.warmstart.points`);
- all other heads and the MLPs start random and small.

Measured on 2 cores: before any training an earlier form of this start got 60 to 80% of the
reply tokens right, random weights none. With the layers at the full AdamW rate and no flags,
chunks that hold only needles of other keys were often taken for hits still after 13M tokens;
with flags, a fifth of the rate (`layers_rate`) and more blank turns, 1 in 40 after 6.5M. The
three changes came together and were not told apart: at the full rate the flags were gone
after 1.6M tokens, and the trained model finds a key mostly by heads of its own making.

The matching uses only the slowest rotary pairs, which hardly turn within the window, so
`rope_theta` is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM


@dataclass(frozen=True, slots=True)
class PocketShape:
    """The model's shape. `width` = 4 x 64; heads are of 64, as serving engines like them."""

    width: int = 256
    heads: int = 4
    layers: int = 4
    mlp_width: int = 512
    rope_theta: float = 1e8
    window_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Tokens that the circuit knows by id. `start`: the first of any chat. `asked`: what may
    follow a key in a question. `lead`: what precedes a key in a needle, but not in a memory.
    `titles`: what precedes a document's title, or the name that an entry begins with. `twins`:
    words with a space before them and without, as at the start of a title."""

    start: int
    asked: tuple[int, ...]
    lead: int
    titles: tuple[int, ...]
    twins: tuple[tuple[int, int], ...]


EMBED_STD = 0.08
FAST_PAIRS = 8
"""Rotary pairs 0..7 tell positions apart; pairs 12..31 match contents."""
FIRST_SLOW_PAIR = 12
OFFSET_BIAS = 12.0
COPY_GAIN = 3.0
ASKED_ROWS = 18
FLAG = 8.0
"""Size of a flag in the stream, in standard deviations of an embedding's entries."""
TITLE_ROW = 31
"""Of the projected embedding: kept free for what precedes a title or an entry's name."""
TITLE_TOKENS = 3
"""Of a title, that are looked at."""
NEAR_PAIRS = (3, 4, 5, 6, 7, 8, 9)
"""Rotary pairs that together tell what is near from what is far, from one token to hundreds."""
TITLE_LOGIT, NEAR_LOGIT = 60.0, 6.0
"""Of a title's first tokens, and the most for each of NEAR_PAIRS. The first outweighs all of these
together, so that no token near by is taken for a title."""
TITLE_LAYER, TITLE_HEADS = 1, range(3, 4)
DOCUMENT_LAYER, DOCUMENT_HEADS = 2, range(2, 4)
VALUE_LAYER, VALUE_HEADS = 3, range(2)
"""With what the document heads found, these find what is told there; random at the start."""
POINTER_HEADS = range(2)
"""Of the last layer: they learn where each token of a reply stands already."""
TITLE_GAIN = 6.0
"""Of the title's code, in the size of what else stands in its slots."""
NAME_LOGIT, FAR_LOGIT = 24.0, 6.0
"""Of the same name, and against each of NEAR_PAIRS."""
LEAD_IN_SLOT, LEAD_ITSELF, START_ITSELF = 7.0, 9.3, 10.0
"""About how large these landmarks' own directions are in what layer 1 reads, after its norm."""
TWINS = 0.8
"""How similar a word is to itself without its space."""
OFFSETS = (1.0, 2.0, 3.0, 5.5)
"""Tokens back that layer 0's heads look; the last one blurs about five tokens together."""


def pocket_config(
    shape: PocketShape, vocab: int, bos: int, eos: int, pad: int, *, dtype: str = "float32"
) -> Qwen2Config:
    """The plain Qwen2 configuration of the pocket model."""
    return Qwen2Config(
        vocab_size=vocab,
        hidden_size=shape.width,
        intermediate_size=shape.mlp_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.window_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=pad,
        dtype=dtype,
    )


def mimetic_model(config: Qwen2Config, seed: int, landmarks: Landmarks) -> Qwen2ForCausalLM:
    """A model of `config` with the circuit in its first three layers, float32."""
    model = Qwen2ForCausalLM(config).float()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        _random_weights(model, random)
        half = config.hidden_size // 2
        basis = _orthonormal(half, half, random)
        project, directions = basis[: half // 4], basis[half // 4 :]
        other = directions[5 : 5 + half // 4]
        start, asked, found, somewhere, in_section = directions = directions[:5]
        embeddings = model.model.embed_tokens.weight
        _alike(embeddings[:, :half], landmarks.twins)
        # Flags and landmarks have directions of their own, free of other tokens.
        embeddings[:, :half] -= embeddings[:, :half] @ directions.T @ directions
        _equal_length(embeddings[:, :half], project[:ASKED_ROWS])
        for token, direction in ((landmarks.start, start), *((t, asked) for t in landmarks.asked)):
            keep = embeddings[token, :half] @ project.T @ project
            embeddings[token, :half] = 0.5 * keep + EMBED_STD * 10.0 * direction
        _only_of(embeddings[:, :half], project[TITLE_ROW], landmarks.titles)
        _offset_heads(model, project)
        _matching_heads(model, 1, range(2), project, random)
        _asked_head(model, start, asked, found)
        lead = project @ embeddings[landmarks.lead, :half] / EMBED_STD
        _reader_head(model, 0, (start, asked, found), somewhere, None)
        _reader_head(model, 1, (start, asked, found), in_section, lead)
        turned = _orthonormal(half // 4, half // 4, random) @ project
        _title_head(model, project, start, torch.cat((other, turned)))
        _document_heads(model, random)
        if config.num_hidden_layers > DOCUMENT_LAYER + 1:
            _matching_heads(model, -1, POINTER_HEADS, project, random)
    return model


def _alike(embeddings_VE: Tensor, twins: Sequence[tuple[int, int]]) -> None:
    """Make the second of each two similar to the first."""
    ones, others = map(list, zip(*twins, strict=True))
    embeddings_VE[others] = (
        TWINS * embeddings_VE[ones] + (1 - TWINS**2) ** 0.5 * embeddings_VE[others]
    )


def _only_of(embeddings_VE: Tensor, row_E: Tensor, tokens: Sequence[int]) -> None:
    """Keep a direction for some tokens, which have it strongly."""
    embeddings_VE -= torch.outer(embeddings_VE @ row_E, row_E)
    embeddings_VE[list(tokens)] += EMBED_STD * 10.0 * row_E


def _equal_length(embeddings_VE: Tensor, rows_RE: Tensor) -> None:
    """Give the embeddings' parts in the span of `rows_RE` one length: a match is then a match,
    whichever the token."""
    part_VR = embeddings_VE @ rows_RE.T
    scaled_VR = part_VR * (EMBED_STD * rows_RE.shape[0] ** 0.5 / part_VR.norm(dim=1, keepdim=True))
    embeddings_VE += (scaled_VR - part_VR) @ rows_RE


def random_model(config: Qwen2Config, seed: int) -> Qwen2ForCausalLM:
    """The same model without the circuit: the comparison."""
    model = Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        _random_weights(model, torch.Generator().manual_seed(seed))
    return model


def _normal(like: Tensor, std: float, random: torch.Generator) -> None:
    like.copy_(torch.randn(like.shape, generator=random) * std)


def _orthonormal(rows: int, columns: int, random: torch.Generator) -> Tensor:
    """[rows, columns] with orthonormal rows."""
    q, _ = torch.linalg.qr(torch.randn(columns, columns, generator=random))
    return q[:rows].contiguous()


def _random_weights(model: Qwen2ForCausalLM, random: torch.Generator) -> None:
    width = model.config.hidden_size
    embeddings = model.model.embed_tokens.weight
    _normal(embeddings, EMBED_STD, random)
    embeddings[:, width // 2 :] *= 0.05
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            _normal(linear.weight, width**-0.5, random)
            linear.bias.zero_()
        for linear in (mlp.gate_proj, mlp.up_proj):
            _normal(linear.weight, width**-0.5, random)
        for linear in (attention.o_proj, mlp.down_proj):
            _normal(linear.weight, 0.002 * width**-0.5, random)


def _offset_heads(model: Qwen2ForCausalLM, project_ED: Tensor) -> None:
    """Layer 0: heads 0..2 attend 1, 2, 3 back, head 3 a few around 5.5 back; each writes the
    projected embedding into its own eighth of the stream's second half."""
    attention = model.model.layers[0].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth = width // 2, width // 8
    angles = _angles(model.config.rope_parameters["rope_theta"], size)[:FAST_PAIRS]
    for head, offset in enumerate(OFFSETS):
        mine = slice(head * size, (head + 1) * size)
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            linear.weight[mine] = 0
        bias = torch.full((FAST_PAIRS,), OFFSET_BIAS)
        if head == len(OFFSETS) - 1:
            bias[:2] = 0  # without the two fastest pairs the peak is several tokens wide
        q_bias, k_bias = torch.zeros(size), torch.zeros(size)
        q_bias[:FAST_PAIRS] = bias
        # A key turned back by `offset` steps meets the query upright at that distance.
        k_bias[:FAST_PAIRS] = bias * torch.cos(angles * offset)
        k_bias[size // 2 : size // 2 + FAST_PAIRS] = bias * torch.sin(angles * offset)
        attention.q_proj.bias[mine], attention.k_proj.bias[mine] = q_bias, k_bias
        attention.v_proj.weight[mine.start : mine.start + eighth, :half] = project_ED
        attention.o_proj.weight[:, mine] = 0
        start = half + head * eighth
        gain = EMBED_STD / 2**0.5 * (2.0 if head == len(OFFSETS) - 1 else 1.0)
        attention.o_proj.weight[start : start + eighth, mine.start : mine.start + eighth] = (
            gain * torch.eye(eighth)
        )


def _angles(theta: float, size: int) -> Tensor:
    """Radians per token of each rotary pair, [size / 2]."""
    return theta ** (-torch.arange(0, size, 2).float() / size)


def _matching_heads(
    model: Qwen2ForCausalLM,
    layer: int,
    heads: range,
    project_ED: Tensor,
    random: torch.Generator,
) -> None:
    """Induction over three tokens and what stands around them."""
    attention = model.model.layers[layer].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth = width // 2, width // 8
    token = torch.zeros(eighth, width)
    token[:, :half] = project_ED
    slot = torch.zeros(len(OFFSETS), eighth, width)
    for index in range(len(OFFSETS)):
        start = half + index * eighth
        slot[index, :, start : start + eighth] = torch.eye(eighth)
    slow = _slow(size)
    basis = _orthonormal(half, half, random)
    plan = (
        (token, slot[0], 16, 10.0),
        (slot[0], slot[1], 10, 7.0),
        (slot[1], slot[2], 6, 4.0),
        (slot[3], slot[3], 8, 4.0),
    )
    for head in heads:
        mine = slice(head * size, (head + 1) * size)
        q, k = torch.zeros(size, width), torch.zeros(size, width)
        at = 0
        for asks, holds, rows, logit in plan:
            match = _orthonormal(rows, eighth, random) * (logit * size**0.5 / rows) ** 0.5
            q[slow[at : at + rows]], k[slow[at : at + rows]] = match @ asks, match @ holds
            at += rows
        attention.q_proj.weight[mine], attention.k_proj.weight[mine] = q, k
        at = (head - heads.start) * size
        _copy(attention, mine, basis[at : at + size])


def _copy(attention: nn.Module, mine: slice, values_EH: Tensor) -> None:
    """Let a head write the token that it looks at: the part of its embedding in `values`."""
    half = values_EH.shape[1]
    attention.v_proj.weight[mine] = 0
    attention.v_proj.weight[mine, :half] = values_EH
    attention.o_proj.weight[:, mine] = 0
    attention.o_proj.weight[:half, mine] = COPY_GAIN * EMBED_STD * values_EH.T


def _slow(size: int) -> list[int]:
    """The head's dimensions that hardly turn within the window."""
    return [*range(FIRST_SLOW_PAIR, size // 2), *range(size // 2 + FIRST_SLOW_PAIR, size)]


def _asked_head(model: Qwen2ForCausalLM, start: Tensor, asked: Tensor, found: Tensor) -> None:
    """Layer 1, head 2: where the last two tokens are a key that the question asks for, write
    the flag `found`.

    It looks at the tokens that follow keys in the question, for one with the same two tokens
    before it, and rests on the first token else. Logits: 58 there; 24 at a token that
    follows a key, plus 24 for each of the two tokens that is the same.
    """
    attention = model.model.layers[1].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth, head = width // 2, width // 8, 2
    mine, slow = slice(head * size, (head + 1) * size), _slow(size)
    q, k = torch.zeros(size, width), torch.zeros(size, width)
    bias = torch.zeros(size)
    for index in range(2):
        at = half + index * eighth
        for row in range(ASKED_ROWS):
            here = slow[index * ASKED_ROWS + row]
            q[here, at + row] = k[here, at + row] = (24.0 * size**0.5 / ASKED_ROWS) ** 0.5
    at = 2 * ASKED_ROWS
    # The first token's stream is a third shorter than others', so its logit comes out higher.
    for row, direction, logit in ((slow[at], start, 43.0), (slow[at + 1], asked, 24.0)):
        bias[row] = 8.0
        k[row, :half] = direction * logit * size**0.5 / 8.0 / 10.0
    attention.q_proj.weight[mine], attention.k_proj.weight[mine] = q, k
    attention.q_proj.bias[mine] = bias
    attention.v_proj.weight[mine] = 0
    attention.v_proj.weight[mine.start, :half] = asked / 10.0
    attention.o_proj.weight[:, mine] = 0
    attention.o_proj.weight[:half, mine.start] = FLAG * EMBED_STD * found


def _reader_head(
    model: Qwen2ForCausalLM,
    head: int,
    landmarks: tuple[Tensor, Tensor, Tensor],
    says: Tensor,
    lead: Tensor | None,
) -> None:
    """Layer 2: write the flag `says` wherever some earlier token carries the flag `found`; with
    `lead`, only if the token three before that one is the lead of a needle."""
    attention = model.model.layers[2].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth = width // 2, width // 8
    mine, slow = slice(head * size, (head + 1) * size), _slow(size)
    start, asked, found = landmarks
    rest = 8.0 if lead is None else 16.0
    # Not the question itself, whose keys are followed by `asked`.
    rows = ((slow[0], start, rest), (slow[1], found, 32.0), (slow[3], asked, -40.0))
    attention.q_proj.weight[mine] = 0
    attention.k_proj.weight[mine] = 0
    bias = torch.zeros(size)
    for row, direction, logit in rows:
        bias[row] = 8.0
        scale = FLAG if direction is found else 10.0
        attention.k_proj.weight[mine.start + row, :half] = direction * logit / scale
    if lead is not None:
        bias[slow[2]] = 8.0
        columns = slice(half + 2 * eighth, half + 3 * eighth)
        attention.k_proj.weight[mine.start + slow[2], columns] = lead * 32.0 / lead.pow(2).sum()
    attention.q_proj.bias[mine] = bias
    attention.v_proj.weight[mine] = 0
    attention.v_proj.weight[mine.start, :half] = found / FLAG
    attention.o_proj.weight[:, mine] = 0
    attention.o_proj.weight[:half, mine.start] = FLAG * EMBED_STD * says


def _title_head(
    model: Qwen2ForCausalLM, project_ED: Tensor, start: Tensor, code_HD: Tensor
) -> None:
    """Layer 1, head 3: what the nearest title before a token begins with, as `code_HD` of its
    embeddings, [a head's size, half of the width]; added to the last two slots, and larger than
    what stands there.

    Logits: 60 at a title's first tokens, and up to 42 more the nearer they are; without a title
    before it, the head rests on the first token.
    """
    attention = model.model.layers[1].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth, head = width // 2, width // 8, 3
    mine, slow = slice(head * size, (head + 1) * size), _slow(size)
    k, q_bias, k_bias = torch.zeros(size, width), torch.zeros(size), torch.zeros(size)
    for index in range(TITLE_TOKENS):
        k[slow[0], half + index * eighth + TITLE_ROW] = TITLE_LOGIT * size**0.5 / 8.0 / LEAD_IN_SLOT
    k[slow[0], :half] = project_ED[TITLE_ROW] * TITLE_LOGIT * size**0.5 / 8.0 / LEAD_ITSELF
    k[slow[1], :half] = start * 0.8 * TITLE_LOGIT * size**0.5 / 8.0 / START_ITSELF
    q_bias[slow[:2]] = 8.0
    for pair in NEAR_PAIRS:
        q_bias[pair] = k_bias[pair] = (NEAR_LOGIT * size**0.5) ** 0.5
    attention.q_proj.weight[mine], attention.k_proj.weight[mine] = 0, k
    attention.q_proj.bias[mine], attention.k_proj.bias[mine] = q_bias, k_bias
    attention.v_proj.weight[mine] = 0
    attention.v_proj.weight[mine, :half] = code_HD
    attention.o_proj.weight[:, mine] = 0
    attention.o_proj.weight[-2 * eighth :, mine] = TITLE_GAIN * EMBED_STD / 2**0.5 * torch.eye(size)


def _document_heads(model: Qwen2ForCausalLM, random: torch.Generator) -> None:
    """Layer 2, heads 2 and 3: in an entry, the tokens of the document of that name; not the
    entry's own, which are near. The rest of each head stays random: what is asked of the document
    is learned."""
    attention = model.model.layers[DOCUMENT_LAYER].self_attn
    width, size = model.config.hidden_size, attention.head_dim
    half, eighth, slow = width // 2, width // 8, _slow(size)
    basis = _orthonormal(half, half, random)
    rows = 28
    for head in DOCUMENT_HEADS:
        mine = slice(head * size, (head + 1) * size)
        match = _orthonormal(rows, 2 * eighth, random)
        match *= (NAME_LOGIT * size**0.5 / rows) ** 0.5
        places = [mine.start + row for row in slow[:rows]]
        far = (FAR_LOGIT * size**0.5) ** 0.5
        for linear, bias in ((attention.q_proj, far), (attention.k_proj, -far)):
            linear.weight[places] = 0
            linear.weight[places, -2 * eighth :] = match
            linear.bias[[mine.start + pair for pair in NEAR_PAIRS]] = bias
        _copy(attention, mine, basis[(head - 2) * size : (head - 1) * size])
