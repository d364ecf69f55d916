#include "csrc/torch/ops/traits.h"

#include <ATen/Parallel.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/compat/list_ops.h"
#include "csrc/torch/compat/schemas.h"
#include "csrc/torch/ops/overrides.h"

namespace recoup::detail {
namespace {

using Names = std::unordered_set<std::string_view>;

// Ops that share a storage with an argument although their schemas do not say so.
const Names kUnannotatedViews = {"aten::_unsafe_view", "aten::unsafe_split",
                                 "aten::unsafe_split_with_sizes"};

// Ops that read only shapes and options of their tensor arguments. Their results are repeatable.
const Names kMetadataOnly = {"aten::zeros_like",
                             "aten::ones_like",
                             "aten::full_like",
                             "aten::new_zeros",
                             "aten::new_ones",
                             "aten::new_full",
                             "aten::empty_like",
                             "aten::new_empty",
                             "aten::rand_like",
                             "aten::randn_like",
                             "aten::randint_like",
                             "aten::is_same_size",
                             "aten::new_empty_strided",
                             "aten::sym_size",
                             "aten::sym_stride",
                             "aten::sym_numel",
                             "aten::sym_storage_offset",
                             "aten::is_contiguous",
                             "aten::stride",
                             "aten::size",
                             "aten::lift_fresh",
                             "aten::_nested_tensor_size",
                             "aten::_nested_tensor_strides",
                             "aten::_nested_tensor_storage_offsets"};

// Ops whose results hold uninitialized bytes: there is nothing to repeat.
const Names kUninitialized = {"aten::empty",
                              "aten::empty_like",
                              "aten::new_empty",
                              "aten::empty_strided",
                              "aten::empty_permuted",
                              "aten::new_empty_strided",
                              "aten::_empty_affine_quantized",
                              "aten::_empty_per_channel_affine_quantized",
                              "aten::empty_quantized"};

// Repeatable ops that leave parts of a result undefined.
const Names kPartlyUninitialized = {"aten::mkldnn_rnn_layer", "aten::_ctc_loss"};

// Note [Overwritable operands]
const Names kRowWise = {
    "aten::_log_softmax",      "aten::_log_softmax_backward_data",
    "aten::_softmax",          "aten::_softmax_backward_data",
    "aten::native_group_norm", "aten::native_group_norm_backward",
    "aten::native_layer_norm", "aten::native_layer_norm_backward",
};
// They are tagged, but run other ops in turn: those overwrite what a later one reads.
const Names kInSteps = {"aten::ldexp", "aten::masked_fill"};
// Ops that replace all of `self` without reading it.
const Names kOverwriters = {"aten::copy_",        "aten::fill_",      "aten::zero_",
                            "aten::normal_",      "aten::uniform_",   "aten::bernoulli_",
                            "aten::exponential_", "aten::random_",    "aten::geometric_",
                            "aten::cauchy_",      "aten::log_normal_"};

// Ops that change a storage, or which storage a tensor has, in ways that no replay reproduces.
const Names kRebinders = {"aten::resize_",  "aten::resize_as_",        "aten::set_",
                          "aten::set_data", "aten::resize_as_sparse_", "aten::_resize_output_"};

// Ops that keep their result or argument in a way that recoup cannot follow, or that read
// uninitialized memory: LAPACK's ?gelsy reads which columns it is to take first.
const Names kNotRepeatable = {"aten::linalg_lstsq", "aten::from_file", "aten::_efficientzerotensor",
                              "aten::_pin_memory", "aten::_cudnn_init_dropout_state"};

// Note [Order of threads]
// Where an index occurs twice, the result of these ops on the CPU depends on the order in which
// threads reach the elements: they add with atomic operations, or the last write remains. Two runs
// of plain PyTorch may differ, too. recoup runs the kernel with one thread, in the first run and in
// replays: each of plain PyTorch's results is allowed, and this one can be repeated. Masks do not
// name an element twice. The sweep of test_thread_order.py finds such ops.
const Names kThreadOrder = {
    "aten::_index_put_impl_", "aten::_unsafe_index_put", "aten::index_copy", "aten::index_copy_",
    "aten::index_put",        "aten::index_put_",        "aten::put",        "aten::put_"};

// Ops that the documentation of torch.use_deterministic_algorithms names.
const Names kUnlessDeterministic = {"aten::_adaptive_avg_pool2d_backward",
                                    "aten::_adaptive_avg_pool3d_backward",
                                    "aten::_ctc_loss_backward",
                                    "aten::_embedding_bag_dense_backward",
                                    "aten::_index_put_impl_",
                                    "aten::_scaled_dot_product_cudnn_attention_backward",
                                    "aten::_scaled_dot_product_efficient_attention_backward",
                                    "aten::_scaled_dot_product_flash_attention_backward",
                                    "aten::_unsafe_index_put",
                                    "aten::_upsample_bicubic2d_aa_backward",
                                    "aten::_upsample_bilinear2d_aa_backward",
                                    "aten::adaptive_max_pool2d_backward",
                                    "aten::adaptive_max_pool3d_backward",
                                    "aten::avg_pool3d_backward",
                                    "aten::bincount",
                                    "aten::cumsum",
                                    "aten::cumsum_",
                                    "aten::embedding_dense_backward",
                                    "aten::fractional_max_pool2d_backward",
                                    "aten::fractional_max_pool3d_backward",
                                    "aten::grid_sampler_2d_backward",
                                    "aten::grid_sampler_3d_backward",
                                    "aten::histc",
                                    "aten::index_add",
                                    "aten::index_add_",
                                    "aten::index_copy",
                                    "aten::index_copy_",
                                    "aten::index_put",
                                    "aten::index_put_",
                                    "aten::index_reduce",
                                    "aten::index_reduce_",
                                    "aten::kthvalue",
                                    "aten::max_pool2d_with_indices_backward",
                                    "aten::max_pool3d_with_indices_backward",
                                    "aten::max_unpool2d",
                                    "aten::max_unpool3d",
                                    "aten::median",
                                    "aten::nll_loss2d_forward",
                                    "aten::put",
                                    "aten::put_",
                                    "aten::reflection_pad1d_backward",
                                    "aten::reflection_pad2d_backward",
                                    "aten::reflection_pad3d_backward",
                                    "aten::replication_pad1d_backward",
                                    "aten::replication_pad2d_backward",
                                    "aten::replication_pad3d_backward",
                                    "aten::scatter",
                                    "aten::scatter_",
                                    "aten::scatter_add",
                                    "aten::scatter_add_",
                                    "aten::scatter_reduce",
                                    "aten::scatter_reduce_",
                                    "aten::upsample_bicubic2d_backward",
                                    "aten::upsample_bilinear2d_backward",
                                    "aten::upsample_linear1d_backward",
                                    "aten::upsample_trilinear3d_backward"};

const Names kUnlessDeterministicCudnn = {"aten::convolution_backward", "aten::_cudnn_rnn_backward",
                                         "aten::convolution", "aten::cudnn_convolution_transpose"};

VariesOnGpu varies_on_gpu(const std::string& base) {
  return kUnlessDeterministic.contains(base)        ? VariesOnGpu::kUnlessDeterministic
         : kUnlessDeterministicCudnn.contains(base) ? VariesOnGpu::kUnlessDeterministicCudnn
                                                    : VariesOnGpu::kNo;
}

// Collectives, whose results depend on other processes. FSDP's own ops are not among them: they
// copy a collective's data in and out, before and after it, and are opaque like any custom op.
bool is_collective(std::string_view base) { return base.starts_with("c10d::"); }
// Functional collectives consist of collectives and of a table of works that were not waited for.
// yet.
bool is_functional_collective(std::string_view base) {
  return base.starts_with("_c10d_functional");
}

// The schemas of c10d do not say what an op writes, but names do: an op whose name ends in an
// underscore writes its tensors, except those named input... A test runs all of them.
std::uint64_t written_by_collective(const c10::FunctionSchema& schema) {
  std::uint64_t written = 0;
  for (std::size_t i = 0; i < schema.arguments().size() && schema.name().back() == '_'; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (holds_tensor(argument.type()) && !argument.name().starts_with("input")) {
      written |= std::uint64_t{1} << i;
    }
  }
  return written;
}

// recoup receives whole composite ops when autograd is off; their inner ops are recorded instead.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         std::none_of(std::begin(kBackendTypes), std::end(kBackendTypes),
                      [&op](const BackendType& backend) {
                        return op.hasKernelForDispatchKey(backend.dense);
                      }) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// Writes that the schema does not declare, of the overloads "" and "out".
struct HiddenWrites {
  std::string_view op;
  std::uint64_t writes;        // bit i: argument i
  std::uint64_t left_out = 0;  // as in OpTraits
  std::int8_t condition_arg = -1;
};

constexpr std::uint64_t bit(int argument) { return std::uint64_t{1} << argument; }

constexpr HiddenWrites kHiddenWrites[] = {
    // running_mean and running_var, if `training`
    {"aten::native_batch_norm", bit(3) | bit(4), bit(3) | bit(4), 5},
    {"aten::_native_batch_norm_legit", bit(3) | bit(4), bit(3) | bit(4), 5},
    {"aten::cudnn_batch_norm", bit(3) | bit(4), bit(3) | bit(4), 5},
    {"aten::_batch_norm_with_update", bit(3) | bit(4), bit(3) | bit(4)},
    {"aten::batch_norm_update_stats", bit(1) | bit(2), bit(1) | bit(2)},
    {"aten::mkldnn_rnn_layer_backward", bit(22)},  // workspace
    {"aten::_cudnn_rnn", bit(15)},                 // dropout_state: the state of its random numbers
    {"aten::_cudnn_rnn_backward", bit(20)},        // reserve
    {"aten::_saturate_weight_to_fp16", bit(0)},
    {"aten::fbgemm_pack_gemm_matrix_fp16", bit(0)},
};

void add_hidden_writes(OpTraits& traits, const c10::FunctionSchema& schema) {
  if (schema.overload_name() != "" && schema.overload_name() != "out") {
    return;
  }
  for (const HiddenWrites& hidden : kHiddenWrites) {
    if (hidden.op == schema.name()) {
      traits.writes |= hidden.writes;
      traits.left_out = hidden.left_out;
      traits.condition_arg = hidden.condition_arg;
    }
  }
}

// Whether all indices in the list are masks.
bool are_masks(const c10::IValue& indices) {
  if (!indices.isList()) {
    return false;
  }
  const auto elements = indices.toListRef();
  return std::all_of(elements.begin(), elements.end(), [](const c10::IValue& index) {
    return !index.isTensor() || !index.toTensor().defined() ||
           index.toTensor().scalar_type() == c10::ScalarType::Bool ||
           index.toTensor().scalar_type() == c10::ScalarType::Byte;
  });
}

bool takes_generator(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = type->containedType(0);
  }
  return type->kind() == c10::TypeKind::GeneratorType;
}

