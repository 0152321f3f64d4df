#pragma once
// Handlers of arithmetic ops, by name and type; null if an operation does not exist for a type.

#include "ptx_vm/decode.h"
#include "ptx_vm/numbers.h"

namespace flatshard::ptx_vm {

// `name` is for example "add", "mul.lo" or "mad.wide".
Handler integer_handler(std::string_view name, Type type);
// Handles f32 and f64.
Handler float_handler(std::string_view name, Type type, bool flushes, bool saturates, Rounding rounding);
// Handles f16, bf16 and pairs of them.
Handler half_handler(std::string_view name, Type type);

}  // namespace flatshard::ptx_vm
