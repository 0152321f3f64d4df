// add sub mul mad fma div rem min max neg abs and the special functions: the modifiers of each, and its
// handler by type.

#include "ptx_vm/arithmetic.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

// Result, then operands, all of one type.
void emit(Decoder& d, Handler handler, Type result, Type type, size_t operands) {
  if (!handler) d.wrong("does not exist for this type");
  Op op;
  op.run = handler;
  op.slot[0] = d.result(0, result);
  for (size_t i = 1; i <= operands; ++i) op.slot[i] = d.read(i, i == 3 ? result : type);
  d.emit(op);
}

Handler real_handler(Decoder& d, std::string_view name, Type type) {
  const bool flushes = d.take("ftz"), saturates = d.take("sat");
  const std::string_view mode = d.take_any({"rn", "rz", "rm", "rp", "approx", "full"});
  const Rounding rounding = mode == "rz"   ? Rounding::zero
                            : mode == "rm" ? Rounding::down
                            : mode == "rp" ? Rounding::up
                                           : Rounding::nearest;
  if (Handler half = half_handler(name, type))
    return flushes || saturates || rounding != Rounding::nearest ? nullptr : half;
  return float_handler(name, type, flushes, saturates, rounding);
}

template <size_t kOperands>
void arithmetic(Decoder& d) {
  const Type type = d.take_type();
  if (type.is_integer()) return emit(d, integer_handler(d.base(), type), type, type, kOperands);
  emit(d, real_handler(d, d.base(), type), type, type, kOperands);
}

template <size_t kOperands>
void multiply(Decoder& d) {
  const Type type = d.take_type();
  if (!type.is_integer()) {
    return emit(d, real_handler(d, kOperands == 3 ? "fma" : "mul", type), type, type, kOperands);
  }
  const std::string_view part = d.take_any({"lo", "hi", "wide"});
  if (part.empty()) d.wrong("must be .lo, .hi or .wide");
  const Type result = part == "wide" ? Type{type.kind, type.bytes * 2} : type;
  emit(d, integer_handler(str(d.base(), '.', part), type), result, type, kOperands);
}

}  // namespace

void add_arithmetic_ops(OpTable& table) {
  for (const auto name : {"add", "sub", "div", "rem", "min", "max", "copysign"}) table[name] = arithmetic<2>;
  for (const auto name : {"neg", "abs", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"})
    table[name] = arithmetic<1>;
  table["fma"] = arithmetic<3>;
  table["mul"] = multiply<2>;
  table["mad"] = multiply<3>;
}

}  // namespace flatshard::ptx_vm