std::int8_t generator_slot(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto found = std::find_if(arguments.begin(), arguments.end(), &takes_generator);
  return found == arguments.end() ? std::int8_t{-1}
                                  : static_cast<std::int8_t>(found - arguments.begin());
}

// Whether `other` is `schema` with one additional argument, at the slot.
bool adds_argument(const c10::FunctionSchema& schema, const c10::FunctionSchema& other,
                   std::int8_t slot) {
  auto arguments = other.arguments();
  arguments.erase(arguments.begin() + slot);
  return arguments == schema.arguments() && other.returns() == schema.returns();
}

void find_generator(OpTraits& traits, const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  traits.gated = true;
  traits.generator_slot = generator_slot(schema);
  if (traits.generator_slot >= 0) {
    return;
  }
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name != schema.name()) {
      continue;
    }
    const auto other = dispatcher.findSchema(name);
    const std::int8_t slot = other ? generator_slot(other->schema()) : std::int8_t{-1};
    if (slot >= 0 && adds_argument(schema, other->schema(), slot)) {
      traits.generator_slot = slot;
      traits.with_generator = other;
      return;
    }
  }
}

// The other traits except `pointers` are known.
OpKind kind_of_op(const c10::OperatorHandle& op, OpTraits& traits, bool allowed) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& base = schema.name();
  if (const auto pointers = pointers_of(traits.name)) {
    traits.pointers = *pointers;
    return *pointers == Pointers::kAny ? OpKind::kOpaque : OpKind::kReader;
  }
  if (base.starts_with("profiler::") || !mentions_tensors(schema) || is_composite(op)) {
    return OpKind::kTransparent;
  }
  if (base == "aten::_lazy_clone") {
    return OpKind::kLazyClone;
  }
  if (base == "aten::record_stream") {
    return OpKind::kOtherStream;
  }
  if (!traits.own_kernel) {
    return allowed || traits.compiled ? OpKind::kRecorded : OpKind::kOpaque;
  }
  if (is_list_loop(op)) {
    return OpKind::kListLoop;
  }
  if (base == "aten::lift_fresh" || reads_to_view(schema)) {
    // torch.tensor calls lift_fresh on the tensor that it has filled by pointer. From here on the
    // content is a non-recomputable value with an owner, so it can be moved.
    return OpKind::kRecorded;
  }
  const bool view = is_annotated_view(schema) || kUnannotatedViews.contains(base) ||
                    (op.hasTag(at::Tag::inplace_view) && !kRebinders.contains(base));
  return view ? OpKind::kView : OpKind::kRecorded;
}

}  // namespace

