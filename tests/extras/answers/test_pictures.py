"""Pictures and figures of the attention from a context to a question."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from seqattn.analysis import capture
from seqattn.extras.answers.pictures import pass_over_questions, question_heatmaps
from seqattn.extras.pictures.head_statistics import relative_entropy
from seqattn.extras.pictures.health import statistics_of
from seqattn.extras.pictures.heatmaps import Sentence
from seqattn.tokens import PAD
from tests.extras.answers.span_models import inputs, make_recurrent, make_transformer_reader
from tests.extras.pictures.figures import ticks, visible
from tests.extras.pictures.test_heatmaps import KEYS, QUERIES


def test_a_span_model_has_figures_of_question_and_context_together():
    model, batch = make_transformer_reader(), inputs()
    found = statistics_of(model, pass_over_questions(model, batch))
    with torch.no_grad(), capture(model) as maps:
        model(batch)
    name, parts = "encoder.layers.0.self_attention", []
    for weights, ids in zip(maps[name], (batch.question, batch.context)):
        rows = relative_entropy(weights, (ids != PAD)[:, None, None])
        parts.append(rows.transpose(0, 1)[:, ids != PAD])
    mean = torch.cat(parts, dim=1).mean(dim=1)
    torch.testing.assert_close(found[name].entropy, mean)
    assert len(found) == 1 + 2 + 1


@pytest.mark.parametrize("most", [3, 40])
@pytest.mark.parametrize("make", [make_recurrent, make_transformer_reader])
def test_each_square_of_a_questions_heatmap_stands_under_its_own_two_tokens(make, most):
    model, contexts = make(), [[4, 5, 6, 7, 8, 9, 10, 4], [10, 9, 4, 5, 6]]
    batch = inputs([[9, 8, 3]] * 2, contexts)
    windows = [
        Sentence(ids, [f"{row}.{place}" for place in range(len(ids))])
        for row, ids in enumerate(contexts)
    ]
    batches = [inputs([[9, 8, 3]], [ids]) for ids in contexts]
    figures = question_heatmaps(model, Sentence([9, 8, 3], QUERIES), windows, batches, True, most)
    with torch.no_grad(), capture(model) as maps:
        start = model(batch).start
    likely = start[:, :-1] - start[:, -1:]
    best = int(likely.amax(dim=1).argmax())
    heads = maps["question_attention"][0][best]
    assert list(figures) == ["question", "question_heads"]
    panels = [*visible(figures["question"]), *visible(figures["question_heads"])]
    for panel, weights in zip(panels, [heads.mean(0), *heads], strict=True):
        across, down = ticks(panel)
        assert across == ["Ein", "Hund", "</s>"]
        assert {int(label.split(".")[0]) for label in down} == {best}
        rows = [int(label.split(".")[1]) for label in down]
        assert len(rows) == min(most, len(contexts[best]))
        assert int(likely[best].argmax()) in rows
        np.testing.assert_allclose(panel.images[0].get_array(), weights[rows], atol=1e-5)


def test_a_questions_heatmap_leaves_the_mode_and_needs_weights():
    question, context = Sentence([9, 3], KEYS[3:]), Sentence([4, 5, 6], KEYS[:3])
    batch = inputs([[9, 3]], [[4, 5, 6]])
    model = make_recurrent().train()
    assert list(question_heatmaps(model, question, [context], [batch])) == ["question"]
    assert model.training
    kernel = model.question_attention.kernel
    kernel.abilities = replace(kernel.abilities, weights=False)
    assert question_heatmaps(model, question, [context], [batch]) == {}
