"""Hugging Face's Trainer: a small BERT, from random weights, on scikit-learn's handwritten digits.

An image is a sequence of 64 tokens, the grey values 0 to 16 of its pixels; nothing is downloaded. Two hosts of this
machine:

    muster local --hosts 2 --slots 2 --launcher torchrun examples/huggingface/trainer.py --max_steps 20

Every option of TrainingArguments is one of this script's, so that a job's hyperparameters can be any of them.
"""

import atexit
import os
import time

import torch
from sklearn.datasets import load_digits
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments


def digits() -> list[dict[str, torch.Tensor]]:
    images, labels = load_digits(return_X_y=True)
    tokens, classes = torch.tensor(images, dtype=torch.long), torch.tensor(labels)
    return [{"input_ids": image, "labels": label} for image, label in zip(tokens, classes)]


def main() -> None:
    defaults = {
        "output_dir": os.environ.get("SM_MODEL_DIR", "."), "learning_rate": 5e-3, "per_device_train_batch_size": 16,
        "num_train_epochs": 5, "logging_steps": 10, "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
        "dataloader_pin_memory": torch.cuda.is_available(), "ddp_find_unused_parameters": False,
        "average_tokens_across_devices": False,  # every image counts the same
    }  # fmt: skip
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(**defaults)
    (args,) = parser.parse_args_into_dataclasses()
    config = BertConfig(
        vocab_size=17, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, num_labels=10,
    )  # fmt: skip
    torch.manual_seed(0)
    trainer = Trainer(BertForSequenceClassification(config), args, train_dataset=digits())
    print(f"rank {args.process_index} of {args.world_size} on {args.device}", flush=True)
    result = trainer.train()
    weights = sum(float(each.detach().sum()) for each in trainer.model.parameters())
    print(f"rank {args.process_index} loss {result.training_loss:.6f} weights {weights:.6f}", flush=True)
    trainer.save_model()  # rank 0 writes


if __name__ == "__main__":
    atexit.register(time.sleep, 0.1)  # gloo's threads give their last tensors back (docs/torchrun.md)
    main()