std::vector<NamedOp> known_names() {
  std::vector<NamedOp> known;
  const auto add = [&](const char* table, const Names& names) {
    for (const std::string_view name : names) {
      known.push_back({.table = table, .name = std::string(name), .arguments = {}});
    }
  };
  add("unannotated views", kUnannotatedViews);
  add("metadata only", kMetadataOnly);
  add("uninitialized", kUninitialized);
  add("partly uninitialized", kPartlyUninitialized);
  add("overwriters", kOverwriters);
  add("row-wise", kRowWise);
  add("in steps", kInSteps);
  add("rebinders", kRebinders);
  add("not repeatable", kNotRepeatable);
  add("thread order", kThreadOrder);
  add("unless deterministic", kUnlessDeterministic);
  add("unless deterministic cuDNN", kUnlessDeterministicCudnn);
  for (const HiddenWrites& each : kHiddenWrites) {
    NamedOp& row = known.emplace_back(NamedOp{"hidden writes", std::string(each.op), {}});
    for (int i = 0; i < 64; ++i) {
      if ((each.writes & bit(i)) != 0) {
        row.arguments.push_back(i);
      }
    }
  }
  for (const PointerReader& each : pointer_readers()) {
    known.push_back({.table = "pointer readers", .name = std::string(each.op), .arguments = {}});
  }
  for (const std::string_view name : ops_in_parts()) {
    known.push_back({.table = "in parts", .name = std::string(name), .arguments = {}});
  }
  return known;
}

