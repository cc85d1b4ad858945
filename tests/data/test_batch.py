import torch

from seqattn.data.batch import collate
from seqattn.data.options import LoaderOptions
from seqattn.tokens import BOS, EOS, PAD


def example():
    return collate([[7, 8, EOS], [9, EOS]], [[5, EOS], [4, 6, 8, EOS]], index=[11, 3])


def test_rows_are_padded_on_the_right_and_the_target_is_shifted_by_one():
    batch = example()

    assert batch.source.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert batch.target_output.tolist() == [[5, EOS, PAD, PAD], [4, 6, 8, EOS]]
    assert batch.target_input.tolist() == [[BOS, 5, PAD, PAD], [BOS, 4, 6, 8]]
    assert batch.index.tolist() == [11, 3]
    assert {
        t.dtype for t in (batch.source, batch.target_input, batch.target_output, batch.index)
    } == {torch.int64}


def test_the_end_mark_is_never_an_input():
    assert not (example().target_input == EOS).any()


def test_an_empty_sentence_is_its_marks_alone():
    batch = collate([[EOS]], [[EOS]], index=[0])

    assert batch.source.tolist() == batch.target_output.tolist() == [[EOS]]
    assert batch.target_input.tolist() == [[BOS]]
    assert batch.padding_share == 0


def test_real_tokens_and_the_padding_share_are_counted():
    batch = example()

    assert (batch.source_tokens, batch.target_tokens) == (5, 6)
    # 6 source and 8 target positions, of which 1 and 2 are padding.
    assert abs(batch.padding_share - 3 / 14) < 1e-12


def test_a_batch_moves_to_a_device_whole():
    batch, moved = example(), example().to("meta")

    tensors = (moved.source, moved.target_input, moved.target_output, moved.index)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (moved.source_tokens, moved.target_tokens) == (batch.source_tokens, batch.target_tokens)


def test_a_batch_is_padded_to_rounded_lengths():
    batch = example().rounded(LoaderOptions(round_to=4))

    assert batch.source.tolist() == [[7, 8, EOS, PAD], [9, EOS, PAD, PAD]]
    assert batch.target_input.shape == batch.target_output.shape == (2, 4)
    assert (batch.source_tokens, batch.target_tokens) == (5, 6)
    assert example().rounded(LoaderOptions()).source.shape == (2, 3)
