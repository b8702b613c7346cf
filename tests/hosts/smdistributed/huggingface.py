"""Transformers' Trainer as it is, with smdistributed.modelparallel: it trains, evaluates, saves and goes on."""

import dataclasses
import hashlib
import json

import torch
from sklearn.datasets import load_digits
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

import smdistributed.modelparallel.torch as smp  # isort: skip


@dataclasses.dataclass
class Chosen:
    """Which model, and whether the last checkpoint of ``output_dir`` is where it begins."""

    name: str
    resume: bool = False


def digits(count):
    images, labels = load_digits(return_X_y=True)
    tokens, classes = torch.tensor(images[:count], dtype=torch.long), torch.tensor(labels[:count])
    return [{"input_ids": image, "labels": label} for image, label in zip(tokens, classes)]


def bert():
    config = BertConfig(
        vocab_size=17, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config), digits(160)


def gpt2():
    """Its tied head is one tensor in what is saved."""
    config = GPT2Config(
        vocab_size=24, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config), [
        {"input_ids": each["input_ids"], "labels": each["input_ids"]} for each in digits(96)
    ]


def accuracy(prediction):
    predicted = prediction.predictions.argmax(-1)
    return {"accuracy": float((predicted == prediction.label_ids).mean()), "count": int(prediction.label_ids.shape[0])}


def main():
    chosen, args = HfArgumentParser((Chosen, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(3)
    with smp.tensor_parallelism(smp.tp_size() > 1):
        model, rows = {"bert": bert, "gpt2": gpt2}[chosen.name]()
    held = rows[-40:]  # with several replicas the last batch is not a whole one
    trainer = Trainer(model, args, train_dataset=rows, eval_dataset=held, compute_metrics=accuracy)
    before = trainer.evaluate()
    done = trainer.train(resume_from_checkpoint=chosen.resume or None)
    after = trainer.evaluate()
    predicted = trainer.predict(held)
    trainer.save_model()
    trained = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    digest = hashlib.sha256(predicted.predictions.tobytes()).hexdigest()[:12]
    found = {
        "rank": smp.rank(), "steps": done.global_step, "trained": trained,
        "before": before["eval_loss"], "after": after["eval_loss"],
        "accuracy": after["eval_accuracy"], "count": after["eval_count"], "rows": len(predicted.predictions),
        "digest": digest,
    }  # fmt: skip
    print("found " + json.dumps(found), flush=True)
    smp.barrier()


if __name__ == "__main__":
    main()
