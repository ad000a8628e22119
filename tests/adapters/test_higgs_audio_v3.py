"""The real Higgs Audio v3 codec of the installed vllm-omni; and the boolean mask of its talker, refused and cured.

https://github.com/vllm-project/vllm-omni/issues/4562
"""

from __future__ import annotations

import importlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.emulation import emulated_cuda
from conformance.outcome import CaseRecord, Outcome
from conformance.registry import load_adapters
from conformance.spec import AdapterSpec
from runner import EXACT, AxisMode, GraphAdapter, InputSpec, OutputSpec
from tests.inner_run import run_suite

pytestmark = pytest.mark.vllm
CPU = torch.device("cpu")
SPEC: Any = load_adapters(["higgs_audio_v3"])[0].spec
CODE2WAV, TALKER = "stage_input_processors.higgs_audio_v3", "models.higgs_audio_v3.higgs_audio_v3_talker"


def upstream(module: str) -> Any:
    return importlib.import_module(f"vllm_omni.model_executor.{module}")


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> None:
    """vllm cannot be imported a second time, and pytester forgets what the inner run imported."""
    upstream(CODE2WAV)
    upstream(TALKER)


@pytest.fixture
def adapter() -> Iterator[Any]:
    """On the emulated device: the module asks CUDA whether it captures, which raises where there is no driver."""
    with emulated_cuda():
        torch.manual_seed(0)
        yield SPEC.build(torch.device("cuda", 0), None)


def codes(frames: int) -> torch.Tensor:
    return torch.randint(0, 32, (1, 3, frames), generator=torch.Generator().manual_seed(frames)).cuda()


@pytest.mark.parametrize(("frames", "bucket"), [(5, 8), (7, 8), (11, 12)])
def test_padded_frames_are_heard_before_the_end(adapter: Any, frames: int, bucket: int) -> None:
    drawn = codes(frames)
    truth = adapter.forward(drawn)
    padded = adapter.forward(nn.functional.pad(drawn, (0, bucket - frames)))[..., : truth.shape[-1]]
    wrong = ((padded - truth).abs() > 0.01 * truth.abs().max()).flatten()
    assert wrong[-1]
    assert wrong.sum() > SPEC.hop  # more than the last frame


def test_the_length_is_that_of_the_decoders_own_strides(adapter: Any) -> None:
    samples = adapter.outputs[0].length.fn
    for frames in (1, 7, 30):
        assert samples(0, frames, frames) == adapter.forward(codes(frames)).shape[-1] == frames * SPEC.hop
    odd = adapter.module.acoustic_decoder.block[0].conv_t1
    odd.output_padding = (0,)  # plain DAC: this package sets it
    assert samples(0, 7, 7) == adapter.forward(codes(7)).shape[-1] == 68


