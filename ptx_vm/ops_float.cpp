#include <bit>
#include <unordered_map>

#include "ptx_vm/arithmetic.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/numbers.h"

namespace flatshard::ptx_vm {
namespace {

// Approximate functions are computed in double and rounded: closer than the GPU's own, within its bounds.
template <double (*function)(double)>
struct Rounded {
  template <class T>
  T operator()(T a) {
    return static_cast<T>(function(static_cast<double>(a)));
  }
};
double inverse_square_root(double x) { return 1.0 / std::sqrt(x); }
// The GPU's errs by up to 2^-11 of the result, more than a result of 16 bits hides: this one errs as much.
double coarse_tanh(double x) {
  constexpr uint64_t kDropped = (uint64_t{1} << (52 - 11)) - 1;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(std::tanh(x)) & ~kDropped);
}

struct Add {
  template <class T>
  T operator()(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) {
    return a / b;
  }
};
struct Fma {
  template <class T>
  T operator()(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Sqrt {
  template <class T>
  T operator()(T a) {
    return std::sqrt(a);
  }
};
struct Rcp {
  template <class T>
  T operator()(T a) {
    return T{1} / a;
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) {
    return min_number(a, b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) {
    return max_number(a, b);
  }
};
// Signs are bits: NaN keeps its own.
struct Neg {
  template <class T>
  T operator()(T a) {
    return -a;
  }
};
struct Abs {
  template <class T>
  T operator()(T a) {
    return std::abs(a);
  }
};
struct CopySign {
  template <class T>
  T operator()(T sign, T magnitude) {
    return std::copysign(magnitude, sign);
  }
};

// The result of arithmetic: one NaN, and flushed or saturated to [0, 1] where the modifiers say so.
template <class F, bool kFlush, bool kSaturate>
struct Finished {
  template <class... T>
  auto operator()(T... x) {
    auto r = canonical(kFlush ? F{}(flush(x)...) : F{}(x...));
    if constexpr (kFlush) r = flush(r);
    if constexpr (kSaturate) r = r > 0 ? (r < 1 ? r : decltype(r){1}) : decltype(r){0};
    return r;
  }
  template <class T>
  static T flush(T x) {
    if constexpr (std::is_same_v<T, float>) return flushed(x);
    return x;
  }
};

// a * b + c of floats, rounded towards zero, down or up from the exact value.
template <Rounding kRounding>
struct DirectedFma {
  float operator()(float a, float b, float c) {
    const double product = static_cast<double>(a) * static_cast<double>(b), addend = c;  // both exact
    const double sum = product + addend, part = sum - product;
    const double rest = (product - (sum - part)) + (addend - part);
    return directed(static_cast<float>(sum), sum, rest, kRounding);
  }
};

Handler directed_fma(Rounding rounding) {
  switch (rounding) {
    case Rounding::zero:
      return ternary<float, float, Finished<DirectedFma<Rounding::zero>, false, false>>;
    case Rounding::down:
      return ternary<float, float, Finished<DirectedFma<Rounding::down>, false, false>>;
    case Rounding::up:
      return ternary<float, float, Finished<DirectedFma<Rounding::up>, false, false>>;
    default:
      return nullptr;
  }
}

template <class T, bool kFlush, bool kSaturate>
Handler handler_of(std::string_view name) {
  const auto two = []<class F>(F) { return &binary<T, T, Finished<F, kFlush, kSaturate>>; };
  const auto one = []<class F>(F) { return &unary<T, T, Finished<F, kFlush, kSaturate>>; };
  static const std::unordered_map<std::string_view, Handler> all{
      {"add", two(Add{})},
      {"sub", two(Sub{})},
      {"mul", two(Mul{})},
      {"div", two(Div{})},
      {"min", two(Min{})},
      {"max", two(Max{})},
      {"fma", &ternary<T, T, Finished<Fma, kFlush, kSaturate>>},
      {"sqrt", one(Sqrt{})},
      {"rcp", one(Rcp{})},
      {"rsqrt", one(Rounded<inverse_square_root>{})},
      {"ex2", one(Rounded<power_of_two>{})},
      {"lg2", one(Rounded<std::log2>{})},
      {"sin", one(Rounded<std::sin>{})},
      {"cos", one(Rounded<std::cos>{})},
      {"tanh", one(Rounded<coarse_tanh>{})},
      {"neg", &unary<T, T, Neg>},
      {"abs", &unary<T, T, Abs>},
      {"copysign", &binary<T, T, CopySign>}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace

Handler float_handler(std::string_view name, Type type, bool flushes, bool saturates, Rounding rounding) {
  if (rounding != Rounding::nearest)
    return name == "fma" && type.is_f32() && !flushes && !saturates ? directed_fma(rounding) : nullptr;
  if (type.is_f64()) return flushes || saturates ? nullptr : handler_of<double, false, false>(name);
  if (!type.is_f32()) return nullptr;
  if (flushes) return saturates ? handler_of<float, true, true>(name) : handler_of<float, true, false>(name);
  return saturates ? handler_of<float, false, true>(name) : handler_of<float, false, false>(name);
}

}  // namespace flatshard::ptx_vm
