"""Settings of the process and of a thread that kernels read: all are recorded, and restored raw."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from packaging.version import Version

import recoup
from differential import Hand, both
from recoup import _C
from torch_versions import RUNNING


@pytest.fixture(autouse=True)
def settings_may_be_set() -> Iterator[None]:
    """PyTorch's database of operators freezes the settings in the process that imports it."""
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():
        yield


CONTEXT = Path(torch.__file__).parent / "include" / "ATen" / "Context.h"
C: Any = torch._C
BACKENDS: Any = torch.backends

# ---- completeness, by the header of at::Context ----

# Plain members that are not recorded.
LEFT_OUT = {
    "init_": "which devices were started: a kernel that runs has started its own",
    "prev_allocator_ptr_": "of mobile builds",
}

CONSTANT = "says nothing that can be set"
SAYS_OTHERWISE = "reads what other getters read"
NOT_HERE = "has no setter in a build without its device"

# How to change the result of each getter from Python, or why that is impossible here.
GETTERS: dict[str, tuple[Callable[[Any], Any], Any, Any] | str] = {
    "defaultGenerator": "random numbers are recorded by op",
    "getAcceleratorHooksInterface": CONSTANT,
    "getDeviceFromPtr": CONSTANT,
    "isPinnedPtr": CONSTANT,
    "getPinnedMemoryAllocator": CONSTANT,
    "isDefaultMobileCPUAllocatorSet": "of mobile builds",
    "userEnabledCuDNN": (C._set_cudnn_enabled, True, False),
    "userEnabledMkldnn": (C._set_mkldnn_enabled, True, False),
    "benchmarkCuDNN": (C._set_cudnn_benchmark, False, True),
    "benchmarkLimitCuDNN": NOT_HERE,
    "immediateMiopen": (C._set_miopen_immediate, False, True),
    "deterministicCuDNN": (C._set_cudnn_deterministic, False, True),
    "deterministicMkldnn": (C._set_mkldnn_deterministic, False, True),
    "userEnabledNNPACK": (C._set_nnpack_enabled, True, False),
    "sDPPriorityOrder": (C._set_sdp_priority_order, [1, 2, 0, 3, 4], [0, 2, 1, 3, 4]),
    "userEnabledFlashSDP": (C._set_sdp_use_flash, True, False),
    "userEnabledFA3SDP": (C._set_sdp_use_fa3, False, True),
    "userEnabledMemEfficientSDP": (C._set_sdp_use_mem_efficient, True, False),
    "userEnabledMathSDP": (C._set_sdp_use_math, True, False),
    "userEnabledCuDNNSDP": (C._set_sdp_use_cudnn, True, False),
    "userEnabledOverrideableSDP": (C._set_sdp_use_overrideable, True, False),
    "allowFP16BF16ReductionMathSDP": (C._set_math_sdp_allow_fp16_bf16_reduction, False, True),
    "linalgPreferredBackend": NOT_HERE,
    "blasPreferredBackend": NOT_HERE,
    "getROCmFAPreferredBackend": NOT_HERE,
    "deterministicAlgorithms": (C._set_deterministic_algorithms, False, True),
    "deterministicAlgorithmsWarnOnly": (
        lambda warn: C._set_deterministic_algorithms(False, warn_only=warn),
        False,
        True,
    ),
    "deterministicFillUninitializedMemory": (
        C._set_deterministic_fill_uninitialized_memory,
        True,
        False,
    ),
    "allowTF32CuDNN": (C._set_cudnn_allow_tf32, True, False),
    "allowTF32OneDNN": NOT_HERE,
    "allowTF32CuBLAS": SAYS_OTHERWISE,
    "float32MatmulPrecision": (torch.set_float32_matmul_precision, "highest", "medium"),
    "float32Precision": (
        lambda value: setattr(BACKENDS, "fp32_precision", value),
        "none",
        "bf16",
    ),
    "allowFP16ReductionCuBLAS": (
        lambda on: C._set_cublas_allow_fp16_reduced_precision_reduction(on, True),
        True,
        False,
    ),
    "allowBF16ReductionCuBLAS": (
        lambda on: C._set_cublas_allow_bf16_reduced_precision_reduction(on, True),
        True,
        False,
    ),
    "allowFP16AccumulationCuBLAS": (C._set_cublas_allow_fp16_accumulation, False, True),
    "rocmAllowGroupGemmCk": CONSTANT,
    "_SMCarveout_EXPERIMENTAL": (C._set_sm_carveout_experimental, None, 4),
    "qEngine": (
        C._set_qengine,
        C._get_qengine(),
        next(each for each in C._supported_qengines() if each not in (0, C._get_qengine())),
    ),
    "checkSparseTensorInvariants": (C._set_check_sparse_tensor_invariants, False, True),
    "releaseWeightsWhenPrepacking": NOT_HERE,
    "areVmapFallbackWarningsEnabled": (
        C._debug_only_display_vmap_fallback_warnings,
        False,
        True,
    ),
    "warnOnAccumulateGradStreamMismatch": (
        C._set_warn_on_accumulate_grad_stream_mismatch,
        True,
        False,
    ),
    "allowFP16ReductionCPU": NOT_HERE,
}
if RUNNING >= Version("2.13"):
    GETTERS["blasDefaultBackend"] = CONSTANT
    GETTERS["cudnnDepthwiseKernel"] = (C._set_cudnn_depthwise_kernel, "auto", "native")
    GETTERS["overrideStaleCaptureStream"] = (C._set_override_stale_capture_stream, False, True)
