"""Programs of ours that run as processes of their own, started from their source text; and their registry.

Beside the ranks, as sidecars (:mod:`musterpoint.core.processes.sidecars`), and what starts each:

========================  =============================================================================
``checkpoint_keeper``     ``supervise/watchers/kept_checkpoints``
``uploader``              ``supervise/watchers/uploads``
``stack_sampler``         ``supervise/watchers/stalls`` and ``latecomers``; with ``gpu_activity`` for GPUs
``pid1_tracer``           ``supervise/watchers/pid1_watch``
========================  =============================================================================

Before and after the ranks ``mover`` (``data/mover_process``) and ``code_artifact`` (``code/aws``) run, and
``accelerate_settings`` (``fabric/accelerate_config``). Launchers start ``rank_stub``, ``launch_agent``,
``tensorflow_server``, ``horovod_rendezvous``, ``ray_node``, ``ray_driver`` and ``xgboost_tracker``; the job's ssh
server starts ``ssh_session``.
"""
