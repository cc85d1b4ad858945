"""The arithmetic of ten mechanisms.

Each is written for one query of one head, in the plainest PyTorch that computes what the paper's
equation says; tests run it against the kernel of `seqattn`, which computes the same for all queries
at once. `q` is a query (D,), `keys` and `values` are (N, D): those of the N tokens that the query
may see.

| mechanism | sees | a weight depends on | time for n tokens | remembered per head while writing | weak where |
|---|---|---|---|---|---|
| [`mha`](#scaled-dot-products) | all before | q · k, and all other scores | n² D | 2 n D | texts are long |
| [`gqa`](#shared-keys) | all before | the same | n² D | 2 n D, shared by a group | heads need keys of their own |
| [`bahdanau`](#additive-scores) | the source | a small network of q and k | n² D, many times slower | 2 n D | speed matters |
| [`sliding_window`](#a-window) | the last w | q · k | n w D | 2 w D | a word depends on one far back |
| [`streaming`](#a-window-and-sinks) | the last w and the first few | q · k, distances within the cache | n w D | 2 w D | the same |
| [`lsh`](#hashed-buckets) | keys with the same hash | q · k | n log n D | encoder only | the best key has another hash |
| [`linear`](#feature-maps) | all before | φ(q) · φ(k) | n D² | D² | one token must be found among many |
| [`entmax`](#weights-that-can-be-0) | all before, few used | q · k, over a threshold | n² D | 2 n D | speed matters |
| [`differential`](#a-difference-of-two) | all before | two softmaxes, one subtracted | n² D | 2 n D | weights are read as shares |
| [`gated_deltanet`](#a-state-that-is-corrected) | a state | what the state already answers | n D² | D² | many facts must be kept |

Who sees whom, for eight tokens from left to right: a row is a query, a column a key. The eight
hashes are 0 1 0 2 2 3 3 0.

```text
all before        window of 2       streaming, 1 + 3  hashes, chunks of 2
■ · · · · · · ·   ■ · · · · · · ·   ■ · · · · · · ·   ■ · ■ · · ■ ■ ·
■ ■ · · · · · ·   ■ ■ · · · · · ·   ■ ■ · · · · · ·   ■ ■ ■ · · · · ■
■ ■ ■ · · · · ·   ■ ■ ■ · · · · ·   ■ ■ ■ · · · · ·   ■ · ■ · · ■ ■ ·
■ ■ ■ ■ · · · ·   · ■ ■ ■ · · · ·   ■ ■ ■ ■ · · · ·   · ■ · ■ ■ · · ■
■ ■ ■ ■ ■ · · ·   · · ■ ■ ■ · · ·   ■ · ■ ■ ■ · · ·   · ■ · ■ ■ · · ■
■ ■ ■ ■ ■ ■ · ·   · · · ■ ■ ■ · ·   ■ · · ■ ■ ■ · ·   · · · ■ ■ ■ ■ ·
■ ■ ■ ■ ■ ■ ■ ·   · · · · ■ ■ ■ ·   ■ · · · ■ ■ ■ ·   · · · ■ ■ ■ ■ ·
■ ■ ■ ■ ■ ■ ■ ■   · · · · · ■ ■ ■   ■ · · · · ■ ■ ■   ■ ■ ■ · · · · ■
```
"""

import math

import torch
from torch import Tensor

# ---- 1. Scaled dot products ----------------------------------------------------------------------
# `attention=mha` (Vaswani et al. 2017, equation 1). The score of a key is its product with the
# query; a softmax turns scores into weights that sum to 1. Dividing by the root of D keeps the
# softmax from choosing one key before training.
#
# $$\alpha_j = \frac{\exp(q \cdot k_j / \sqrt{D})}{\sum_i \exp(q \cdot k_i / \sqrt{D})}, \qquad c = \sum_j \alpha_j v_j$$
#
# In seqattn: attention/kernels/softmax.py


def softmax_attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = keys @ q / math.sqrt(len(q))
    powers = scores.exp()
    return powers / powers.sum() @ values


