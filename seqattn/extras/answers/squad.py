"""Questions on contexts, from SQuAD files or the hub, for extractive or generative answers."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from seqattn.data.arrow_tables import NUMBER, TEXT, TEXTS, Ints, hub_table, quiet_datasets, table_of
from seqattn.data.base import FileOrHub, Files, Source
from seqattn.errors import UserError
from seqattn.extras.answers.asked import question_source
from seqattn.extras.answers.squad_format import EVENTS, Question, mended, read_questions
from seqattn.inputs import check_there, read_bytes
from seqattn.installation import shipped
from seqattn.storage import user_path

NO_ANSWER = "unanswerable"
_FILES = {"train": "train.json", "val": "dev.json", "test": "test.json"}
_HUB_COLUMNS = ["id", "question", "context", "answers.text", "answers.answer_start"]
_COLUMNS = {**dict.fromkeys(("id", "question", "context"), TEXT), "answers": TEXTS}
_COLUMNS |= {"starts": pa.list_(pa.int64())}


class Squad(FileOrHub):
    """Questions with answers in their context, or none (Rajpurkar et al. 2016 and 2018).

    SQuAD v1.1 and v2.0 files (arXiv 1606.05250, 1806.03822), the same questions as objects in a
    list or one per line, or a dataset on the hub with such columns. An answer at a wrong offset, or
    without one, is moved to its nearest occurrence in the context. Training leaves out an answer
    that does not occur there, a question whose answers are all left out, and a blank question or
    context. In val and test all are kept: an answer that does not occur in the context is only
    compared as a text, and a question with no other adds no loss. `notices` counts all this.

    Args:
        root: a directory with `train.json`, `dev.json` (val) and optionally `test.json`; SQuAD's
            own test set is not public.
        files: override those of `root` for some of train, val, test, as `FileOrHub`.
        dataset: name of a dataset on the hub, in place of both, such as "rajpurkar/squad_v2".

    Raises:
        UserError: for both files and a dataset or neither, or an unknown split.
    """

    yields = "questions"
    no_test = "use split=val, the dev set (SQuAD's test set is not public)"

    def __init__(
        self, root: str | None = None, files: Files | None = None, dataset: str | None = None
    ) -> None:
        super().__init__(files, dataset)
        if (root is not None or bool(self.paths)) == (dataset is not None):
            raise UserError(
                "questions must come from either data.root and data.files or data.dataset, got "
                f"root={root}, files={(files and {k: v for k, v in files.items() if v}) or None}, "
                f"dataset={dataset}; set the unused ones to null"
            )
        if root is not None:
            paths = {split: [user_path(root) / name] for split, name in _FILES.items()}
            self.paths = {**paths, **self.paths}
        self._counts: dict[str, list[str]] = {}

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        origin = self.origin(split)
        questions, content = self._questions(split, cache_dir)
        columns = {**_COLUMNS, **dict.fromkeys(EVENTS, NUMBER)}
        table = table_of(mended(questions, origin), columns, f"questions-3 {content}", cache_dir)
        events = {name: table.data.column(name).to_numpy() for name in EVENTS}
        left_out = (events["empty"] | events["unfounded"]) * (split == "train")
        selected = left_out == 0
        lines = [f"{len(table):,} {split} questions", *_counted(events, selected, split == "train")]
        if not selected.any():
            raise UserError(f"{origin} has no usable questions: {', '.join(lines)}")
        self._counts[split] = lines
        table = table.select_columns(list(_COLUMNS))
        table = table if selected.all() else table.select(np.flatnonzero(selected))
        if split != "train" or not events["unplaced"][selected].any():
            return table
        with quiet_datasets(cache_dir):
            return table.map(_placed)

    def _questions(self, split: str, cache_dir: Path | None) -> tuple[Iterator[Question], str]:
        """Return a split's questions, read lazily, and a fingerprint of their content."""
        if self.dataset is not None:
            table = _hub_questions(self.dataset, self.hub_splits[split], cache_dir)
            return (Question(*row.values()) for row in table), table._fingerprint
        content = hashlib.sha256()
        for path in self.paths_of(split):
            check_there(path, "a file in SQuAD format")
            content.update(hashlib.sha256(read_bytes(path)).digest())
        return chain.from_iterable(map(read_questions, self.paths_of(split))), content.hexdigest()

    def notices(self) -> list[str]:
        return [", ".join(counts) for counts in self._counts.values() if len(counts) > 1]


