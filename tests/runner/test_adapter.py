"""Declarations that contradict themselves are refused before anything is built."""

import pytest
import torch

from runner import EXACT, PADDED, AdapterError, Custom, GraphAdapter, InputSpec, Nominal, OutputSpec, PerRowLengths

CODES = InputSpec("codes", torch.long, ("batch", "n_vq", "frames"))
LENGTHS = InputSpec("lengths", torch.long, ("batch",), host=True)
WAV = OutputSpec("wav", ("batch", 1, "samples"), Nominal(8))


def declare(inputs=(CODES,), outputs=(WAV,), axes=None):
    axes = {"batch": PADDED, "frames": PADDED} if axes is None else axes
    return type("Codec", (GraphAdapter,), {"inputs": inputs, "outputs": outputs, "axes": axes})


def rows(axes=("batch", 1, "samples"), lengths="lengths"):
    return OutputSpec("wav", axes, PerRowLengths(lengths))


@pytest.mark.parametrize(
    "declaration",
    [
        {},
        {"outputs": (OutputSpec("hidden", ("batch", "frames", "n_vq")),)},
        {"inputs": (CODES, LENGTHS), "outputs": (rows(),)},
        {"outputs": (rows(lengths="sizes"), OutputSpec("sizes", ("batch",)))},
        {"axes": {"frames": EXACT}, "outputs": (OutputSpec("wav", (1, "samples"), Custom(min)),)},
    ],
)
def test_a_coherent_declaration_is_accepted(declaration):
    declare(**declaration).validate_declaration()


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"inputs": ()}, "`inputs` must declare at least one"),
        ({"inputs": CODES}, "`inputs` must declare at least one"),
        ({"outputs": ()}, "`outputs` must declare at least one"),
        ({"axes": {}}, "`axes` must declare at least one"),
        ({"axes": {"batch": PADDED, "frames": "padded"}}, r"axes\['frames'\] must be PADDED or EXACT, found 'padded'"),
        ({"axes": {"rows": PADDED, "frames": PADDED}}, "'rows' is declared, no device input has it"),
        (
            {"inputs": (InputSpec("n", torch.long, ("batch",), host=True),), "axes": {"batch": PADDED}},
            "no device input",
        ),
        ({"inputs": (CODES, CODES)}, "names must be unique"),
        (
            {"outputs": (OutputSpec("wav", ("batch", 1, "samples")),)},
            r"undeclared contract: set `length` for \['samples'\]",
        ),
        ({"outputs": (OutputSpec("wav", ("batch", "frames"), Nominal(1)),)}, "one length axis, found .*, 0"),
        ({"outputs": (OutputSpec("wav", ("batch", "a", "b"), Nominal(1)),)}, "one length axis, found .*, 2"),
        ({"outputs": (OutputSpec("wav", ("batch", "n"), Nominal(1), of="frame"),)}, "of='frame' names no axis"),
        (
            {"outputs": (OutputSpec("wav", ("batch", "n"), 1920),)},
            "needs a LengthContract and one length axis, found 1920",
        ),
        ({"outputs": (rows(),)}, "lengths='lengths' is none of the tensors"),
        ({"inputs": (CODES, LENGTHS), "outputs": (rows(("batch", "samples", 1)),)}, "the length axis last"),
        ({"inputs": (CODES, LENGTHS), "outputs": (rows((1, "batch", "samples")),)}, "the row axis first"),
    ],
)
def test_a_contradiction_is_named(declaration, message):
    with pytest.raises(AdapterError, match="Codec: .*" + message):
        declare(**declaration).validate_declaration()


def test_a_fixed_axis_without_a_size_says_where_to_set_it():
    with pytest.raises(AdapterError, match=r"set self.sizes\['n_vq'\] in __init__"):
        declare()().fixed_sizes()


@pytest.mark.parametrize(
    ("codes", "word"),
    [
        ([[1]], "not_a_tensor"),
        (torch.zeros(4, 5, dtype=torch.long), "rank"),
        (torch.zeros(1, 4, 5), "dtype"),
        (torch.zeros(1, 4, 5, dtype=torch.long, device="meta"), "device"),
        (torch.zeros(1, 1, 5, dtype=torch.long), "fixed_size"),
        (torch.zeros(1, 4, 0, dtype=torch.long), "empty"),
        (torch.zeros(2, 4, 5, dtype=torch.long), "inconsistent_sizes"),
        (torch.zeros(1, 4, 5, dtype=torch.long), {"batch": 1, "frames": 5}),
    ],
)
def test_a_call_is_measured_or_its_contradiction_named(codes, word):
    adapter = declare(inputs=(CODES, LENGTHS), outputs=(rows(),))()
    adapter.sizes = {"n_vq": 4}
    assert adapter.measure({"codes": codes, "lengths": torch.tensor([5])}, torch.device("cpu")) == word


@pytest.mark.parametrize("result", [torch.zeros(1), (torch.zeros(1), 24000), []])
def test_forward_returns_one_tensor_an_output_and_nothing_else(result):
    adapter = declare(outputs=(WAV, OutputSpec("hidden", ("batch",))))()
    with pytest.raises(AdapterError, match=r"one an output: expected \[\[.batch., 1, .samples.\], \[.batch.\]\]"):
        adapter.named_outputs(result)