def test_special_codes_become_what_the_package_sends_to_this_stage(
    adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay pattern of a short reply, through the package's own stage processor and through the adapter."""
    processor, start, end, n_vq = upstream(CODE2WAV), 32, 33, 3
    monkeypatch.setattr(processor, "_NUM_CODEBOOKS", n_vq)
    monkeypatch.setattr(processor, "_NUM_REAL_CODES", 32)
    real = codes(9)[0]
    real[1, -1], real[2, -2:] = end, end  # the end has begun in the first row
    delayed = torch.full((9 + n_vq - 1, n_vq), start, device="cuda")
    for row in range(n_vq):
        delayed[row : row + 9, row] = real[row]
        delayed[row + 9 :, row] = end

    reply = SimpleNamespace(multimodal_output={"codes": {"audio": delayed}})
    [sent] = processor.talker2code2wav([SimpleNamespace(finished=True, outputs=[reply])])
    expected = adapter.module.decode_codes(torch.tensor(sent["prompt_token_ids"], device="cuda").view(1, n_vq, 8))
    assert torch.equal(adapter.forward(real[None, :, :8]), expected)
    with pytest.raises(ValueError, match="out of range"):
        adapter.module.decode_codes(real[None])


def test_the_trace_is_what_the_packages_processor_cuts() -> None:
    processor, sizes = upstream(CODE2WAV), Counter[int]()
    extra = {
        "codec_chunk_frames": 25,
        "codec_left_context_frames": 25,
        "codec_right_holdback_frames": 4,
        "initial_codec_chunk_frames": 1,
    }
    for frames in (75, 210, 487, 1130):
        request = SimpleNamespace(external_req_id="one", is_finished=lambda: False)
        connector = SimpleNamespace(config={"extra": extra})
        manager = SimpleNamespace(connector=connector, code_prompt_token_ids=defaultdict(list))
        rows = frames + 7  # the delay pattern of 8 codebooks
        for row in range(rows):
            step = {"codes": {"audio": torch.zeros(1, 8, dtype=torch.long)}}
            chunk = processor.talker2code2wav_async_chunk(manager, step, request, is_finished=row == rows - 1)
            if chunk is not None:
                sizes[chunk.codes.audio.numel() // 8] += 1
    assert sizes == Counter({call.sizes["frames"]: call.count for call in SPEC.trace.calls})


class SelectingAdapter(SPEC.adapter):  # type: ignore[misc]
    """Drops frames with special codes by the package's own boolean mask."""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        kept = upstream(CODE2WAV)._filter_real_code_frames(codes[0])
        return self.module.decode_codes(kept[None]).clone()


class SelectingSpec(type(SPEC)):  # type: ignore[misc]
    name = "selecting"
    adapter = SelectingAdapter
    buckets = ({"batch": 1, "frames": 8},)

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return SelectingAdapter(super().build(device, checkpoint).module)

    def make_inputs(self, adapter: Any, sizes: Any, generator: torch.Generator) -> Any:
        return {"codes": torch.randint(0, 32, (sizes["batch"], 3, sizes["frames"]), generator=generator)}


def test_frames_selected_by_a_mask_are_refused_with_the_packages_line(pytester: pytest.Pytester) -> None:
    refused = host_sync_of(pytester, "SelectingSpec")
    assert "stage_input_processors/higgs_audio_v3.py" in refused.message
    assert "frames[valid]" in refused.message


class FeedbackAdapter(GraphAdapter):
    """The talker's audio feedback, `_apply_audio_feedback`: the site of the issue, boolean mask and all.

    A request of one token is decoding: its embedding is replaced by that of its last codes, where it has any.
    """

    inputs = (
        InputSpec("hidden", torch.float32, ("tokens", "dim")),
        InputSpec("starts", torch.long, ("bounds",)),
        InputSpec("last_codes", torch.long, ("requests", "n_vq")),
        InputSpec("has_codes", torch.bool, ("requests",)),
    )
    outputs = (OutputSpec("embeddings", ("tokens", 16)),)
    axes: ClassVar[dict[str, AxisMode]] = {"tokens": EXACT}

    def __init__(self, module: Any) -> None:
        self.module = module
        self.sizes = {"dim": 16, "bounds": 6, "requests": 5, "n_vq": 3}

    def forward(
        self, hidden: torch.Tensor, starts: torch.Tensor, last_codes: torch.Tensor, has_codes: torch.Tensor
    ) -> torch.Tensor:
        talker = self.module
        talker._last_step_query_start_loc = starts
        talker._decode_last_codes, talker._decode_has_codes = last_codes, has_codes
        return talker._apply_audio_feedback(hidden, starts)


class CuredFeedbackAdapter(FeedbackAdapter):
    """The same with static shapes: every token looks up its request, and a `where` chooses."""

    def forward(
        self, hidden: torch.Tensor, starts: torch.Tensor, last_codes: torch.Tensor, has_codes: torch.Tensor
    ) -> torch.Tensor:
        tokens = torch.arange(hidden.shape[0], device=hidden.device)
        request = torch.searchsorted(starts[1:].contiguous(), tokens, right=True).clamp(max=4)
        decodes = ((starts[1:] - starts[:-1] == 1) & has_codes)[request]
        embedded = self.module.multimodal_embedding(last_codes).to(hidden.dtype)[request]
        return torch.where(decodes[:, None], embedded, hidden)


class FeedbackSpec(AdapterSpec):
    """The real talker's feedback, on a talker that has what it reads and no language model."""

    name = "feedback"
    adapter: ClassVar[type[GraphAdapter]] = FeedbackAdapter
    buckets = ({"tokens": 5}, {"tokens": 9})
    sample_rate, hop = 400, 16
    capabilities = Capabilities(
        variable_length=unsupported("a step is one call"),
        streaming=unsupported("a step is one call"),
        randomness=unsupported("draws nothing"),
        state=unsupported("the codes of the last step are inputs here"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a step has a token"),
        threads=supported(),
    )

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        module = upstream(TALKER)
        talker = object.__new__(module.HiggsAudioV3TalkerForConditionalGeneration)
        nn.Module.__init__(talker)
        talker.multimodal_embedding = module.HiggsFusedMultiTextEmbedding(3, 34, 16)
        nn.init.normal_(talker.multimodal_embedding.weight)
        for name in ("_decode_last_codes", "_decode_has_codes", "_decode_delay_count", "_decode_eoc_countdown"):
            talker.register_buffer(name, torch.zeros(5))
        talker.register_buffer("_decode_generation_done", torch.zeros(5))
        talker._use_external_decode_cudagraph, talker._decode_active_audio_count = True, 1
        return self.adapter(talker.eval().to(device))  # type: ignore[call-arg]

    def make_inputs(self, adapter: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        """Five requests of at least one token each, where there are as many tokens."""
        tokens = sizes["tokens"]
        starts = torch.arange(6).clamp(max=tokens)
        if tokens > 5:
            starts[1:5] = (torch.randperm(tokens - 1, generator=generator)[:4] + 1).sort().values
            starts[5] = tokens
        return {
            "hidden": torch.randn(tokens, 16, generator=generator),
            "starts": starts,
            "last_codes": torch.randint(0, 34, (5, 3), generator=generator),
            "has_codes": torch.rand(5, generator=generator) < 0.7,
        }


class CuredFeedbackSpec(FeedbackSpec):
    name = "cured_feedback"
    adapter = CuredFeedbackAdapter


def host_sync_of(pytester: pytest.Pytester, spec: str) -> CaseRecord:
    """What CG103 says of a spec of this file that no capture permits."""
    path = f"--adapter={__name__}:{spec}"
    records, exit_code = run_suite(pytester, path, "--graph-device=emulated", "-k", "CG103")
    assert exit_code == 1
    assert {record.outcome for record in records} == {Outcome.FAIL}
    return records[0]


def test_the_talkers_boolean_mask_is_refused_with_its_line(pytester: pytest.Pytester) -> None:
    refused = host_sync_of(pytester, "FeedbackSpec")
    assert "higgs_audio_v3_talker.py" in refused.message
    assert "req_rows[decode_mask]" in refused.message
    assert "torch.where" in refused.cure


def test_the_cured_feedback_is_the_talkers_and_passes_every_check(pytester: pytest.Pytester) -> None:
    talkers = FeedbackSpec().build(CPU, None)
    cured = CuredFeedbackAdapter(talkers.module)
    replaced = kept = 0
    for seed in range(200):
        drawn = FeedbackSpec().make_inputs(cured, {"tokens": 1 + seed % 9}, torch.Generator().manual_seed(seed))
        expected = talkers.forward(*drawn.values())
        assert torch.equal(cured.forward(*drawn.values()), expected)
        same = (expected == drawn["hidden"]).all(-1)
        replaced, kept = replaced + int((~same).sum()), kept + int(same.sum())
    assert min(replaced, kept) > 300

    arguments = (f"--adapter={__name__}:CuredFeedbackSpec", "--graph-device=emulated")
    records, exit_code = run_suite(pytester, *arguments, "-k", "not CG003")  # which would import vllm once more
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS, Outcome.NOT_APPLICABLE}


@pytest.mark.slow
def test_a_checkpoint_is_loaded_by_the_models_own_loader(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """The loader fixes the widths of the released codec, so this one has them."""
    decoder = upstream("models.higgs_audio_v2.higgs_audio_decoder")
    codec: dict[str, Any] = {"n_codebooks": 9, "upsampling_ratios": [8, 5, 4, 2, 3], "decoder_hidden_size": 1024}
    codec |= {"downsampling_ratios": [8, 5, 4, 2, 3], "hidden_size": 256}
    parts = {
        "quantizer": decoder.HiggsAudioRVQ(8, hidden_size=32),
        "fc2": nn.Linear(32, 256),
        "acoustic_decoder": decoder.build_higgs_audio_acoustic_decoder({"acoustic_model_config": codec}, CPU),
    }
    prefix = "tied.embedding.modality_embeddings.0.model."
    weights = {
        f"{prefix}{part}.{name}": tensor
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }
    save_file({**weights, "lm_head.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "higgs_multimodal_qwen3"}), encoding="utf-8")

    loaded = SPEC.build(CPU, tmp_path)
    assert loaded.module.state_dict().keys() == {name.removeprefix(prefix) for name in weights}
    assert all(torch.equal(tensor, weights[prefix + name]) for name, tensor in loaded.module.state_dict().items())
    records, exit_code = run_suite(
        pytester, "--adapter=higgs_audio_v3", f"--adapter-checkpoint={tmp_path}", "-k", "b1-f3 and (CG001 or CG201)"
    )
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS}