class DemoQA(Squad):
    """The bundled stories with questions, written by a generator: see its README."""

    def __init__(self) -> None:
        folder = shipped("data") / "demo_qa"
        super().__init__(files={split: str(folder / f"{split}.json") for split in _FILES})


def _filled(answers: Sequence[str], starts: Sequence[int]) -> dict[str, int]:
    """Return the distinct answers that are not blank, each with its first start."""
    first_starts: dict[str, int] = {}
    for answer, start in zip(answers, starts, strict=True):
        if answer.strip():
            first_starts.setdefault(answer, start)
    return first_starts


def _hub_questions(name: str, split: str, cache_dir: Path | None) -> datasets.Dataset:
    table = hub_table(name, None, split, cache_dir).flatten()
    missing = [column for column in _HUB_COLUMNS if column not in table.column_names]
    if missing:
        raise UserError(
            f"{name} ({split}) has no column {missing[0]!r} as in SQuAD, only "
            f"{', '.join(table.column_names)}"
        )
    return table.select_columns(_HUB_COLUMNS)


def _placed(row: dict[str, Any]) -> dict[str, Any]:
    """Return only those answers of a question that occur in its context."""
    pairs = [pair for pair in zip(row["answers"], row["starts"], strict=True) if pair[1] >= 0]
    answers, starts = map(list, zip(*pairs, strict=True)) if pairs else ([], [])
    return {"answers": answers, "starts": starts}


def _counted(events: Mapping[str, Ints], selected: Ints, training: bool) -> list[str]:
    """Return texts about what was repaired and left out, omitting zero counts."""
    read = (events["empty"] == 0) | (not training)
    treated, unfounded = "kept", "questions with only such answers (scored, but not in the loss)"
    unplaced = "answers not in their context (compared as text only)"
    if training:
        treated, unfounded = "dropped", "questions dropped (no answer left)"
        unplaced = "answers dropped (not in their context)"
    said = [
        (events["unanswerable"][selected].sum(), "unanswerable"),
        (events["moved"][read].sum(), "answer offsets corrected"),
        (events["unplaced"][read].sum(), unplaced),
        (events["unfounded"][read].sum(), unfounded),
        (events["empty"].sum(), f"with an empty question or context ({treated})"),
    ]
    return [f"{count:,} {what}" for count, what in said if count]


class AnswerPairs(Source):
    """Questions as pairs of texts, for generative answers.

    A source is "question: QUESTION context: CONTEXT" as in T5 (Raffel et al. 2020, arXiv
    1910.10683, appendix D), its target the first answer, its references all of them. The original
    columns "id", "question", "context" and "answers" are included.

    Args:
        unanswerable: True to give questions without an answer the target "unanswerable" (their only
            reference); False to leave them out.
    """

    def __init__(self, questions: Source, unanswerable: bool = True) -> None:
        self.questions = questions
        self.unanswerable = unanswerable

    def origin(self, split: str) -> str:
        return self.questions.origin(split)

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        rows = self.questions.load(split, cache_dir)
        with quiet_datasets(cache_dir):
            answers = [_filled(*row) for row in zip(rows["answers"], rows["starts"], strict=True)]
            if not self.unanswerable:
                selected = [number for number, right in enumerate(answers) if right]
                rows, answers = rows.select(selected), [answers[number] for number in selected]
            if len(rows) == 0:
                raise UserError(f"the {split} split has no questions with an answer")
            references = [list(right) or [NO_ANSWER] for right in answers]
            sources = list(map(question_source, rows["question"], rows["context"]))
            starts = [next(iter(right.values()), -1) for right in answers]
            begins = [
                text.head + start if start >= 0 else -1
                for text, start in zip(sources, starts, strict=True)
            ]
            targets = [texts[0] for texts in references]
            columns = {
                "source": list(map(str, sources)),
                "target": targets,
                "references": references,
                "head": [text.head for text in sources],
                "begin": begins,  # a window must contain this span
                "end": [
                    at + len(x) if at >= 0 else -1 for at, x in zip(begins, targets, strict=True)
                ],
            }
            both = [rows.remove_columns("starts"), datasets.Dataset.from_dict(columns)]
            return datasets.concatenate_datasets(both, axis=1)
