"""A server of a bundle in a process of its own, on a real socket."""

import asyncio
import json
import re
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def served(bundle, *words):
    """The process and its port."""
    command = [sys.executable, "-m", "seqattn", "serve", f"bundle={bundle}", "port=0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        told = process.stderr.readline()
        address = re.fullmatch(
            rf"serving {bundle} on http://127.0.0.1:(\d+) \(press Ctrl-C to stop\)\n", told
        )
        assert address, told + process.stderr.read()
        yield process, int(address[1])
    finally:
        process.kill()
        process.communicate()


async def request(port, body=None, path="/v1/generate"):
    """Sends a request; gives its reader and writer. A body of None is a GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()
    return reader, writer


async def answered(port, body=None, path="/v1/generate"):
    """The status and the body of a response."""
    reader, writer = await request(port, body, path)
    whole = await reader.read()
    writer.close()
    head, _, content = whole.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


def said_so_far(port):
    """The target tokens that the server counts."""
    _, text = asyncio.run(answered(port, path="/metrics"))
    return int(re.search(rb'side="target"} (\d+)', text)[1])
