"""The rehearsal: a simulated LLM engine and a simulated KV store behind the real interfaces.

Nothing here knows of gates, contracts or verdicts. Two programs stand in for hardware, so that the
whole path (Ansible, streaming load, scraping, evidence, judgement) can be walked without any:

``python -m kvgate.rehearsal.store``
    The external KV tier of one arm. Keeps chunks of 256 prompt tokens by a hash chained over the
    prefix, with capacity and LRU eviction; reads share a simulated bandwidth, writes are
    acknowledged later. It outlives the engine, which is what makes a cold restore possible.
``python -m kvgate.rehearsal.engine``
    An OpenAI-compatible server with vLLM's endpoints and counter names: continuous batching with
    chunked prefill, a GPU prefix cache, an optional DRAM tier, and the store behind them.
``python -m kvgate.rehearsal.launch``
    Starts and stops both by recorded pid; the Ansible role ``rehearsal_engine`` calls it.

Time. Every duration of a calibration is a real-world second; the programs wait that long divided
by ``--time-scale``. Work is kept on a virtual timeline of absolute deadlines, so an operating
system that wakes us late does not slow the simulated machine down.

Tokens. A prompt token stands for ``real_tokens_per_token`` tokens of the real workload, so that
long contexts stay small on the wire; KV bytes and prefill time are those of the real tokens.

Answers. The text follows from the prompt's tokens and from the KV contents that were used, hence
it is the same in every arm until a store returns other content than it was given.

Every answer carries ``x-kvgate-simulated: true`` and ``/version`` says so: nothing that comes from
here can be mistaken for a measurement of hardware. ``faults`` lists what can be made to go wrong.
"""
