"""An encoder-decoder Transformer on one page, in plain PyTorch.

Read it from top to bottom: the model (Vaswani et al. 2017, with the norms before the sublayers),
its training, and its generation by beam search with a cache of keys and values. Run it to see the
model learn to spell words backwards, in about a minute on one CPU core:

    python docs/course/annotated.py

Shapes: B sentences of S source or T target tokens, D channels, H heads of D/H channels, V pieces
of the vocabulary.
"""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3  # ids below 4 are not text

# ---- 1. Attention ------------------------------------------------------------------------------
#
# Each token asks a question (its query), and each token that it may look at has a key, which says
# what it is about, and a value, which is what it tells. The dot product of query and key is a
# score; the softmax turns scores into weights that sum to 1; the output is the weighted sum of the
# values.
# Each head does so on channels of its own, so that a layer can look at several places at once.
# In seqattn: attention/heads.py, attention/kernels/softmax.py


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.output = nn.Linear(dim, dim)

    def split(self, x):  # (B, T, D) -> (B, H, T, D/H)
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, memory):
        """What tokens offer to those that look at them: two tensors (B, H, S, D/H)."""
        return self.split(self.key(memory)), self.split(self.value(memory))

    def forward(self, x, keys, values, allowed):
        """Look from x (B, T, D) at keys and values, where `allowed` (B, 1, T or 1, S) is True."""
        queries = self.split(self.query(x))
        # without the root the scores grow with the width, and the softmax picks one token too soon
        scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])  # (B, H, T, S)
        weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
        return self.output((weights @ values).transpose(1, 2).flatten(2))  # (B, T, D)


# ---- 2. Layers ---------------------------------------------------------------------------------
#
# A layer adds what each sublayer finds to its input, so that gradients have a short way through a
# deep model. Attention moves information between tokens; the feed-forward part works on each token.
# In seqattn: layers/transformer_layer.py, layers/sublayers.py, models/stack.py


class FeedForward(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x):
        return self.outer(self.inner(x).relu())


class Residual(nn.Module):
    """x + sublayer(norm(x))."""

    def __init__(self, dim, dropout):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, inner, dropout):
        super().__init__()
        self.self_attention, self.attend = Attention(dim, heads), Residual(dim, dropout)
        self.feedforward, self.feed = FeedForward(dim, inner), Residual(dim, dropout)

    def forward(self, x, allowed):
        attention = self.self_attention
        x = self.attend(x, lambda y: attention(y, *attention.keys_values(y), allowed))
        return self.feed(x, self.feedforward)


class DecoderLayer(nn.Module):
    """Looks at the target so far, then at the source."""

    def __init__(self, dim, heads, inner, dropout):
        super().__init__()
        self.self_attention, self.attend = Attention(dim, heads), Residual(dim, dropout)
        self.cross_attention, self.cross = Attention(dim, heads), Residual(dim, dropout)
        self.feedforward, self.feed = FeedForward(dim, inner), Residual(dim, dropout)

    def forward(self, x, allowed, source, source_allowed, cache):
        """`source`: keys and values of the source; `cache`: those of earlier target tokens."""

        def attend(y):
            # A cached token needs no second look: tokens see only earlier ones, so what a token
            # offers does not change when later ones arrive. Only the new ones are computed.
            new = self.self_attention.keys_values(y)
            if cache is not None:
                new = cache[:] = [torch.cat(pair, dim=2) for pair in zip(cache, new)]
            return self.self_attention(y, *new, allowed)

        x = self.attend(x, attend)
        x = self.cross(x, lambda y: self.cross_attention(y, *source, source_allowed))
        return self.feed(x, self.feedforward)


class Stack(nn.Module):
    def __init__(self, make_layer, count, dim):
        super().__init__()
        self.layers = nn.ModuleList(make_layer() for _ in range(count))
        self.norm = nn.LayerNorm(dim)


# ---- 3. The model ------------------------------------------------------------------------------
#
# The encoder reads the source once; the decoder looks at it from each token of the target.
# In seqattn: models/transformer.py, layers/embedding.py, positions/absolute.py, attention/cache.py


