"""Questions on contexts, in SQuAD's format or from the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import datasets

from seqattn.data.quiet import quiet_datasets
from seqattn.data.sources import BUNDLED
from seqattn.data.squad_rows import Question, QuestionTally, kept, read_questions
from seqattn.errors import UserError

HUB_SPLITS = {"train": "train", "val": "validation", "test": "validation"}
_COLUMNS = ("id", "question", "context", "answers.text", "answers.answer_start")
FEATURES = datasets.Features(
    {
        "id": datasets.Value("string"),
        "question": datasets.Value("string"),
        "context": datasets.Value("string"),
        "answers": datasets.Sequence(datasets.Value("string")),
        "starts": datasets.Sequence(datasets.Value("int64")),
    }
)


class Squad:
    """Questions that a part of their context answers, or nothing (Rajpurkar et al. 2016 and 2018).

    SQuAD v1.1 and v2.0 files (arXiv 1606.05250, 1806.03822), or a dataset of the hub with the same
    columns. An answer that does not stand where the data says, but elsewhere in the context, is
    moved to the nearest place; one that stands nowhere is left out, and so is a question that
    loses all its answers. A question or context of white space is left out of training; in val
    and test it stays, a question on an empty context as unanswerable. `report` counts all this.

    Args:
        root: a directory with `train.json` and `dev.json`; val and test are both dev, since
            SQuAD's own test set is not public.
        files: instead, a file for each of train, val, test.
        dataset: instead, a dataset's name on the hub, such as "rajpurkar/squad_v2"; val and test
            are both its validation split.

    Raises:
        UserError: more than one of them or none, or an unknown split.
    """

    def __init__(
        self,
        root: str | None = None,
        files: Mapping[str, str | None] | None = None,
        dataset: str | None = None,
    ) -> None:
        given = {split: path for split, path in (files or {}).items() if path is not None}
        if (root is not None) + bool(given) + (dataset is not None) != 1:
            raise UserError(
                "questions must come from one of data.root, data.files and data.dataset, got "
                f"root={root}, files={given or None}, dataset={dataset}"
            )
        if root is not None:
            names = {"train": "train.json", "val": "dev.json", "test": "dev.json"}
            given = {split: str(Path(root) / name) for split, name in names.items()}
        for split in given:
            if split not in HUB_SPLITS:
                raise UserError(f"split must be one of {', '.join(HUB_SPLITS)}, got {split!r}")
        self.files = {split: Path(path).expanduser() for split, path in given.items()}
        self.dataset = dataset
        self._tallies: dict[str, QuestionTally] = {}

    def splits(self) -> list[str]:
        """Names the splits whose file is there, or that the hub dataset may have."""
        if self.dataset is not None:
            return list(HUB_SPLITS)
        return [split for split, path in self.files.items() if path.is_file()]

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split.

        Args:
            split: train, val or test.
            cache_dir: where `datasets` keeps what comes from the hub; None for its own place.

        Returns:
            Columns "id", "question" and "context" of text, "answers" (a list of texts) and
            "starts" (for each answer the character of the context where it begins); both lists
            are empty where a question has no answer.

        Raises:
            UserError: the split is not there, or is not what SQuAD's format wants.
        """
        known = HUB_SPLITS if self.dataset is not None else self.files
        if split not in known:
            raise UserError(f"the {split} split must have a file, got {', '.join(known)}")
        if self.dataset is not None:
            origin = f"{self.dataset} ({HUB_SPLITS[split]})"
            questions = _hub_questions(self.dataset, split, cache_dir)
        else:
            origin = str(self.files[split])
            questions = read_questions(self.files[split])
        tally = QuestionTally()
        rows = list(kept(questions, tally, split == "train", origin))
        if not rows:
            raise UserError(f"{origin} must hold questions, {tally.describe(split)}")
        self._tallies[split] = tally
        return datasets.Dataset.from_dict(
            {name: [getattr(row, name) for row in rows] for name in FEATURES}, FEATURES
        )

    def report(self) -> list[str]:
        """Says in a line for each split that has been read what was mended, left out or special."""
        return [tally.describe(split) for split, tally in self._tallies.items() if tally.events()]


def _hub_questions(name: str, split: str, cache_dir: Path | None) -> Iterator[Question]:
    cache = None if cache_dir is None else str(cache_dir)
    which = f"{name} ({HUB_SPLITS[split]})"
    with quiet_datasets():
        try:
            table = datasets.load_dataset(name, split=HUB_SPLITS[split], cache_dir=cache).flatten()
        except Exception as error:
            # as in `Table`: each fault has a type of its own, and all are for the user to mend
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError(f"cannot load {which} from the hub: {reason}") from error
    missing = [column for column in _COLUMNS if column not in table.column_names]
    if missing:
        there = ", ".join(table.column_names)
        raise UserError(f"{which} must have columns as SQuAD's, no {missing[0]!r} among {there}")
    for row in table.select_columns(list(_COLUMNS)):
        yield Question(*(row[column] for column in _COLUMNS))


class DemoQA(Squad):
    """The bundled stories with questions, written by a generator: see its README."""

    def __init__(self) -> None:
        folder = BUNDLED / "demo_qa"
        super().__init__(files={s: str(folder / f"{s}.json") for s in ("train", "val", "test")})
