"""Upload of a bundle to the Hugging Face Hub: the subcommand publish."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from seqattn.bundle.files import CARD
from seqattn.errors import UserError
from seqattn.extras.exchange.export import export, export_record
from seqattn.extras.exchange.hf_folder import CONFIG as FOREIGN_CONFIG
from seqattn.extras.exchange.hf_folder import one_line
from seqattn.extras.exchange.hub_card import hub_card
from seqattn.screen import print_table, say
from seqattn.settings.documents import CONFIG, HUB, SCORES, WEIGHTS
from seqattn.storage import is_file, temporary_directory
from seqattn.subcommands.bundle_run import BundleRun

_FILES = CONFIG, SCORES, WEIGHTS, "tokenizer.json", "truecaser.json"
"""Files of a bundle, besides its card and its vocabularies."""
_REASONS = {
    401: "the token is not valid; run hf auth login, or set HF_TOKEN",
    403: "the token may not write there; use one with write access to it",
    404: "the token sees no such owner, repository or branch; check repo and revision",
}
"""What the hub's answers mean, by status."""


@dataclass(frozen=True, kw_only=True)
class Publish(BundleRun):
    """Upload a bundle or its export for transformers, in one commit that deletes nothing.

    Args:
        bundle, trust: as `BundleRun`.
        repo: OWNER/NAME, created unless it exists; `private` is for a new one.
        form: "huggingface" for the export, "bundle" for the bundle itself.
        license: of the model card, as `hub_card`.
        revision: branch, created unless it exists; None for main.
        commit_message: first line of the commit.
    """

    repo: str
    form: Literal["huggingface", "bundle"] = "huggingface"
    license: str | None = None
    private: bool | None = None
    revision: str | None = None
    commit_message: str = "Upload by seqattn"

    def run(self) -> str:
        """Upload the files, and return the address.

        Raises:
            UserError: the bundle cannot be exported, or the hub refuses or cannot be reached.
        """
        if not re.fullmatch(r"\w+([.-]\w+)*/\w+([.-]\w+)*(?<!\.git)", self.repo, re.ASCII):
            raise UserError(f"repo must be OWNER/NAME as the hub allows, got {self.repo!r}")
        if get_token() is None:
            raise UserError("not logged in to the hub; run hf auth login, or set HF_TOKEN")
        with temporary_directory() as temporary:
            new = temporary / "new"
            rows = self._write(new)
            try:
                address = self._upload(new)
            except UserError:
                raise
            except (HTTPError, OSError, RuntimeError, ValueError) as error:
                status = getattr(getattr(error, "response", None), "status_code", 0)
                reason = _REASONS.get(status, f"{one_line(error).rstrip('.')}; repeat the command")
                raise UserError(f"cannot publish to {self.repo}: {reason}") from error
        print_table(f"{self.bundle} on the hub", rows, notes=[address])
        return address

    def _write(self, new: Path) -> dict[str, str]:
        """Write all files into a new directory; return what was checked, for display."""
        bundle, name = self.load(), self.repo
        if self.form == "huggingface":
            record = export_record(bundle.path, self.form, license=self.license)
            try:
                rows = export(bundle.texts("publish"), new, record)
            except UserError as error:
                hint = (
                    "" if "license=" in str(error) else "; form=bundle publishes the bundle itself"
                )
                raise UserError(f"{error}{hint}") from error
            card = (new / CARD).read_text(encoding="utf-8")
        else:
            name = f"{HUB}{self.repo}"
            card = hub_card(bundle, "", None, self.license)
            new.mkdir()
            for file in (*_FILES, *bundle.tokenizer.file_names):
                if is_file(bundle.path / file):
                    (new / file).symlink_to((bundle.path / file).resolve())
            rows = {"files": ", ".join(sorted(file.name for file in new.iterdir()))}
        (new / CARD).write_text(card.replace('"DIR"', f'"{name}"'), encoding="utf-8")
        return rows

    def _upload(self, new: Path) -> str:
        """Create the repository unless it exists, upload a directory, and return the address."""
        api = HfApi()
        address = str(api.create_repo(self.repo, private=self.private, exist_ok=True))
        if self.private and not api.model_info(self.repo).private:
            raise UserError(f"{self.repo} exists and is public; choose another repo")
        if self.revision is not None:
            api.create_branch(self.repo, branch=self.revision, exist_ok=True)
            address += f"/tree/{self.revision}"
        files = {*api.list_repo_files(self.repo, revision=self.revision)}
        if (config := CONFIG if self.form == "huggingface" else FOREIGN_CONFIG) in files:
            raise UserError(f"{self.repo} has {config} of another form; choose another repo")
        api.upload_folder(
            repo_id=self.repo, folder_path=new, revision=self.revision,
            commit_message=self.commit_message,
        )  # fmt: skip
        if remaining := sorted(files - {".gitattributes", *(file.name for file in new.iterdir())}):
            say(f"{self.repo} keeps other files: {', '.join(remaining)}")
        return address
