"""The two halves as engines of an ipyparallel cluster, as a notebook starts them; prints JSON."""

import json

import ipyparallel


def half(prompt):
    from mpi4py import MPI  # noqa: PLC0415 (runs in the engines)

    from relaxlab.models.language_model import open_model  # noqa: PLC0415
    from relaxlab.models.paged_llama import PagedLlama  # noqa: PLC0415
    from relaxlab.serve.disaggregate import (  # noqa: PLC0415
        RemotePrefill,
        SymmetricMemory,
        serve_prefill,
    )
    from relaxlab.serve.engine import Engine  # noqa: PLC0415

    memory = SymmetricMemory(MPI.COMM_WORLD)
    with memory.installed():
        llama = PagedLlama(open_model("tiny"), page_size=8, capacity=256, transfer=True)
    if MPI.COMM_WORLD.rank == 0:
        return serve_prefill(memory, llama)
    remote = RemotePrefill(memory, llama)
    engine = Engine(llama, remote=remote)
    request = engine.submit(prompt, max_tokens=12)
    engine.run()
    remote.close()
    return engine.output(request)


if __name__ == "__main__":
    with ipyparallel.Cluster(engines="mpi", n=2, log_level=40) as cluster:
        served, output = cluster[:].apply_sync(half, list(b"the pages of a book are turned"))
    print(json.dumps({"served": served, "output": output}))
