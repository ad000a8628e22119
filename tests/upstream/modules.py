"""vllm-omni's own graph wrappers on its own modules, built small with weights that make the output loud.

Each :class:`Upstream` says how to build the module, what one request looks like, what the package computes eagerly and
how its wrapper answers the same request. Matrices are drawn anew: default weights give outputs near zero, in which no
fault is heard. vllm_omni is imported when something is built, which takes many seconds the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from conformance.registry import load_adapters

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Upstream:
    """One wrapper of vllm-omni 0.30.0 and the module that it serves. `size` is frames, or rows for Voxtral."""

    name: str
    build: Callable[[], Any]
    inputs: Callable[[Any, int], Tensors]
    eager: Callable[..., Tensors]  # (module, *inputs): what the package computes without a graph
    wrap: Callable[[Any, Sequence[int]], Any]  # (module on the device, sizes): the wrapper, warmed up
    call: Callable[..., Tensors]  # (wrapper, *inputs)
    graphs: Callable[[Any], Mapping[Any, Any]] = lambda wrapper: wrapper.graphs
    region: Callable[..., Any] | None = None  # (module, *inputs): what the wrapper captures, where that is not `eager`
    sizes: tuple[int, int] = (4, 7)


def _loud(module: Any, std: float = 0.15) -> Any:
    """Evaluation mode, and matrices from a normal distribution."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, std)
    return module.eval()


def _codes(rows: int, size: int) -> torch.Tensor:
    return torch.randint(0, 32, (rows, size))


def _moss() -> Any:
    """The one that the adapter of the same codec is tested with."""
    return load_adapters(["moss_tts"])[0].spec.build(torch.device("cpu"), None).module  # type: ignore[attr-defined]


def _moss_wrapper(module: Any, sizes: Sequence[int]) -> Any:
    from vllm_omni.model_executor.models.moss_tts.moss_codec_cudagraph import MossTTSCUDAGraphCodecWrapper

    wrapper = MossTTSCUDAGraphCodecWrapper(module, list(sizes), num_quantizers=4)
    wrapper.warmup(torch.device("cuda"))
    return wrapper


QWEN3 = {"codebook_size": 32, "hidden_size": 32, "max_position_embeddings": 512, "num_attention_heads": 2}
QWEN3 |= {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8, "intermediate_size": 64}
QWEN3 |= {"num_hidden_layers": 2, "num_quantizers": 4, "decoder_dim": 32}


def _qwen3_tts() -> Any:
    from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz import configuration_qwen3_tts_tokenizer_v2 as c
    from vllm_omni.model_executor.models.qwen3_tts.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as m

    rates = {"latent_dim": 32, "codebook_dim": 32, "upsample_rates": (4, 2), "upsampling_ratios": (2, 2)}
    config = c.Qwen3TTSTokenizerV2DecoderConfig(**QWEN3, **rates)
    config._attn_implementation = "sdpa"
    return _loud(m.Qwen3TTSTokenizerV2Decoder(config))


def qwen3_omni(**config: Any) -> Any:
    """Qwen3-Omni's Code2Wav; with no arguments it has the size of the released model."""
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig
    from vllm_omni.model_executor.models.qwen3_omni.qwen3_omni_code2wav import Qwen3OmniMoeCode2Wav

    made = Qwen3OmniMoeCode2WavConfig(**config)
    made._attn_implementation = "sdpa"
    # Its __init__ reads nothing else of a VllmConfig.
    return Qwen3OmniMoeCode2Wav(vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=made))).eval()


def _qwen3_wrapper(module: Any, sizes: Sequence[int]) -> Any:
    from vllm_omni.model_executor.models.qwen3_tts.cuda_graph_decoder_wrapper import CUDAGraphDecoderWrapper

    wrapper = CUDAGraphDecoderWrapper(module, capture_sizes=list(sizes), num_quantizers=4)
    wrapper.warmup(torch.device("cuda"))
    return wrapper


