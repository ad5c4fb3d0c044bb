"""`specfit` as a process that need not import torch, transformers and Numba anew, for seconds.

A server has imported them and forks for each command. The command has a process, streams, folder,
environment and status of its own, and pipes and redirections work, as with the installed program;
like that, it imports from where programs are, not from the folder that it is run in.
That the program starts from nothing is tested elsewhere, by starting it. Variables that a library
reads when it is imported (`OMP_NUM_THREADS`, `NUMBA_*`) are the server's, whatever a command sets.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sources import ROOT

IMPORTED = (
    "matplotlib.figure",
    "pyarrow.parquet",
    "specfit.cli.main",
    "specfit.backends.reference",
    "specfit.backends.torch_backend",
    "transformers.models.qwen3_moe.modeling_qwen3_moe",
)
CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    command = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [b"+"], [0, 1, 2])
    server.sendall(json.dumps(command).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(16) or b"70"))
"""


@contextmanager
def forked_programs(folder: Path) -> Iterator[Path]:
    """Start a server; yield a folder for the path, with the `specfit` that asks it."""
    address, programs = str(folder / "socket"), folder / "bin"
    programs.mkdir()
    (folder / "client.py").write_text(CLIENT.format(address=address), "utf-8")
    program = programs / "specfit"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS {folder}/client.py "$@"\n', "utf-8")
    program.chmod(0o755)
    command = [sys.executable, "-m", "tests.forked", address, str(programs)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield programs
        finally:
            server.terminate()


def serve(address: str, programs: str) -> None:
    """Run each command that is asked for in a fork; return in the fork only, to run it there."""
    for module in IMPORTED:
        importlib.import_module(module)
    sys.path[0] = programs
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while True:
        asked, _ = listener.accept()
        _, streams, _, _ = socket.recv_fds(asked, 1, 3)
        with asked.makefile("r", encoding="utf-8") as text:
            command = json.load(text)
        if not (child := os.fork()):
            listener.close()
            asked.close()
            become(command, streams)
            return
        _, status = os.waitpid(child, 0)
        for stream in streams:
            os.close(stream)
        asked.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
        asked.close()


def become(command: dict[str, object], streams: list[int]) -> None:
    """Take a command's streams, folder, environment and arguments."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    folder, environment, arguments = map(command.get, ("folder", "environment", "arguments"))
    assert isinstance(folder, str) and isinstance(environment, dict) and isinstance(arguments, list)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["specfit", *arguments]


if __name__ == "__main__":
    from specfit.cli.__main__ import run

    serve(*sys.argv[1:])
    run()
