"""A synthetic Qwen3-30B-A3B: routing and drafts drawn so that published measurements are met."""
