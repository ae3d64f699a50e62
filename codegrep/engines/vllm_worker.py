"""What this project adds inside vLLM's worker processes, through vLLM's own extension point (worker_extension_cls)."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import torch
from vllm.platforms import current_platform

from codegrep.engines.adapter import factors_sha256
from codegrep.engines.cpu.vllm_kernels import SEGMENTED_LORA, use_limit

EXTENSION = "codegrep.engines.vllm_worker.AdapterReader"

# A platform names the class of its LoRA products; there is no argument for it. This module is loaded in a worker before
# its model is.
if current_platform.is_cpu():
    type(current_platform).get_punica_wrapper = classmethod(lambda cls: SEGMENTED_LORA)  # type: ignore[method-assign]
    use_limit()


class AdapterReader:
    """Methods that `collective_rpc` can call by name in every worker."""

    model_runner: Any

    def end_with(self, pid: int) -> None:
        """End this process, and the one that started it where that is another, as soon as process `pid` has ended.

        A replica that is killed cannot stop its processes any more; they would keep its memory.
        """
        threading.Thread(target=_end_with, args=(pid, os.getppid()), name="codegrep-end-with", daemon=True).start()

    def read_adapter(self, adapter_id: int) -> dict[str, Any]:
        """What this worker multiplies with, read from the adapter's slot.

        Returns:
            "factors": codegrep.engines.adapter.factors_sha256 ("" where the adapter is in no slot); "dtype"; "held":
            adapters that the worker holds.
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
            # With tensor parallelism a slot holds a shard; then the whole matrices beside it have to do.
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
    try:
        descriptor = os.pidfd_open(pid)
        select.select([descriptor], [], [])
    except (OSError, AttributeError):  # it is gone already, or this is no Linux
        while _runs(pid):
            time.sleep(1.0)
    if parent != pid and os.getppid() == parent:  # the engine's core, which started this worker and is still there
        with suppress(OSError):
            os.kill(parent, signal.SIGKILL)
    os._exit(1)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