def positions(first, count, dim):
    """(count, D) waves of many lengths: attention alone would not know the order of tokens."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angles = torch.arange(first, first + count)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class Transformer(nn.Module):
    """Source and target share a vocabulary, whose table is also that of the output."""

    def __init__(self, pieces, dim=128, heads=4, inner=512, layers=2, dropout=0.1):
        super().__init__()
        sizes = dim, heads, inner, dropout
        self.table = nn.Embedding(pieces, dim)
        nn.init.normal_(self.table.weight, std=dim**-0.5)  # rows of length 1
        self.encoder = Stack(lambda: EncoderLayer(*sizes), layers, dim)
        self.decoder = Stack(lambda: DecoderLayer(*sizes), layers, dim)
        self.dropout = nn.Dropout(dropout)

    def embed(self, ids, first=0):
        dim = self.table.embedding_dim
        x = self.table(ids) * math.sqrt(dim)  # as large as the waves
        return self.dropout(x + positions(first, ids.shape[1], dim).to(x))

    def encode(self, source):
        """Read sources (B, S): what they offer to each decoder layer, and where they are real."""
        allowed = (source != PAD)[:, None, None]  # (B, 1, 1, S)
        x = self.embed(source)
        for layer in self.encoder.layers:
            x = layer(x, allowed)
        x = self.encoder.norm(x)
        return [layer.cross_attention.keys_values(x) for layer in self.decoder.layers], allowed

    def decode(self, target, memory, caches=None):
        """Log-probabilities (B, T, V) of the token after each of a target (B, T).

        With `caches`, one for each layer, `target` holds only the tokens after those in them.
        """
        sources, source_allowed = memory
        before = caches[0][0].shape[2] if caches else 0
        count = target.shape[1]
        # token t sees itself and earlier ones: the model must not copy what it shall predict
        allowed = torch.ones(count, before + count, dtype=torch.bool).tril(before)
        x = self.embed(target, before)
        for layer, source, cache in zip(
            self.decoder.layers, sources, caches or [None] * len(sources)
        ):
            x = layer(x, allowed[None, None].to(x.device), source, source_allowed, cache)
        return (self.decoder.norm(x) @ self.table.weight.T).log_softmax(dim=-1)

    def empty_caches(self, rows):
        heads = self.decoder.layers[0].self_attention.heads
        empty = self.table.weight.new_zeros(rows, heads, 0, self.table.embedding_dim // heads)
        return [[empty, empty] for _ in self.decoder.layers]


# ---- 4. Training -------------------------------------------------------------------------------
#
# The decoder reads the right target, moved by one token, and predicts all of its tokens at once
# ("teacher forcing"): one pass trains T predictions for each sentence.
# In seqattn: training/tasks/seq2seq.py, training/loop.py, training/schedules.py


def padded(rows):
    """Lists of ids as one tensor (B, T)."""
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def loss_of(model, pairs, smoothing=0.1):
    """Mean loss per target token, in nats.

    A little of the probability is asked for on all other tokens, so that the model never has to be
    certain (label smoothing).
    """
    source = padded([[*read, END] for read, _ in pairs])
    given = padded([[BEGIN, *said] for _, said in pairs])
    wanted = padded([[*said, END] for _, said in pairs])
    found = model.decode(given, model.encode(source))
    return F.cross_entropy(
        found.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing
    )


def train(model, batches, rate=0.002, warmup=200):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9)
    # the first steps are small, as Adam knows little about the gradients yet; later ones shrink
    factor = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)
    )
    model.train()
    for number, pairs in enumerate(batches, 1):
        loss = loss_of(model, pairs)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        factor.step()
        if number % 100 == 0:
            print(f"step {number}: loss {loss.item():.3f}")


# ---- 5. Generation -----------------------------------------------------------------------------
#
# The best first token need not begin the best sentence. Beam search continues the K best beginnings
# ("beams") at each step, and keeps those that end. Long sentences have lower probabilities, so the
# finished ones are compared by their mean log-probability per token.
# In seqattn: generation/beam.py, generation/stepper.py


@torch.no_grad()
def generate(model, source, beams=5):
    """The ids of the best output for a source, given as a list of ids."""
    model.eval()
    read = [*source, END]
    sources, allowed = model.encode(torch.tensor([read]))
    memory = [[part.expand(beams, -1, -1, -1) for part in pair] for pair in sources], allowed
    caches = model.empty_caches(beams)
    prefixes = torch.full((beams, 1), BEGIN)
    totals = torch.full((beams,), -math.inf)
    totals[0] = 0.0  # all beams are equal at first: only one of them may continue
    finished = []
    longest = int(1.5 * len(read)) + 10
    for length in range(1, longest + 1):
        new = model.decode(prefixes[:, -1:], memory, caches)[:, -1]  # (K, V): one new token each
        new[:, PAD] = -math.inf
        best, places = (totals[:, None] + new).flatten().topk(2 * beams)
        parents, tokens = places // new.shape[1], places % new.shape[1]
        ends = tokens == END
        for rank in range(beams):
            if ends[rank] and best[rank] > -math.inf:
                finished.append((best[rank].item() / length, prefixes[parents[rank], 1:].tolist()))
        # 2K candidates have at most K ends, so that K others continue
        live = (~ends).nonzero()[:beams, 0]
        totals, parents = best[live], parents[live]
        prefixes = torch.cat((prefixes[parents], tokens[live, None]), dim=1)
        for cache in caches:  # each beam goes on with the past of its parent
            cache[:] = [part[parents] for part in cache]
        if len(finished) >= beams:
            break
    else:  # at the limit, without an end
        finished += [
            (total / longest, row[1:]) for total, row in zip(totals.tolist(), prefixes.tolist())
        ]
    return max(finished)[1]


# ---- 6. Something to learn ---------------------------------------------------------------------


def main(steps=1000):
    random.seed(1)
    torch.manual_seed(1)
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz", 4)}
    spelled = {number: letter for letter, number in letters.items()}

    def pair():
        word = random.choices([*spelled], k=random.randint(1, 10))
        return word, word[::-1]

    model = Transformer(pieces=4 + len(letters), dim=64, inner=128)
    train(model, ([pair() for _ in range(64)] for _ in range(steps)))
    for word in ("attention", "stressed", "page"):
        output = generate(model, [letters[letter] for letter in word])
        print(word, "->", "".join(spelled.get(number, "?") for number in output))


if __name__ == "__main__":
    main()