def _mimo() -> Any:
    from vllm_omni.model_executor.models.mimo_audio.config_mimo_audio import MiMoAudioTokenizerConfig
    from vllm_omni.model_executor.models.mimo_audio.modeling_audio_tokenizer import MiMoAudioTokenizer

    config = MiMoAudioTokenizerConfig(
        max_audio_seconds=4,
        stride_size=2,
        avg_pooler=2,
        d_model=32,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=64,
        decoder_kernel_size=3,
        decoder_stride_size=2,
        nfft=64,
        vocoder_dim=32,
        vocoder_intermediate_dim=64,
        vocoder_num_layers=2,
        n_mels=16,
        sampling_rate=2400,
        hop_length=16,
        window_size=64,
        num_quantizers=4,
        codebook_size=[32, 32, 32, 32],
        vocoder_attention_heads=2,
        vocoder_attn_window_size=[6, 3],
        encoder_skip_layer_id=None,
    )
    module = _loud(MiMoAudioTokenizer(config))
    for name, buffer in module.named_buffers():
        if name.endswith("embed"):  # codebooks that training fills: zero ones decode every code to the same vector
            buffer.normal_(0, 1.0)
    return module


def _mimo_eager(module: Any, codes: torch.Tensor) -> Tensors:
    """`decode_fixed` unpadded: `decode` needs flash-attn, which has no host kernels."""
    from vllm_omni.model_executor.models.mimo_audio.modeling_audio_tokenizer import TransformerVocos

    frames = codes.shape[-1]
    length = module._compute_vocoder_seq_len(frames)
    window = tuple(module.config.vocoder_attn_window_size)
    mask = TransformerVocos.build_vocoder_attn_mask(length, length, window, codes.device, torch.float32)
    return (module.decode_fixed(codes, frames, vocoder_attn_mask=mask),)


def _mimo_wrapper(module: Any, sizes: Sequence[int]) -> Any:
    from vllm_omni.model_executor.models.mimo_audio.cuda_graph_decoder_wrapper import CUDAGraphMiMoDecoderWrapper

    wrapper = CUDAGraphMiMoDecoderWrapper(module, capture_sizes=list(sizes))
    wrapper.warmup(torch.device("cuda"))
    return wrapper


def _bigvgan() -> Any:
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.bigvgan import BigVGAN
    from vllm_omni.model_executor.models.indextts2.s2mel.modules.commons import AttrDict

    rates = {"num_mels": 8, "upsample_initial_channel": 16, "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4]}
    blocks = {"resblock": "1", "resblock_kernel_sizes": [3, 7], "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]]}
    module = BigVGAN(AttrDict({**rates, **blocks, "activation": "snakebeta", "snake_logscale": True}))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3)
    module.remove_weight_norm()
    return module.eval()


def _bigvgan_wrapper(module: Any, sizes: Sequence[int]) -> Any:
    from vllm_omni.model_executor.models.indextts2.bigvgan_cuda_graph import CUDAGraphBigVGANWrapper

    wrapper = CUDAGraphBigVGANWrapper(module, capture_sizes=list(sizes))
    wrapper.warmup(torch.device("cuda"), torch.float32)
    return wrapper


def _hift() -> Any:
    from vllm_omni.model_executor.models.cosyvoice3.code2wav_core.hifigan import HiFTGenerator
    from vllm_omni.model_executor.models.glm_tts.vocoder import ConvRNNF0Predictor

    return HiFTGenerator(
        in_channels=8,
        base_channels=32,
        nb_harmonics=2,
        sampling_rate=24000,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        istft_params={"n_fft": 16, "hop_len": 4},
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3, 5]],
        source_resblock_kernel_sizes=[3, 3],
        source_resblock_dilation_sizes=[[1, 3, 5], [1, 3, 5]],
        f0_predictor=ConvRNNF0Predictor(num_class=1, in_channels=8, cond_channels=16),
    ).eval()


def _hift_wrapper(module: Any, sizes: Sequence[int]) -> Any:
    from vllm_omni.model_executor.models.minicpmo_4_5.cuda_graph_wrapper import HiFTGraphWrapper

    # MiniCPM-o's token2wav is a third-party package; this is what the wrapper reads of it.
    flow = SimpleNamespace(encoder=SimpleNamespace(), token_mel_ratio=1)
    token2wav = SimpleNamespace(hift=module, flow=flow, mel_cache_len=sizes[1] - sizes[0], source_cache_len=32)
    config = {"codec_chunk_frames": sizes[0] + 3, "codec_left_context_frames": 0}
    wrapper = HiFTGraphWrapper(token2wav, config, capture_batch_sizes=[1, 2])
    wrapper.capture()
    return wrapper


