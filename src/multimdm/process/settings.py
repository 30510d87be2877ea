"""What recipes and checkpoints say of processes. Imports no torch, so that the help of training commands is quick."""

from typing import Literal

USUAL_RANKS = (0.01, 0.25)
"""The expected ranks of hybrid processes at t = 0 and t = 1, as CANDI's settings have them."""
OrderName = Literal["id", "probable", "similar", "neighbours"]
"""What recipes call the orders of quantile noise. Two are tables: similar goes by a teacher's embeddings, neighbours by
the neighbours that tokens have in texts."""
PromptForm = Literal["chat", "bos", "plain"]
"""How prompts are written for a model that learnt answers: by its tokenizer's chat template, as they are behind BOS, or
as they are."""
Readout = Literal["posterior", "context"]
"""What a network's prediction is taken for: the posterior p(x_0^l | x_t), as in the paper, or what the rest of the
sequence tells of x_0^l, to which the evidence of x_t^l is joined."""
