"""The model of `isobath bench train` in plain PyTorch: a Llama-shaped decoder and its Mixture-of-Depths variant.

Letters: B sequences of T tokens, D width, H heads of size K, F MLP width, k rows chosen per sequence. Where PyTorch has
several ways to write the same thing, the one that was fastest on CPUs stands here: one product for q, k and v, two for
gate and up, rotary pairs as complex numbers, flat row indices.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    context: int = 1024
    batch: int = 4
    vocab_size: int = 257
    routed: bool = False  # blocks 1, 3, 5, ...
    capacity: float = 0.125
    aux_weight: float = 0.01
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def intermediate_size(self):
        return (8 * self.hidden_size // 3 + 15) // 16 * 16

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads

    @property
    def chosen(self):
        return max(1, int(self.capacity * self.context + 1e-9))


class RmsNorm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.eps = shape.rms_norm_eps
        self.weight = nn.Parameter(torch.ones(shape.hidden_size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def linear(columns, rows):
    return nn.Linear(columns, rows, bias=False)


def rotate_complex(x, angle):
    """Turns adjacent pairs (x[2i], x[2i+1]).  x (B,T,h,K)   angle (B or 1,T,1,K/2,2): cosine, sine"""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.view_as_complex(angle)).flatten(-2)


def rotate_real(x, angle):
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = angle.unbind(-1)
    return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)


class Block(nn.Module):
    """delta = a + m with a = Attn(norm1(x)), m = MLP(norm2(x + a)): a block without its residual."""

    def __init__(self, shape, rotate):
        super().__init__()
        D, Fm = shape.hidden_size, shape.intermediate_size
        self.H, self.K, self.rotate = shape.num_attention_heads, shape.head_dim, rotate
        self.norm1, self.norm2 = RmsNorm(shape), RmsNorm(shape)
        self.qkv, self.o = linear(D, 3 * D), linear(D, D)
        self.gate, self.up, self.down = linear(D, Fm), linear(D, Fm), linear(Fm, D)

    def forward(self, x, angle, B):
        qkv = self.qkv(self.norm1(x)).view(B, -1, 3 * self.H, self.K)
        qk, v = qkv.split((2 * self.H, self.H), dim=2)
        q, k = self.rotate(qk, angle).transpose(1, 2).chunk(2, dim=1)
        a = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        a = self.o(a.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x + a)
        return a + self.down(F.silu(self.gate(h)) * self.up(h))


class Routed(nn.Module):
    """y = x + gate(r) * delta(x_R) on the k rows of each sequence with the largest r = <w, x>; the others keep x."""

    def __init__(self, shape, inner):
        super().__init__()
        self.inner, self.k, self.T = inner, shape.chosen, shape.context
        self.router = linear(shape.hidden_size, 1)

    def forward(self, x, angle, B):
        r = self.router(x).float().view(B, -1)
        T = r.shape[1]
        index = r.detach().topk(self.k, dim=1, sorted=False).indices.sort(dim=1).values
        flat = (index + torch.arange(0, B * T, T)[:, None]).flatten()
        delta = self.inner(x.index_select(0, flat), angle[0].index_select(0, index.flatten()).unflatten(0, (B, -1)), B)
        target = torch.zeros(B * T).index_fill(0, flat, 1.0)
        auxiliary = F.binary_cross_entropy_with_logits(r.flatten(), target)
        gate = r.flatten().index_select(0, flat)
        return x.index_add(0, flat, gate[:, None] * delta), auxiliary


class Model(nn.Module):
    def __init__(self, shape, rotate=rotate_complex):
        super().__init__()
        D, V = shape.hidden_size, shape.vocab_size
        self.shape = shape
        self.embed = nn.Embedding(V, D)
        blocks = [Block(shape, rotate) for _ in range(shape.num_hidden_layers)]
        self.blocks = nn.ModuleList(Routed(shape, b) if shape.routed and i % 2 else b for i, b in enumerate(blocks))
        self.norm, self.head = RmsNorm(shape), linear(D, V)
        pair = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
        turn = torch.arange(shape.context, dtype=torch.float64)[:, None] * shape.rope_theta**-pair
        self.register_buffer("angle", torch.stack((turn.cos(), turn.sin()), -1).float()[None, :, None])

    def forward(self, token, target):
        """Mean next-token loss, and with the auxiliary loss added what is differentiated.  token, target (B,T)"""
        B, T = token.shape
        x = self.embed(token.flatten())
        angle, auxiliary = self.angle[:, :T], []
        for block in self.blocks:
            if isinstance(block, Routed):
                x, term = block(x, angle, B)
                auxiliary.append(term)
            else:
                x = x + block(x, angle, B)
        loss = F.cross_entropy(self.head(self.norm(x)), target.flatten())
        if not auxiliary:
            return loss, loss
        return loss, loss + self.shape.aux_weight * torch.stack(auxiliary).mean()
