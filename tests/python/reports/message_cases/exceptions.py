"""Messages that no case triggers, each with the reason."""

import re
from dataclasses import dataclass

from message_cases.templates import Template


@dataclass(frozen=True)
class Exempt:
    """Some templates, and why no case says them."""

    file: str
    """A regular expression of the file's path."""
    text: str
    """And one of the template."""
    reason: str

    @property
    def is_message(self) -> bool:
        return self.reason is not _TEXT

    def covers(self, template: Template) -> bool:
        return bool(re.search(self.file, template.file) and re.search(self.text, template.text))


_GPU = "They need a GPU; `tests/python/gpu/test_fakegpu.py` triggers some on a test device."
_DISK = "They need a faulty disk, or a system without a disk."
_MACHINE = "They need another machine or another installation."
_BUG = "They need a defect in recoup, in a policy or in a planner: please report it."
_CPP = "They need a program in C++: Python cannot make such a recording, layout or budget."
_LARGE = "They need a recording of billions of records, or one that takes minutes to read."
_SLOW = "They need seconds of work: a compiler, a benchmark, or a long search."
_INSIDE = "recoup handles them itself: no program sees them."
_TIMES = "They depend on the times of ops; `tests/python/cli/test_suggest.py` triggers some."
_RARE = "They need a rare kind of program or recording."
_REASONS = "`tests/python/reports/test_reasons.py` has a program for each."
_ENDINGS = "They take seconds or end the process; tests in `tests/python/cli/` trigger them."
_TEXT = "They are not messages, but names and texts of pictures and files."

EXCEPTIONS = [
    Exempt(r"csrc/cuda/", "", _GPU),
    Exempt(
        r"csrc/torch/(api/captured_graph|gpu/(gpu_backend|gpus|cuda_decorator|install_cuda))\.cpp",
        "",
        _GPU,
    ),
    Exempt(r"csrc/torch/gpu/budget_allocator\.h", "", _GPU),
    Exempt(r"csrc/base/errors\.cpp", "tensors of its lists at once", _GPU),
    Exempt(r"recoup/gpus\.py", "CUDA", _GPU),
    Exempt(r"recoup/(scope|engine_options)\.py", "(are|is) for budgets of the CPU", _GPU),
    Exempt(
        r"recoup/_patching/outside\.py|csrc/torch/session/(budget_control|tensor_memory)\.cpp",
        "a CUDA graph (exists|is captured)",
        _GPU,
    ),
    Exempt(r"recoup/_memory/sizing\.py", "are free or reserved by PyTorch", _GPU),
    Exempt(r"csrc/offline/traces/traces\.cpp", "in use on the device before", _GPU),
    Exempt(
        r"csrc/(disk/|paging/|torch/storages/tensor_device\.cpp)",
        "temporary files|cannot be|cannot write|could not be written|cannot take|does not respond|"
        "the disk of|paged memory|a block|no access to it|system refuses copies",
        _DISK,
    ),
    Exempt(r"csrc/engine/program/user_requests\.cpp", "directories for temporary files", _DISK),
    Exempt(r"commands/doctor/probes\.py", "", _MACHINE),
    Exempt(
        r"commands/doctor/command\.py", "unsupported here: nothing|recoup doctor --json", _MACHINE
    ),
    Exempt(
        r"(commands/[\w/]+|integrations/__init__)\.py",
        "needs (transformers|matplotlib|SciPy|the package)",
        _MACHINE,
    ),
    Exempt(r"recoup/_memory/device_memory\.py", "it gives no reason", _MACHINE),
    Exempt(r"csrc/torch/compat/hook\.cpp", "RECOUP_HOOK", _MACHINE),
    Exempt(r"csrc/torch/session/evicted_access\.cpp", "an unknown function", _MACHINE),
    Exempt(r"_verify/investigation\.py", "while ops are observed", _SLOW),
    Exempt(
        r"_verify/(investigation|words)\.py",
        "when it was repeated|could not be observed|with other bits|were not compared"
        "|uninitialized memory|no op has written",
        _RARE,
    ),
    Exempt(
        r"_memory/watcher\.py|_reporting/report\.py",
        r"does not follow the machine's memory now|of tensors \+|of it the process",
        _MACHINE,
    ),
    Exempt(r"commands/compare/command\.py", "the tier", _TEXT),
    Exempt(r"recoup/stats\.py", "", _BUG),
    Exempt(r"bench/(against|rounds|real/runner)\.py", "bits|ended by|failed", _BUG),
    Exempt(r"csrc/offline/layout/check_layout\.cpp", "", _BUG),
    Exempt(r"csrc/python/compiled_module\.cpp", "", _BUG),
    Exempt(r"csrc/trace/validate\.cpp", "", _CPP),
    Exempt(r"csrc/engine/state/context\.cpp", "", _CPP),
    Exempt(r"csrc/offline/layout/prepare\.cpp", "capacity|node_limit|2\\^31", _CPP),
    Exempt(r"csrc/offline/layout/layout_csv\.cpp", "could not be read to the end", _DISK),
    Exempt(r"csrc/torch/storages/storages\.cpp", "reused for another tensor", _CPP),
    Exempt(r"csrc/torch/backend/host_backend\.cpp", "units of|memory of the machine", _CPP),
    Exempt(r"csrc/trace/validator(_plans)?\.cpp", "", _LARGE),
    Exempt(r"csrc/trace/reader\.cpp", "kernel steps|parts and operands", _LARGE),
    Exempt(r"recoup/_patching/compiled(_plan)?\.py", "", _SLOW),
    Exempt(r"csrc/torch/ops/compiled_frame\.cpp", "", _SLOW),
    Exempt(r"recoup/(commands/)?bench/", "", _SLOW),
    Exempt(
        r"commands/(run/(suggested|termination|summary)|cli)\.py",
        "to search again|recoup run: (--budget|SIGTERM)|interrupted|without recoup"
        "|compares no steps",
        _ENDINGS,
    ),
    Exempt(r"offline/in_place\.py|offline/lifetimes\.py|offline/scaled_trace\.py", "", _TEXT),
    Exempt(
        r"csrc/engine/(replay/replay|reclaim/room_measures)\.cpp",
        "this attempt|the bytes are free",
        _INSIDE,
    ),
    Exempt(r"csrc/engine/reclaim/room_resize\.cpp", "cannot be moved lie beyond", _CPP),
    Exempt(r"csrc/offline/layout/layout\.cpp", "no layout can take", _SLOW),
    Exempt(r"csrc/policy/registry\.cpp", "", _CPP),
    Exempt(r"commands/simulate/output\.py", "no policy can be below", _SLOW),
    Exempt(
        r"commands/suggest/tier_output\.py",
        "recomputation alone|step time|is enough|is not enough|more than",
        _TIMES,
    ),
    Exempt(
        r"recoup/(commands/suggest/\w+|offline/(suggest|batch)\w*)\.py",
        "costs differ|times slower|peak is|the margin is a batch of|Measure again|was stopped at"
        "| slow: above",
        _RARE,
    ),
    Exempt(
        r"csrc/engine/(program/(in_parts|user_requests)\.cpp|reclaim/handover\.h)",
        "one slice|dead, used|the block of an operand",
        _RARE,
    ),
    Exempt(
        r"picture\.py|recoup/(_reporting/page_data|words|rows)\.py|csrc/offline/python/trace_module\.cpp",
        "",
        _TEXT,
    ),
    Exempt(r"csrc/lineage/no_replay\.cpp", "", _REASONS),
    Exempt(r"commands/bottom_line\.py|commands/offline/order_arguments\.py", "", _TEXT),
]
