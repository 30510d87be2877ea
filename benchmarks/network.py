"""What asking for half of the positions saves, and what our network costs beside torch's own transformer.

    python benchmarks/network.py

The paper's shapes: 12 blocks of width 768 with 12 heads, V = 50,257, L = 256, one sequence.
"""

import torch
from torch import nn

from multimdm.models import SIZES, DiT, DiTConfig
from timing import in_turn

V, L, B = 50_257, 256, 1


class Plain(nn.Module):
    """torch.nn.TransformerEncoder of the same width and depth with the same head."""

    def __init__(self) -> None:
        super().__init__()
        size = SIZES["small"]
        d = size["hidden_dim"]
        layer = nn.TransformerEncoderLayer(
            d, size["num_heads"], 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.embedding = nn.Embedding(V + 1, d)
        self.encoder = nn.TransformerEncoder(layer, size["num_blocks"], enable_nested_tensor=False)
        self.head = nn.Linear(d, V)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits [B, L, V]."""
        return self.head(self.encoder(self.embedding(ids)))


@torch.inference_mode()
def main() -> None:
    """Measure and print the ratios."""
    torch.set_num_threads(2)
    size = SIZES["small"]
    ours = DiT(
        DiTConfig(
            vocab_size=V,
            num_masks=1,
            hidden_dim=size["hidden_dim"],
            num_blocks=size["num_blocks"],
            num_heads=size["num_heads"],
            cond_dim=size["cond_dim"],
        )
    ).eval()
    plain = Plain().eval()
    ids = torch.randint(0, V, (B, L), generator=torch.Generator().manual_seed(0))
    half = torch.arange(L).expand(B, L) % 2 == 0
    times = in_turn(
        {
            "ours, all positions": lambda: ours(ids, 0.5),
            "ours, half of them": lambda: ours(ids, 0.5, half),
            "plain encoder, all": lambda: plain(ids),
        },
        rounds=15,
    )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; B = {B}, L = {L}, V = {V:,}; medians")
    for name, seconds in times.items():
        print(f"  {name:<22} {1000 * seconds:8.1f} ms")
    whole = times["ours, all positions"]
    print("\n| ratio | measured | aim |\n|---|---|---|")
    print(f"| half of the positions / all | {times['ours, half of them'] / whole:.3f} | at most 0.9 |")
    print(f"| ours / plain encoder | {whole / times['plain encoder, all']:.3f} | at most 1.08 |")


if __name__ == "__main__":
    main()
