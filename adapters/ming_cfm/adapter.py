"""Ming-TTS: the flow-matching head (`DiT`, aggregator and stop head) on the runner, one patch of latents a call.

One call decodes one patch of every request of the batch. vllm-omni's solver reads its time steps on the host, which no
capture permits, and draws noise for the rows that it sees; padded, it would draw other noise after the same seed. Here
the time steps are a constant and both kinds of noise are inputs, which the caller draws for real rows. Guidance, sigma
and temperature are an input too, one of each for the whole batch.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runner import PADDED, AdapterError, AxisMode, GraphAdapter, InputSpec, OutputSpec

PATCH, LATENT, DIM = 4, 64, 896  # of the released 0.5B model: latents a patch, their width, the language model's


class MingCFMAdapter(GraphAdapter):
    """Hidden states, the latents before, noise and controls to a patch, its embedding and the chance of the end."""

    inputs = (
        InputSpec("hidden", torch.float32, ("batch", 1, "dim")),
        InputSpec("history", torch.float32, ("batch", "past", "latent")),
        InputSpec("start", torch.float32, ("batch", "patch", "latent")),
        InputSpec("noise", torch.float32, ("batch", "steps", "patch", "latent")),
        InputSpec("controls", torch.float32, ("control",)),  # guidance, sigma, temperature
    )
    outputs = (
        OutputSpec("patch", ("batch", PATCH, LATENT)),
        OutputSpec("embedding", ("batch", 1, DIM)),
        OutputSpec("stop", ("batch", 2)),
    )
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED}

    def __init__(self, module: Any, times: torch.Tensor, past: int, patch: int) -> None:
        """`module` has the parts `flowloss`, `linear_proj_audio` and `stop_head`, in one dtype and evaluation mode.

        `times` are the solver's `[steps + 1]` in float32, on the module's device; `past` and `patch` count latents.
        Raises AdapterError for fewer than one step.
        """
        if times.ndim != 1 or len(times) < 2:
            raise AdapterError(f"times must be [steps + 1] with at least one step, found shape {tuple(times.shape)}")
        self.module = module
        self.times = times
        self.dtype: torch.dtype = module.stop_head.weight.dtype
        latent, dim = module.flowloss.z_channels, module.stop_head.in_features
        self.sizes = {
            "dim": dim,
            "past": past,
            "patch": patch,
            "latent": latent,
            "steps": len(times) - 1,
            "control": 3,
        }
        # The solver integrates in float32; the model's dtype is that of what it is given.
        self.inputs = tuple(
            InputSpec(spec.name, self.dtype if spec.name in ("hidden", "history") else torch.float32, spec.axes)
            for spec in type(self).inputs
        )
        self.outputs = (
            OutputSpec("patch", ("batch", patch, latent)),
            OutputSpec("embedding", ("batch", 1, dim)),
            OutputSpec("stop", ("batch", 2)),
        )

    def forward(
        self,
        hidden: torch.Tensor,
        history: torch.Tensor,
        start: torch.Tensor,
        noise: torch.Tensor,
        controls: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`[batch, 1, dim]`, `[batch, past, latent]`, `[batch, patch, latent]`, `[batch, steps, patch, latent]` and
        `[3]` to `[batch, patch, latent]`, `[batch, 1, dim]` and `[batch, 2]`.

        Guidance must be at least 1e-5: without it the package runs another program.
        """
        guidance, sigma, temperature = controls.unbind()
        dit, x = self.module.flowloss.cfm.model, start
        for step in range(self.sizes["steps"]):
            span = self.times[step + 1] - self.times[step]
            both = dit.forward_with_cfg(
                x=x.to(hidden.dtype),
                t=self.times[step].to(hidden.dtype),
                c=hidden,
                latent_history=history,
                cfg_scale=guidance,
                patch_size=x.shape[1],
            )
            given, free = both.chunk(2)
            x = x + (given + (given - free) * guidance).float() * span
            if step < self.sizes["steps"] - 1:  # what the package draws after the last step is never heard
                x = x + sigma * temperature.sqrt() * span.abs().sqrt() * noise[:, step]
        patch = x.to(hidden.dtype)
        return patch, self.module.linear_proj_audio(patch), self.module.stop_head(hidden[:, -1]).softmax(-1)
