"""Takes most of the GPU's memory, is killed in the first attempt, and takes it again in the second."""

import os
import signal

import torch
from ranks import HAS_GPU, device, settle, tell

mine = device()
size = int(torch.cuda.mem_get_info()[0] * 0.85) if HAS_GPU else 1 << 20
held = torch.empty(size, dtype=torch.uint8, device=mine)
settle()
attempt = os.environ["MUSTER_ATTEMPT"]
if attempt == "0":
    os.makedirs(os.environ["SM_CHECKPOINT_DIR"], exist_ok=True)
    with open(os.path.join(os.environ["SM_CHECKPOINT_DIR"], "one"), "w") as file:  # something was achieved
        file.write(str(size))
    os.kill(os.getpid(), signal.SIGKILL)
with open(os.path.join(os.environ["SM_CHECKPOINT_DIR"], "one")) as file:
    tell(attempt=int(attempt), share_of_first=size / int(file.read()))
