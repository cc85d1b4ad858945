"""T5's buckets as published, and its bias."""

import pytest
import torch

from seqattn.errors import UserError
from seqattn.positions import Position, Stack, T5Position
from tests.builders import make_transformer, randomised

HEADS = 4
# The first distance of each bucket, 32 buckets up to 128 (Raffel 2020 and the authors' code).
ENCODER = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
DECODER = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def built(bidirectional, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return randomised(T5Position(Stack(24, HEADS, 2, bidirectional), **options)).to(dtype)


def bucket(distance, bidirectional):
    """The bucket of distance i - j, by the list of first distances."""
    starts, first = (ENCODER, 16 * (distance < 0)) if bidirectional else (DECODER, 0)
    distance = abs(distance) if bidirectional else max(distance, 0)
    return first + sum(start <= distance for start in starts) - 1


@pytest.mark.parametrize("bidirectional", [True, False])
def test_each_distance_reads_the_published_bucket_of_each_head(bidirectional):
    position = built(bidirectional)
    q, k = torch.randn(2, HEADS, 300, 6).double(), torch.randn(2, 2, 200, 6).double()
    q_places, k_places = torch.arange(300), torch.arange(200)
    got = position.score_term(q, k, q_places, k_places)
    assert got.shape == (1, HEADS, 300, 200)
    for distance in range(-199, 300):
        row = position.table.weight[bucket(distance, bidirectional)]
        line = got[0].diagonal(-distance, dim1=1, dim2=2)
        assert torch.equal(line, row[:, None].expand_as(line)), distance


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 9), (64, 40), (10, 500)])
def test_the_bias_equals_that_of_transformers(bidirectional, num_buckets, max_distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(
        num_heads=HEADS,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
    )
    theirs = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = built(bidirectional, torch.float32, num_buckets=num_buckets, max_distance=max_distance)
    theirs.relative_attention_bias.load_state_dict(ours.table.state_dict())
    q, places = torch.randn(1, HEADS, 260, 6), torch.arange(260)
    got = ours.score_term(q, q, places, places)
    torch.testing.assert_close(got, theirs.compute_bias(260, 260), atol=0, rtol=0)


def test_scores_are_not_scaled_and_all_layers_share_one_table():
    position = built(bidirectional=True)
    assert position.score_scale(6) == 1.0
    assert position.at_layer(0) is position.at_layer(1)
    assert [name for name, _ in position.named_parameters()] == ["table.weight"]
    assert position.state_dict().keys() == {"table.weight"}


def test_an_encoder_tells_before_from_after_and_a_decoder_spends_no_bucket_on_it():
    model = make_transformer(position=T5Position)
    assert model.encoder.position.stack.bidirectional
    assert not model.decoder.position.stack.bidirectional
    assert type(model.encoder.position) is not Position
    assert model.encoder.position.buckets.tolist() != model.decoder.position.buckets.tolist()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_buckets": 7}, "num_buckets must be even and at least 4, got 7"),
        ({"num_buckets": 2}, "num_buckets must be even and at least 4, got 2"),
        (
            {"max_distance": 16},
            "max_distance must be above half of num_buckets (16), got 16",
        ),
    ],
)
def test_buckets_that_cannot_be_are_refused_in_words(options, text):
    with pytest.raises(UserError) as caught:
        T5Position(Stack(24, HEADS), **options)
    assert str(caught.value) == text
