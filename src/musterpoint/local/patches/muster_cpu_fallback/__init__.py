"""Makes a script that knows only CUDA and nccl run on the CPU with gloo: every device "cuda" becomes "cpu".

For trying a script out where there is no GPU. Figures of such a run say nothing about a GPU: mixed precision is
switched off, memory statistics are zero, streams and events do nothing but keep time. Tensors and their ``.device`` are
honestly the CPU's; a ``torch.device("cuda")`` stays what it is and is taken for the CPU wherever it is used.
"""
