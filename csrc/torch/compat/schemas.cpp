#include "csrc/torch/compat/schemas.h"

#include <algorithm>

namespace recoup::detail {
namespace {

// Whether a value of the type holds no tensors, or only tensors that recoup can find.
bool can_be_seen(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::QSchemeType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
    case c10::TypeKind::TupleType:
      return std::all_of(type->containedTypes().begin(), type->containedTypes().end(),
                         &can_be_seen);
    default:
      return false;
  }
}

}  // namespace

bool holds_tensor(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return holds_tensor(type->containedType(0));
    default:
      return false;
  }
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_annotated_view(const c10::FunctionSchema& schema) {
  bool any = false;
  for (const c10::Argument& result : schema.returns()) {
    if (!holds_tensor(result.type())) {
      continue;
    }
    any = true;
    if (result.alias_info() == nullptr || result.alias_info()->isWrite()) {
      return false;
    }
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (writes(argument)) {
      return false;
    }
  }
  return any;
}

bool reads_to_view(const c10::FunctionSchema& schema) {
  return is_annotated_view(schema) &&
         std::count_if(schema.arguments().begin(), schema.arguments().end(),
                       [](const c10::Argument& each) { return holds_tensor(each.type()); }) > 1;
}

bool returns_unseen(const c10::FunctionSchema& schema) {
  return schema.is_varret() ||
         !std::all_of(schema.returns().begin(), schema.returns().end(),
                      [](const c10::Argument& result) { return can_be_seen(result.type()); });
}

bool mentions_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (holds_tensor(argument.type())) {
      return true;
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    if (holds_tensor(result.type())) {
      return true;
    }
  }
  return schema.is_vararg() || schema.is_varret();
}

}  // namespace recoup::detail
