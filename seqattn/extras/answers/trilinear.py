"""Attention between context and question, as in BiDAF and QANet."""

from typing import Literal

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import masked_softmax
from seqattn.ops.layers import Linear

Meeting = Literal["bidaf", "qanet"]


class TrilinearMatch(nn.Module):
    """Attention from a context to its question and back, with a trilinear similarity.

    Both use a_t = sum_j softmax_j(s_tj) q_j with s_tj = w [c_t; q_j; c_t * q_j]. For the way back,
    BiDAF (Seo et al. 2017, arXiv 1611.01603, section 2.4) uses the same b for every token,
    sum_t softmax_t(max_j s_tj) c_t; QANet (Yu et al. 2018, arXiv 1804.09541, section 2.2, after
    Xiong et al. 2017) uses b_t = sum_j softmax_j(s_tj) sum_u softmax_u(s_uj) c_u. Time S*Q*D.

    Args:
        dim: width D of both.
        kind: bidaf or qanet.
    """

    def __init__(self, dim: int, kind: Meeting) -> None:
        super().__init__()
        self.kind = kind
        self.context = Linear(dim, 1, bias=False)
        self.question = Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim).normal_(std=dim**-0.5))
        self.width = 4 * dim

    def forward(self, context: Tensor, question: Tensor, real: Tensor, asking: Tensor) -> Tensor:
        """Return [c; a; c * a; c * b] for context (B, S, D) and question (B, Q, D): (B, S, 4*D).

        `real` (B, S) and `asking` (B, Q) are True on tokens.
        """
        alike = (context * self.both) @ question.transpose(1, 2)
        alike = alike + self.context(context) + self.question(question).transpose(1, 2)  # (B, S, Q)
        weights = masked_softmax(alike, asking[:, None]).to(context.dtype)
        attended = weights @ question
        if self.kind == "bidaf":
            largest = alike.masked_fill(~asking[:, None], torch.finfo(alike.dtype).min).amax(dim=2)
            # without question tokens, all tokens of the context have equal weight, but not padding
            largest = largest.masked_fill(~asking.any(dim=1, keepdim=True), 0.0)
            back = masked_softmax(largest, real).to(context.dtype)[:, None] @ context  # (B, 1, D)
        else:
            columns = masked_softmax(alike.transpose(1, 2), real[:, None])  # (B, Q, S)
            back = weights @ (columns.to(context.dtype) @ context)
        return torch.cat((context, attended, context * attended, context * back), dim=2)
