"""Makes the .bin files that torch_tensors_test.cpp reads, as torch.save writes them.

usage: python make_torch.py OUT_DIR           needs: pip install torch
"""
import collections
import pathlib
import sys

import torch


class Config:  # what a training script may leave beside its tensors
    pass


def main(out):
    out = pathlib.Path(out)
    whole = torch.arange(12, dtype=torch.float32)
    tensors = collections.OrderedDict(
        matrix=whole.reshape(3, 4),
        tied=whole.reshape(3, 4),
        part=whole[4:8],
        turned=torch.arange(6, dtype=torch.float32).reshape(2, 3).t(),
        parameter=torch.nn.Parameter(torch.tensor([1.5, -2.5])),
        half=torch.tensor([0.5, 65504.0], dtype=torch.float16),
        bfloat=torch.tensor([[3.0, -1.0]], dtype=torch.bfloat16),
        odd=torch.arange(8, dtype=torch.float32).reshape(2, 2, 2).permute(2, 0, 1),
        ids=torch.arange(3),
        mask=torch.ones(2, 2, dtype=torch.bool),
        scalar=torch.tensor(7.0),
    )
    tensors._metadata = collections.OrderedDict({"": {"version": 1}})
    torch.save(tensors, out / "tensors.bin")
    torch.save({"big": torch.zeros(1000, 4)[2:4, :].clone(), "step": 3, "lr": 0.1, "tags": ["a", "b"]},
               out / "plain_dict.bin")
    torch.save(tensors, out / "old_format.bin", _use_new_zipfile_serialization=False)
    torch.save({"weight": torch.zeros(2), "config": Config()}, out / "object.bin")
    torch.save({"state_dict": {"weight": torch.zeros(2)}, "epoch": 3}, out / "training.bin")


if __name__ == "__main__":
    main(sys.argv[1])