if RUNNING >= Version("2.14"):
    GETTERS["preferCublasltGroupedGemm"] = (C._set_cublaslt_prefer_grouped_gemm, False, True)
if RUNNING >= Version("2.15"):
    GETTERS["userEnabledFA4SDP"] = (C._set_sdp_use_fa4, False, True)
    GETTERS["allowNativeAot"] = (C._set_native_aot_enabled, True, False)
    GETTERS["maskUnconditionalNativeAot"] = (C._set_native_aot_unconditional_masked, False, True)


def context_class() -> tuple[str, str]:
    """The public and the private part of the class, without comments and preprocessor lines."""
    text = CONTEXT.read_text()
    text = text[text.index("class TORCH_API Context {") : text.index("TORCH_API Context& global")]
    text = re.sub(r"//.*|^#.*", "", text, flags=re.MULTILINE)
    public, private = text.split("private:")
    return public, private


def test_every_member_is_recorded() -> None:
    # Read as bytes from the first of these members to the map: see Note [Raw settings].
    members = []
    for declaration in context_class()[1].split(";"):
        found = re.match(r"\s*(?!using)\w[^={]*?(\w+)\s*(?:[={]|$)", declaration)
        if found:
            members.append(found[1])
    assert len(members) > 30, members
    begin, end = members.index("enabled_cudnn"), members.index("fp32_precision")
    assert [*members[:begin], *members[end + 1 :]] == list(LEFT_OUT)


PLAIN = (
    r"bool|int|CuBLASReductionOption|CuDNNDepthwiseKernel|Float32MatmulPrecision"
    r"|at::(LinalgBackend|BlasBackend|ROCmFABackend)|std::atomic<at::QEngine>"
    r"|std::array<at::SDPBackend, at::num_sdp_backends>|std::optional<(bool|int32_t)>"
)


def test_recorded_settings_are_plain_data() -> None:
    """Numbers and enumerations: their bytes are compared, copied and restored."""
    private = context_class()[1]
    recorded = private[private.index("bool enabled_cudnn") : private.index("using Key")]
    types = re.findall(r"^  (\S[^=;{]*?) \w+(?: =|;)", recorded, flags=re.MULTILINE)
    assert len(types) > 30
    assert [kind for kind in types if not re.fullmatch(PLAIN, kind)] == []


def test_every_getter_is_known() -> None:
    public = context_class()[0]
    methods = re.findall(r"^  (static )?[\w:<>&*, ]+?[\s&*](\w+)\(", public, flags=re.MULTILINE)
    getters = {
        name
        for static, name in methods
        if not (static or name.isupper() or re.match(r"_?(set|unset|lazyInit)[A-Z_]", name))
    }
    assert getters == set(GETTERS)


