"""The tree of a beam search tells what the search did, and changes nothing of it."""

import pytest

from seqattn.extras.report.beam_tree import TracedBeamSearch, tree_document
from seqattn.generation import BeamSearch, Generator, LengthLimit
from seqattn.tokens import EOS
from tests.generation.table_model import TableModel

SOURCE = (4, 5, 4, 3)
BEAMS = 3


@pytest.fixture(params=[0, 2])
def searched(request):
    model = TableModel(7)
    limit = LengthLimit(ratio=1.0, extra=2, minimum=request.param)
    search = BeamSearch(limit, beam_size=BEAMS)
    traced = TracedBeamSearch.of(search)
    found = Generator(model, traced).generate([SOURCE])[0]
    return model, search, found, traced.nodes


def way(nodes, number):
    tokens = []
    while number >= 0:
        tokens.insert(0, nodes[number].token)
        number = nodes[number].parent
    return tokens


def test_a_traced_search_finds_what_the_search_finds(searched):
    model, search, found, _ = searched
    assert found[0] == Generator(model, search).generate([SOURCE])[0][0]


def test_a_node_has_the_log_probability_of_all_tokens_on_its_way(searched):
    model, _, _, nodes = searched
    assert len(nodes) > BEAMS
    for number, node in enumerate(nodes):
        tokens = way(nodes, number)
        assert len(tokens) == node.step
        steps = (model.following(SOURCE, tokens[:n])[token] for n, token in enumerate(tokens))
        assert node.score == pytest.approx(sum(steps), abs=1e-4)


def test_a_step_keeps_as_many_as_there_are_beams_and_only_kept_ones_go_on(searched):
    *_, nodes = searched
    for step in range(1, max(node.step for node in nodes)):
        kept = [node for node in nodes if node.step == step and node.fate == "kept"]
        assert len(kept) == BEAMS
    parents = {node.parent for node in nodes} - {-1}
    assert {nodes[parent].fate for parent in parents} == {"kept"}
    assert {node.fate for node in nodes} == {"kept", "finished", "pruned"}


def test_what_finished_are_the_hypotheses(searched):
    _, _, found, nodes = searched
    ended = [way(nodes, n) for n, node in enumerate(nodes) if node.fate == "finished"]
    said = {tuple(token for token in tokens if token != EOS) for tokens in ended}
    assert {one.ids for one in found} <= said


def test_an_end_is_finished_among_as_many_candidates_as_there_are_beams_and_else_pruned(searched):
    *_, nodes = searched
    fates = set()
    for step in {node.step for node in nodes}:
        for rank, node in enumerate(node for node in nodes if node.step == step):  # best first
            if node.token == EOS:
                assert node.fate == ("finished" if rank < BEAMS else "pruned")
                fates.add(node.fate)
    assert fates == {"finished", "pruned"}


def test_the_best_nodes_spell_the_output(searched):
    _, _, found, nodes = searched
    document = tree_document(nodes, found[0], lambda ids: [str(token) for token in ids])
    best = [int(node["token"]) for node in document if node["best"]]
    assert tuple(token for token in best if token != EOS) == found[0].ids
