"""What a context's token has to do with a question before either has been read."""

import torch
from torch import Tensor, nn

from seqattn.models.span import masked_softmax

MATCHES = 4
"""Numbers that a batch says of each token: whether its word, the word in lower case and the word's
stem stand in the question, and how frequent the word is in the context."""


class WordMatch(nn.Module):
    """The features of DrQA's document reader (Chen et al. 2017, arXiv 1704.00051, section 3.2.1).

    Beside each token's embedding stand how its word meets the question's words, and the question's
    embeddings averaged by how alike they are to its own. Time S*Q*D.

    Args:
        dim: width D of the embeddings.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alike = nn.Linear(dim, dim)
        self.width = 2 * dim + MATCHES

    def forward(self, context: Tensor, question: Tensor, asking: Tensor, match: Tensor) -> Tensor:
        """Embeddings (B, S, D) of the context -> (B, S, 2*D + 4).

        Args:
            context: embeddings of the window.
            question: (B, Q, D) embeddings of the question.
            asking: (B, Q) bool, True where a token stands.
            match: (B, S, 4) of the batch.
        """
        mine, theirs = self.alike(context).relu(), self.alike(question).relu()
        weights = masked_softmax(mine @ theirs.transpose(1, 2), asking[:, None])  # (B, S, Q)
        return torch.cat((context, weights @ question, match.to(context.dtype)), dim=2)
