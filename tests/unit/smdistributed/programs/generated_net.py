"""The model of generated blocks."""

import generated_blocks
import generated_keepers
import generated_numbers
import generated_uses
import torch
from generated_blocks import WIDTH, Block
from torch import nn

SEEING = ("borrowing", "calling", "crossing", "numbering", "reading", "setting", "watching")
"""Kinds that are given another block; modules among arguments keep a model from running as stages."""
CLASSES = {
    name.lower(): each
    for room in (generated_blocks, generated_keepers, generated_numbers, generated_uses)
    for name, each in vars(room).items()
    if isinstance(each, type) and issubclass(each, Block)
}
CLASSES["linear"] = Block


class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.first, self.blocks = nn.Linear(3, WIDTH), nn.ModuleList()
        self.others = []
        for index, block in enumerate(blocks):
            chosen = [block["other"] % index] if index else []
            self.others.append(chosen if block["kind"] in SEEING else [])
            self.blocks.append(CLASSES[block["kind"]](index, [self.blocks[each] for each in chosen]))
        self.last = nn.Linear(WIDTH, 2)

    def encode(self, x):
        return torch.tanh(self.first(x))

    def forward(self, x, ids):
        x = self.encode(x)
        for block, others in zip(self.blocks, self.others):
            x = block(x, ids, [self.blocks[each] for each in others])
        return self.last(x)