# ---- each setting is recorded and restored ----


@contextmanager
def changed(setter: Callable[[Any], Any], usual: Any, other: Any) -> Iterator[None]:
    setter(other)
    try:
        yield
    finally:
        setter(usual)


def flush_denormal(on: bool) -> None:
    torch.set_flush_denormal(on)


OF_THREAD: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "default dtype": (torch.set_default_dtype, torch.float32, torch.float64),
    "threads": (torch.set_num_threads, torch.get_num_threads(), torch.get_num_threads() + 1),
    "denormals": (flush_denormal, False, True),
    "autocast": (lambda on: torch.set_autocast_enabled("cpu", on), False, True),
    "autocast dtype": (
        lambda dtype: torch.set_autocast_dtype("cpu", dtype),
        torch.bfloat16,
        torch.float16,
    ),
    "autocast cache": (torch.set_autocast_cache_enabled, True, False),
    "grad": (C._set_grad_enabled, True, False),
    "forward grad": (C._set_fwd_grad_enabled, True, False),
}
SETTABLE = OF_THREAD | {name: how for name, how in GETTERS.items() if not isinstance(how, str)}


@pytest.mark.parametrize("name", SETTABLE)
def test_each_setting_is_recorded(name: str) -> None:
    setter, usual, other = SETTABLE[name]
    setter(usual)
    before = _C.settings_number()
    with changed(setter, usual, other):
        assert _C.settings_number() != before
    assert _C.settings_number() == before


@pytest.mark.parametrize("name", SETTABLE)
def test_a_replay_leaves_each_setting_unchanged(name: str) -> None:
    setter, usual, other = SETTABLE[name]
    setter(usual)
    usually = _C.settings_number()
    with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
        with changed(setter, usual, other):
            x = torch.linspace(-1, 1, 1024, dtype=torch.float32)
            inside = _C.settings_number()
        y = x * 2
        assert recoup.evict(x) and recoup.evict(y)
        with changed(setter, usual, other):
            y.sum()
            assert _C.settings_number() == inside
        assert recoup.evict(x)
        x.sum()
        assert _C.settings_number() == usually


def test_inference_mode_is_recorded() -> None:
    before = _C.settings_number()
    with torch.inference_mode():
        assert _C.settings_number() != before
    assert _C.settings_number() == before


def test_a_replay_leaves_the_defaults_of_new_threads_unchanged() -> None:
    usual = torch.get_num_threads()
    seen = []
    try:
        with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
            torch.set_num_threads(2)
            x = torch.linspace(-1, 1, 1024)
            torch.set_num_threads(1)
            for work in (
                lambda: torch.set_num_threads(3),
                lambda: None,
                lambda: seen.append(torch.get_num_threads()),
            ):
                assert recoup.evict(x)
                x.sum()
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            assert torch.get_num_threads() == 1
        assert seen == [3]
    finally:
        torch.set_num_threads(usual)


# ---- programs that change settings give the bits of plain PyTorch ----

PRECISIONS: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
    (
        "legacy",
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    (
        "generic",
        lambda: setattr(BACKENDS, "fp32_precision", "bf16"),
        lambda: setattr(BACKENDS, "fp32_precision", "none"),
    ),
    (
        "of oneDNN",
        lambda: setattr(BACKENDS.mkldnn, "fp32_precision", "bf16"),
        lambda: setattr(BACKENDS.mkldnn, "fp32_precision", "none"),
    ),
]


def encode() -> torch.Tensor:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    with torch.no_grad():
        return torch.nn.TransformerEncoder(layer, 1)(torch.randn(4, 32, 64))


