"""Both halves of a disaggregated engine, one per MPI process; prints what the decoding half saw.

``mpiexec -n 2 python two_processes.py CASE MODEL``
"""

import json
import os
import sys

from mpi4py import MPI

from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.runtime.kv import invariants
from relaxlab.serve.disaggregate import RemotePrefill, SymmetricMemory, serve_prefill
from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Advanced, Retried
from tests.serve.real_model import before_layer, breakable
from tests.serve.two_processes_prompts import PROMPTS


def main(case: str, name: str) -> None:
    comm = MPI.COMM_WORLD
    prefills = comm.rank == 0
    memory = SymmetricMemory(comm)
    model = open_model(name)
    page_size = 16 if case == "mismatch" and prefills else 8
    with memory.installed(), breakable() as family:
        llama = PagedLlama(
            model, page_size=page_size, capacity=512, chunk=24, transfer=True, family=family
        )
    if prefills:
        if case == "death":
            die_at_work()
        served = serve_prefill(memory, llama)
        comm.send((served, memory.bytes_put), dest=1)
        return
    report = decode(memory, llama, name, case)
    print(json.dumps(report), flush=True)
    if case == "death":
        os._exit(0)  # MPI cannot say goodbye to somebody who is gone


def die_at_work() -> None:
    """End the process in the middle of the second layer of its third round."""
    calls = []

    def die():
        calls.append(1)
        if len(calls) == 6:
            os._exit(3)

    before_layer.append(die)


def decode(memory, llama, name, case):
    events = []
    remote = RemotePrefill(memory, llama, least=4)
    engine = Engine(llama, observer=events.append, remote=remote)
    if name == "tiny":
        prompts, count = [list(p) for p in PROMPTS], 12
    else:
        prompts, count = [llama.model.tokenizer.encode("The capital of France is")], 32
    requests = [engine.submit(prompt, max_tokens=count) for prompt in prompts]
    if case == "cancel":
        engine.step()  # the prompts have been sent away
        engine.cancel(requests[0])
        held = llama.total_pages - llama.available_pages()
        assert held > 0, "pages are pinned until the other side is done with them"
    while engine.busy:
        engine.step()
        invariants.check(llama.cache)
    outputs = [engine.output(request) for request in requests]
    errors = [event.error for event in events if isinstance(event, Retried)]
    arrived = sum(isinstance(e, Advanced) and e.computed > 1 for e in events)
    engine.prefix.clear()
    report = {"outputs": outputs, "errors": errors, "empty": llama.cache.empty(), "events": arrived}
    if case != "death":
        remote.close()
        report["served"], report["bytes"] = memory.comm.recv(source=0)
    return report


if __name__ == "__main__":
    main(*sys.argv[1:])
