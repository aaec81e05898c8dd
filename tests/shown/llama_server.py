"""A llama.cpp server of its own: xllamacpp's, with the model given as the first argument, until stdin closes."""

from __future__ import annotations

import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 4096
params.n_parallel = 4
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.verbosity = -1
params.warmup = False
params.fit_params = False
params.cache_ram_mib = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
