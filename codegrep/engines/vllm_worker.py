"""An extension of vLLM's worker processes (worker_extension_cls)."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from typing import Any

import torch
from vllm.platforms import current_platform

from codegrep.engines.adapter import factors_sha256
from codegrep.engines.cpu.vllm_kernels import SEGMENTED_LORA, use_limit

EXTENSION = "codegrep.engines.vllm_worker.AdapterReader"

# A worker imports this module before it loads its model. vLLM takes the class of LoRA products from the platform, for
# which there is no argument.
if current_platform.is_cpu():
    type(current_platform).get_punica_wrapper = classmethod(lambda _cls: SEGMENTED_LORA)
    use_limit()


class AdapterReader:
    """Methods that `collective_rpc` calls by name in every worker."""

    model_runner: Any

    def end_with(self, pid: int) -> None:
        """End this process and its parent as soon as process `pid` has ended: a killed replica cannot stop them."""
        threading.Thread(target=_end_with, args=(pid, os.getppid()), name="codegrep-end-with", daemon=True).start()

    def read_adapter(self, adapter_id: int) -> dict[str, Any]:
        """Read from the adapter's slot what this worker multiplies with.

        Returns:
            "factors": adapter.factors_sha256, "" if the adapter is in no slot; "dtype"; "held": number of adapters that
            the worker holds.
        """
        manager = self.model_runner.lora_manager._adapter_manager
        held = len(manager.list_adapters())
        adapter = manager.get_adapter(adapter_id)
        if adapter is None or adapter_id not in manager.lora_index_to_id:
            return {"factors": "", "dtype": "", "held": held}
        slot = manager.lora_index_to_id.index(adapter_id)
        a: list[torch.Tensor] = []
        b: list[torch.Tensor] = []
        for name, module in manager.modules.items():
            weights = manager._get_lora_layer_weights(adapter, name)
            if not weights:
                continue
            factors_a, factors_b = _listed(weights.lora_a), _listed(weights.lora_b)
            # With tensor parallelism a slot holds a shard, so the whole matrices beside it are used.
            whole = getattr(module, "tp_size", 1) == 1
            for index, (one_a, one_b) in enumerate(zip(factors_a, factors_b, strict=True)):
                if one_a is None or one_b is None:
                    continue
                if whole:
                    rank, width = one_a.shape
                    a.append(module.lora_a_stacked[index][slot, 0, :rank, :width])
                    b.append(module.lora_b_stacked[index][slot, 0, : one_b.shape[0], : one_b.shape[1]])
                else:
                    a.append(one_a)
                    b.append(one_b)
        dtype = str(a[0].dtype).removeprefix("torch.") if a else ""
        return {"factors": factors_sha256(a, b), "dtype": dtype, "held": held}


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, list | tuple) else [tensors]


def _end_with(pid: int, parent: int) -> None:
    with suppress(ProcessLookupError):  # it is gone already
        select.select([os.pidfd_open(pid)], [], [])
    if parent != pid and os.getppid() == parent:  # the engine's core, which started this worker and is still there
        with suppress(OSError):
            os.kill(parent, signal.SIGKILL)
    os._exit(1)
