"""What wandb has written offline, read back."""

import json
import struct
from pathlib import Path
from typing import NamedTuple

from wandb.proto import wandb_internal_pb2 as records


class Written(NamedTuple):
    """A segment of a run: what one process told wandb."""

    id: str
    group: str
    tags: list
    config: dict
    rows: list
    artifacts: dict  # aliases, by kind


def read(file):
    """Args: file: such as `run-ID.wandb`."""
    config, rows, run, artifacts = {}, [], None, {}
    for data in _records(Path(file).read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            _update(config, run.config.update)
        elif kind == "config":
            _update(config, record.config.update)
        elif kind == "history":
            rows.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "request" and record.request.HasField("log_artifact"):
            artifact = record.request.log_artifact.artifact
            artifacts[artifact.type] = sorted(artifact.aliases)
        elif kind == "artifact":
            artifacts[record.artifact.type] = sorted(record.artifact.aliases)
    return Written(run.run_id, run.run_group, list(run.tags), config, rows, artifacts)


def _records(content):
    """The records of a log as LevelDB's, which wandb's are: blocks of 32 KiB, pieces within."""
    assert content[:4] == b":W&B"
    place, whole = 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # all of it, or its last piece
            yield whole
            whole = b""


def _key(item):
    return item.key or "/".join(item.nested_key)


def _update(config, items):
    config |= {_key(item): json.loads(item.value_json) for item in items}
