"""Upload of a bundle to the Hugging Face Hub: the subcommand publish."""

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from seqattn.bundle.files import CARD
from seqattn.errors import UserError
from seqattn.extras.exchange.export import export, export_record
from seqattn.extras.exchange.hf_folder import one_line
from seqattn.screen import print_table, say
from seqattn.storage import temporary_directory
from seqattn.subcommands.bundle_run import BundleRun

_REASONS = {
    401: "the token is not valid; run hf auth login, or set HF_TOKEN",
    403: "the token may not write there; use one with write access to it",
    404: "the token sees no such owner, repository or branch; check repo and revision",
}
"""What the hub's answers mean, by status."""


@dataclass(frozen=True, kw_only=True)
class Publish(BundleRun):
    """Upload the export of a bundle for transformers, in one commit that deletes nothing.

    Args:
        bundle, trust: as `BundleRun`.
        repo: OWNER/NAME, created unless it exists; `private` is for a new one.
        license: of the model card, as `hub_card`.
        revision: branch, created unless it exists; None for main.
        commit_message: first line of the commit.
    """

    repo: str
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
        bundle = self.load().texts("publish")
        with temporary_directory() as temporary:
            record = export_record(bundle.path, "huggingface", license=self.license)
            rows = export(bundle, new := temporary / "new", record)
            card = (new / CARD).read_text(encoding="utf-8").replace('"DIR"', f'"{self.repo}"')
            (new / CARD).write_text(card, encoding="utf-8")
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
        api.upload_folder(
            repo_id=self.repo, folder_path=new, revision=self.revision,
            commit_message=self.commit_message,
        )  # fmt: skip
        if remaining := sorted(files - {".gitattributes", *(file.name for file in new.iterdir())}):
            say(f"{self.repo} keeps other files: {', '.join(remaining)}")
        return address
