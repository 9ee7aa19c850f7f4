"""vLLM: what its own planner allocates, as rules of one idea per file and constants by version in data/engines/vllm.toml."""
