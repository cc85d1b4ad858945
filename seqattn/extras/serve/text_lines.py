"""Texts of several lines before a model that reads one line."""

from collections.abc import Sequence

from seqattn.data.text_lines import TextLines
from seqattn.extras.serve.schemas import Generated, Output


def joined(lines: TextLines, results: Sequence[Generated]) -> list[Generated]:
    """A result for each text, from those of its lines; scores are summed, line breaks kept."""
    return [_joined(lines, *one) for one in enumerate(lines.groups(results))]


def _joined(lines: TextLines, number: int, results: list[Generated]) -> Generated:
    if len(results) == 1:
        for output in results[0].outputs:
            output.text = lines.join_text(number, [output.text])
        return results[0]
    outputs = []
    for rank in range(max(len(one.outputs) for one in results)):
        each = [one.outputs[min(rank, len(one.outputs) - 1)] for one in results]
        output = Output(text=lines.join_text(number, [one.text for one in each]))
        for name in ("score", "log_probability"):
            values = [getattr(one, name) for one in each]
            if None not in values:
                setattr(output, name, round(sum(values), 6))
        outputs.append(output)
    return Generated(outputs=outputs)