# ---- 2. Shared keys ------------------------------------------------------------------------------
# `attention=gqa` and `mqa` (Ainslie et al. 2023; Shazeer 2019). Neighboring query heads share a
# head of keys and values. Each head computes as before; only the memory is smaller, which is what
# slows a model that writes.
#
# $$c_h = \mathrm{attention}(q_h, K_g, V_g), \qquad g = \lfloor h G / H \rfloor$$
#
# In seqattn: attention/heads.py


def grouped_attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Of all heads: q (H, D), keys and values (G, N, D)."""
    group = len(q) // len(keys)
    heads = [softmax_attention(q[h], keys[h // group], values[h // group]) for h in range(len(q))]
    return torch.stack(heads)


# ---- 3. Additive scores --------------------------------------------------------------------------
# `attention=bahdanau` (Bahdanau et al. 2015, appendix A.1.2), the first attention. A network of
# one layer compares the decoder's state with each annotation of the source. The values are the
# annotations themselves.
#
# $$e_j = v_a^\top \tanh(W_a s + U_a h_j)$$
#
# In seqattn: attention/alignment.py


def additive_attention(s: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    scores = torch.stack([v @ torch.tanh(w @ s + u @ annotation) for annotation in h])
    powers = scores.exp()
    return powers / powers.sum() @ h


# ---- 4. A window ---------------------------------------------------------------------------------
# `attention=sliding_window` (Beltagy et al. 2020, section 3.1). A query sees keys at a distance of
# at most w, and some first tokens if asked; those see everything. After L layers a token has heard
# of those up to L w before it.
#
# $$j \in [i - w, i]$$
#
# In seqattn: attention/kernels/window.py


def window_keys(i: int, length: int, window: int, first: int = 0, causal: bool = True) -> list[int]:
    """Return the keys that query i sees, to be used by `softmax_attention`."""
    everyone = range(i + 1) if causal else range(length)
    if i < first:
        return list(everyone)
    return [j for j in everyone if abs(i - j) <= window or j < first]


# ---- 5. A window and sinks -----------------------------------------------------------------------
# `attention=streaming` (Xiao et al. 2023, section 3.2). Models put idle weight on the first
# tokens, and break when a window drops them. So these sinks are kept, and positions are counted
# within what is kept: a model can go on forever.
#
# $$j < \mathrm{sinks} \;\text{ or }\; j > i - w$$
#
# In seqattn: attention/kernels/streaming.py


def streaming_keys(i: int, sinks: int, window: int) -> list[int]:
    """Return the keys that query i sees; its distance to each is counted in this list."""
    return [j for j in range(i + 1) if j < sinks or j > i - window]


# ---- 6. Hashed buckets ---------------------------------------------------------------------------
# `attention=lsh` (Kitaev et al. 2020, section 2). Queries and keys are the same vectors, and
# similar ones get the same hash with high probability. Tokens are sorted by hash and cut into
# chunks; a token sees its chunk and the one before, itself only if there is no other. The hash is
# the nearest of 2 R random directions.
#
# $$h(x) = \arg\max\,[x R;\, -x R]$$
#
# In seqattn: attention/kernels/lsh.py


def hashes(x: Tensor, directions: Tensor) -> Tensor:
    """Return the hash of each token x (N, D). Args: directions: (D, R) at random."""
    turned = x @ directions
    return torch.cat((turned, -turned), dim=-1).argmax(dim=-1)


def hashed_keys(hashed: list[int], size: int) -> list[list[int]]:
    """Return the keys that each token sees, by chunks of a size."""
    order = sorted(range(len(hashed)), key=lambda token: (hashed[token], token))
    chunks = [order[start : start + size] for start in range(0, len(order), size)]
    seen: list[list[int]] = [[] for _ in hashed]
    for number, chunk in enumerate(chunks):  # the first chunk sees the last one
        for token in chunk:
            seen[token] = sorted({*chunk, *chunks[number - 1]})
    return seen


def hashed_attention(i: int, x: Tensor, values: Tensor, seen: list[int]) -> Tensor:
    """Return the context of token i of x (N, D), itself only if it sees no other."""
    others = [j for j in seen if j != i] or [i]
    keys = x[others] / x[others].norm(dim=-1, keepdim=True)
    powers = (keys @ x[i]).exp()
    return powers / powers.sum() @ values[others]


# ---- 7. Feature maps -----------------------------------------------------------------------------
# `attention=linear` (Katharopoulos et al. 2020, equations 4 to 7). With a product of features in
# place of the exponential, the sums over keys no longer depend on the query: they are kept as a
# matrix and a vector, and a new token is added to them.
#
# $$c_i = \frac{\phi(q_i)^\top \sum_j \phi(k_j) v_j^\top}{\phi(q_i)^\top \sum_j \phi(k_j)}, \qquad \phi(x) = \mathrm{elu}(x) + 1$$
#
# In seqattn: attention/kernels/linear.py


def feature_map(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def linear_attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    matrix = torch.zeros(len(q), values.shape[1], dtype=q.dtype)
    vector = torch.zeros_like(q)
    for k, v in zip(keys, values):  # one token after another, as while writing
        matrix = matrix + torch.outer(feature_map(k), v)
        vector = vector + feature_map(k)
    return feature_map(q) @ matrix / (feature_map(q) @ vector)


# ---- 8. Weights that can be 0 --------------------------------------------------------------------
# `attention=entmax` (Peters et al. 2019; Correia et al. 2019). Between the softmax (α = 1) and
# sparsemax (α = 2): scores below a threshold τ get no weight at all. Each head learns its α. The
# threshold is where the weights sum to 1; here it is found by halving.
#
# $$\alpha_j = [(\alpha - 1)\, e_j - \tau]_+^{1 / (\alpha - 1)}$$
#
# In seqattn: attention/kernels/entmax.py


def entmax(scores: Tensor, alpha: float) -> Tensor:
    """Return the weights of scores (N,) for alpha above 1."""
    high = scores.max() * (alpha - 1)
    low = high - 1
    for _ in range(200):
        middle = (low + high) / 2
        weights = ((alpha - 1) * scores - middle).clamp(min=0) ** (1 / (alpha - 1))
        low, high = (middle, high) if weights.sum() >= 1 else (low, middle)
    return weights


# ---- 9. A difference of two ----------------------------------------------------------------------
# `attention=differential` (Ye et al. 2024, equations 1 to 3). Two heads look at the same tokens;
# what both see is noise, and is subtracted. λ is learned, and a norm over the pair's output
# restores the scale. Weights may be negative.
#
# $$c = (1 - \lambda_0)\, \mathrm{norm}\big((\alpha^{(1)} - \lambda\, \alpha^{(2)}) [V_1; V_2]\big)$$
#
# In seqattn: attention/kernels/differential.py


def differential_attention(
    q: Tensor, keys: Tensor, values: Tensor, factor: Tensor, initial: float, scale: Tensor
) -> Tensor:
    """Return (2 D,) of a pair of heads. Args: q: (2, D); keys, values: (2, N, D); scale: (2 D,)."""
    first, second = (
        (keys[head] @ q[head] / math.sqrt(q.shape[1])).softmax(dim=0) for head in range(2)
    )
    weights = first - factor * second
    joint = torch.cat((weights @ values[0], weights @ values[1]))
    return (1 - initial) * scale * joint / (joint.square().mean() + 1e-5).sqrt()


# ---- 10. A state that is corrected ---------------------------------------------------------------
# `attention=gated_deltanet` (Yang et al. 2024, equation 10), a mixer in place of self-attention. A
# matrix S maps keys to values. A token first lets it fade by α, then replaces what S answers to
# its key by a share β of its own value; keys have length 1.
#
# $$S_t = S_{t-1} \alpha_t (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \quad o_t = S_t q_t$$
#
# In seqattn: extras/mixers/gated_deltanet.py


def delta_steps(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return outputs (T, Dv) and the last state. Args: q, k: (T, D); v: (T, Dv); state: (Dv, D)."""
    outputs = []
    for t in range(len(q)):
        answer = alpha[t] * state @ k[t]
        state = alpha[t] * state + beta[t] * torch.outer(v[t] - answer, k[t])
        outputs.append(state @ q[t])
    return torch.stack(outputs), state