def _voxtral() -> Any:
    from vllm_omni.model_executor.models.voxtral_tts.voxtral_tts_audio_generation import FlowMatchingAudioTransformer

    transformer = {"input_dim": 32, "dim": 32, "n_layers": 2, "head_dim": 16, "hidden_dim": 64, "n_heads": 2}
    codebooks = {"semantic_codebook_size": 64, "acoustic_codebook_size": 16, "n_acoustic_codebook": 4}
    arguments = {**codebooks, "acoustic_transformer_args": {**transformer, "n_kv_heads": 1, "n_decoding_steps": 3}}
    return FlowMatchingAudioTransformer(arguments).eval()


def _voxtral_wrapper(module: Any, sizes: Sequence[int]) -> Any:
    from vllm_omni.model_executor.models.voxtral_tts import cuda_graph_acoustic_transformer_wrapper as w

    model = SimpleNamespace(acoustic_transformer=module)
    wrapper = w.CUDAGraphAcousticTransformerWrapper(model, capture_sizes=list(sizes))
    wrapper._warmup_and_capture(torch.device("cuda"), torch.float32, hidden_dim=32)
    return wrapper


UPSTREAM = (
    Upstream(
        "moss",
        _moss,
        inputs=lambda module, size: (_codes(4, size),),
        eager=lambda module, codes: (module.batch_decode([codes], num_quantizers=4).audio,),
        wrap=_moss_wrapper,
        call=lambda wrapper, codes: (wrapper.decode(codes).audio,),
        region=lambda module, codes: module._decode(codes[:, None], codes.new_full((1,), codes.shape[-1])),
    ),
    Upstream(
        "qwen3_tts",
        _qwen3_tts,
        inputs=lambda module, size: (_codes(4, size)[None],),
        eager=lambda module, codes: (module(codes),),
        wrap=_qwen3_wrapper,
        call=lambda wrapper, codes: (wrapper.decode(codes),),
    ),
    Upstream(
        "qwen3_omni",
        lambda: _loud(qwen3_omni(**QWEN3, upsample_rates=(8, 5, 4, 3), upsampling_ratios=(2, 2))),
        inputs=lambda module, size: (_codes(4, size)[None],),
        eager=lambda module, codes: (module(codes),),
        wrap=_qwen3_wrapper,
        call=lambda wrapper, codes: (wrapper.decode(codes),),
    ),
    Upstream(
        "mimo",
        _mimo,
        inputs=lambda module, size: (_codes(4, size),),
        eager=_mimo_eager,
        wrap=_mimo_wrapper,
        call=lambda wrapper, codes: (wrapper.decode(codes),),
    ),
    Upstream(
        "bigvgan",
        _bigvgan,
        inputs=lambda module, size: (torch.randn(1, 8, size),),
        eager=lambda module, mel: (module(mel),),
        wrap=_bigvgan_wrapper,
        call=lambda wrapper, mel: (wrapper(mel),),
    ),
    Upstream(
        "hift",
        _hift,
        inputs=lambda module, size: (torch.randn(1, 8, size), torch.zeros(1, 1, 0 if size == 4 else 32)),
        eager=lambda module, mel, cache: tuple(module.inference(mel, cache)),
        wrap=_hift_wrapper,
        call=lambda wrapper, mel, cache: tuple(wrapper.replay(mel, cache)),
        graphs=lambda wrapper: wrapper.graph,
        region=lambda module, mel, cache: module._inference_pre_istft(mel, cache),
    ),
    Upstream(
        "voxtral",
        _voxtral,
        inputs=lambda module, size: (torch.randn(size, 32), torch.full((size,), 1.2)),
        eager=lambda module, hidden, alpha: (module(llm_hidden=hidden, cfg_alpha=alpha),),
        wrap=_voxtral_wrapper,
        call=lambda wrapper, hidden, alpha: (
            torch.cat(wrapper(hidden, cfg_alpha=alpha)[1]["codes"]["audio"]).squeeze(1),
        ),
    ),
)