bool is_atens(std::string_view name) { return name.starts_with("aten::"); }

OpTraits traits_of(const c10::OperatorHandle& op, bool allowed, Reach reach) {
  const c10::FunctionSchema& schema = op.schema();
  OpTraits traits;
  const std::string& base = schema.name();
  traits.overridden = is_atens(base) && is_overridden(op, reach);
  const bool own = traits.own_kernel = is_atens(base) && !traits.overridden;
  traits.name = schema.overload_name().empty() ? base : base + "." + schema.overload_name();
  for (std::size_t i = 0; i < schema.arguments().size() && i < 64; ++i) {
    if (writes(schema.arguments()[i])) {
      traits.writes |= std::uint64_t{1} << i;
      traits.outs |= own && schema.arguments()[i].is_out() ? std::uint64_t{1} << i : 0;
    }
  }
  add_hidden_writes(traits, schema);
  const bool rebinds = kRebinders.contains(base);
  traits.collective = is_collective(base);
  if (traits.collective) {
    traits.writes |= written_by_collective(schema);
  }
  traits.waits = base == "_c10d_functional::wait_tensor";
  traits.captures = returns_unseen(schema) && !traits.collective;
  traits.compiled = base == "recoup::compiled";
  traits.foreign =
      !own && !allowed && !traits.compiled &&
      (traits.captures || traits.collective || is_functional_collective(base) || !is_of_torch(op));
  traits.random = op.hasTag(at::Tag::nondeterministic_seeded);
  if (traits.random && own) {
    find_generator(traits, op);
  }
  traits.metadata_only = kMetadataOnly.contains(base);
  traits.overwrites_self = kOverwriters.contains(base);
  traits.thread_order = own && kThreadOrder.contains(base);
  traits.varies_on_gpu = varies_on_gpu(base);
  if (base == "aten::convolution") {
    traits.varies_if = 6;  // transposed: then it computes another convolution's backward
  }
  traits.verifiable = !kPartlyUninitialized.contains(base);
  traits.matrix_product =
      base.find("mm") != std::string::npos || base.find("conv") != std::string::npos ||
      base.find("linear") != std::string::npos || base.find("attention") != std::string::npos ||
      base.find("rnn") != std::string::npos;
  traits.uninitialized = own && kUninitialized.contains(base);
  traits.repeatable = (own || allowed || traits.compiled) && !traits.uninitialized &&
                      !kNotRepeatable.contains(base) && !rebinds;
  traits.overwritable = own && !schema.is_mutable() && !kInSteps.contains(base) && !traits.random &&
                        !schema.argumentIndexWithName("memory_format") &&
                        (op.hasTag(at::Tag::pointwise) || kRowWise.contains(base));
  const auto in_parts = ops_in_parts();
  traits.in_parts =
      own && std::find(in_parts.begin(), in_parts.end(), traits.name) != in_parts.end();
  traits.kind = kind_of_op(op, traits, allowed);
  return traits;
}

bool needs_one_thread(const OpTraits& traits, const torch::jit::Stack& stack, std::size_t base) {
  return traits.thread_order && at::get_num_threads() > 1 &&
         !at::globalContext().deterministicAlgorithms() && !are_masks(stack[base + 1]);
}

bool may_vary(const OpTraits& traits, const torch::jit::Stack& stack, std::size_t base) {
  if (traits.varies_if >= 0 && !stack[base + static_cast<std::size_t>(traits.varies_if)].toBool()) {
    return false;
  }
  const at::Context& context = at::globalContext();
  const bool deterministic =
      context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  return traits.varies_on_gpu != VariesOnGpu::kNo && !deterministic &&
         !(traits.varies_on_gpu == VariesOnGpu::kUnlessDeterministicCudnn &&
           context.deterministicCuDNN());
}

}  // namespace recoup::detail