MULTIPLIERS: dict[str, Callable[[], torch.Tensor]] = {
    "mm": lambda: torch.randn(128, 128) @ torch.randn(128, 128),
    "cdist": lambda: torch.cdist(
        torch.randn(128, 64), torch.randn(128, 64), compute_mode="use_mm_for_euclid_dist"
    ),
    "matrix_exp": lambda: torch.matrix_exp(torch.randn(64, 64) / 8),
    "matrix_power": lambda: torch.linalg.matrix_power(torch.randn(64, 64) / 8, 5),
    "pinv": lambda: torch.linalg.pinv(torch.randn(64, 48)),
    "einsum": lambda: torch.einsum("ij,kj->ik", torch.randn(128, 64), torch.randn(128, 64)),
    "conv2d": lambda: F.conv2d(torch.randn(2, 16, 32, 32), torch.randn(16, 16, 3, 3)),
    "lstm": lambda: torch.nn.LSTM(64, 64)(torch.randn(8, 8, 64))[0],
    "encoder": encode,
}


@pytest.mark.parametrize("name", MULTIPLIERS)
@pytest.mark.parametrize("how,lower,usual", PRECISIONS, ids=[p[0] for p in PRECISIONS])
def test_a_replay_has_the_precision_of_the_first_run(
    name: str, how: str, lower: Callable[[], Any], usual: Callable[[], Any]
) -> None:
    def program(hand: Hand) -> object:
        with ExitStack() as stack:
            stack.callback(usual)
            lower()
            low = MULTIPLIERS[name]()
            usual()
            high = MULTIPLIERS[name]()
            hand.try_evict(low, high)
            hand.see(low.clone())
            lower()
            again = MULTIPLIERS[name]()
            hand.try_evict(low, high, again)
            return low.clone(), high.clone(), again

    assert both(program, evict_after_op=True).replays > 2


FACTORIES: dict[str, Callable[[], torch.Tensor]] = {
    "arange": lambda: torch.arange(4096) / 1000,
    "arange of floats": lambda: torch.arange(0.0, 4096.0),
    "linspace": lambda: torch.linspace(0, 1, 4096),
    "logspace": lambda: torch.logspace(0, 1, 4096),
    "full": lambda: torch.full((4096,), 1 / 3),
    "ones": lambda: torch.ones(4096),
    "zeros": lambda: torch.zeros(4096),
    "eye": lambda: torch.eye(64),
    "rand": lambda: torch.rand(4096),
    "randn": lambda: torch.randn(4096),
    "hann_window": lambda: torch.hann_window(4096),
    "mean of integers": lambda: torch.ones(64, 64, dtype=torch.int64) / 3,
    "sqrt of integers": lambda: torch.ones(4096, dtype=torch.int64).mul(2).sqrt(),
    "complex": lambda: torch.full((4096,), 1j / 3),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_replay_has_the_default_dtype_of_the_first_run(name: str) -> None:
    def program(hand: Hand) -> object:
        made = []
        try:
            for dtype in (torch.bfloat16, torch.float64, torch.float16, torch.float32):
                torch.set_default_dtype(dtype)
                made.append(FACTORIES[name]())
                hand.try_evict(*made)
                hand.see([x.clone() for x in made])
                assert torch.get_default_dtype() == dtype
        finally:
            torch.set_default_dtype(torch.float32)
        return made

    assert both(program, evict_after_op=True).replays > 4


def test_a_replay_leaves_the_inheritance_of_settings_unchanged() -> None:
    def product() -> torch.Tensor:
        return torch.ones(256, 256).mul(1 / 3) @ torch.ones(256, 256).mul(1 / 7)

    places = (BACKENDS, BACKENDS.mkldnn, BACKENDS.mkldnn.matmul)

    def program(hand: Hand) -> object:
        for place in places:  # other tests may leave a value set that is inherited by default
            place.fp32_precision = "none"
        made = [product()]
        try:
            for place, value in (
                (BACKENDS, "ieee"),
                (BACKENDS, "bf16"),
                (BACKENDS.mkldnn, "ieee"),
                (BACKENDS.mkldnn, "none"),
                (BACKENDS.mkldnn.matmul, "bf16"),
                (BACKENDS.mkldnn.matmul, "none"),
                (BACKENDS, "none"),
            ):
                place.fp32_precision = value
                made.append(product())
                hand.try_evict(*made)
                hand.see([x.clone() for x in made])
                made.append(product())
        finally:
            for place in places:
                place.fp32_precision = "none"
        return made

    assert both(program, evict_after_op=True).replays > 10
