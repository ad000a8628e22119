"""Small adapters around real modules, for the runner's tests, and how they are warmed up, made to fail and called."""

import threading

import torch

from runner import EXACT, PADDED, CapturedMinusPadding, GraphAdapter, GraphRunner, InputSpec, OutputSpec, PerRowLengths

N_VQ, HOP = 4, 6
BUCKETS = [{"batch": 1, "frames": 8}, {"batch": 2, "frames": 8}, {"batch": 4, "frames": 16}]


class CausalCodec(torch.nn.Module):
    """Embeds, then upsamples: codes [batch, n_vq, frames] -> audio [batch, 1, HOP · frames − 2]."""

    def __init__(self, device):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(32, 8, generator=generator).to(device)
        self.kernel = torch.randn(8, 1, HOP + 2, generator=generator).to(device)

    def forward(self, codes):
        hidden = self.table[codes].sum(1).transpose(1, 2)
        return torch.nn.functional.conv_transpose1d(hidden, self.kernel, stride=HOP)[..., 2:-2]


class CodecAdapter(GraphAdapter):
    inputs = (InputSpec("codes", torch.long, ("batch", "n_vq", "frames")),)
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), CapturedMinusPadding(HOP)),)
    axes = {"batch": PADDED, "frames": PADDED}  # noqa: RUF012

    def __init__(self, device):
        self.sizes = {"n_vq": N_VQ}
        self.module = CausalCodec(device)
        self.forwards = 0

    def forward(self, codes):
        self.forwards += 1
        return self.module(codes)


class RowsAdapter(CodecAdapter):
    """Each row cut to its own length, which a host input gives in frames."""

    inputs = (*CodecAdapter.inputs, InputSpec("lengths", torch.long, ("batch",), host=True))
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), PerRowLengths("lengths", scale=HOP)),)

    def forward(self, codes):
        return torch.nn.functional.pad(super().forward(codes), (0, 2))


class CountedRowsAdapter(CodecAdapter):
    """Each row's length in samples comes out of the module: HOP for every code of the first quantizer but 0."""

    outputs = (OutputSpec("wav", ("batch", 1, "samples"), PerRowLengths("samples")), OutputSpec("samples", ("batch",)))

    def forward(self, codes):
        wav = torch.nn.functional.pad(super().forward(codes), (0, 2))
        return {"wav": wav, "samples": (codes[:, 0] != 0).sum(-1) * HOP}


def codes(batch, frames, device="cuda", seed=0):
    return torch.randint(1, 32, (batch, N_VQ, frames), generator=torch.Generator().manual_seed(seed)).to(device)


class NoisyStreamAdapter(CodecAdapter):
    """Adds noise drawn on the device, and overwrites the first samples with those that the last chunk ended with."""

    inputs = (*CodecAdapter.inputs, InputSpec("last", torch.float32, ("batch", 1, "cached")))
    axes = {"batch": EXACT, "frames": EXACT, "cached": EXACT}  # noqa: RUF012

    def forward(self, codes, last):
        wav = super().forward(codes)
        wav = wav + torch.randn_like(wav)
        wav[..., : last.shape[-1]] = last
        return wav


def warm(adapter, device, buckets=BUCKETS, **options):
    runner = GraphRunner(adapter, buckets, device=device, **options)
    runner.warmup()
    return runner


def only_fallback(runner):
    (reason,) = runner.statistics.fallbacks
    return reason


def fail_at(adapter, batch, make_error):
    forward = adapter.forward

    def failing(tensor):
        if torch.cuda.is_current_stream_capturing() and tensor.shape[0] == batch:
            make_error(tensor)
        return forward(tensor)

    adapter.forward = failing


def raise_error(error):
    def make(_):
        raise error

    return make


def in_threads(serve, count):
    """`serve(0)` to `serve(count - 1)`, each in a thread of its own."""
    threads = [threading.Thread(target=serve, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
