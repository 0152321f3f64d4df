#include <unordered_map>

#include "ptx_vm/arithmetic.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/numbers.h"

namespace flatshard::ptx_vm {
namespace {

template <class T>
double exact(T x) {
  return static_cast<double>(to_float(x));
}

struct Add {
  template <class T>
  T operator()(T a, T b) {
    return sum_to<T>(exact(a), exact(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) {
    return sum_to<T>(exact(a), -exact(b));
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) {
    return from_float<T>(to_float(a) * to_float(b));
  }  // exact in float
};
struct Fma {
  template <class T>
  T operator()(T a, T b, T c) {
    return sum_to<T>(exact(a) * exact(b), exact(c));
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) {
    return from_float<T>(min_number(to_float(a), to_float(b)));
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) {
    return from_float<T>(max_number(to_float(a), to_float(b)));
  }
};
struct Neg {
  template <class T>
  T operator()(T a) {
    return {static_cast<uint16_t>(a.bits ^ 0x8000)};
  }
};
struct Abs {
  template <class T>
  T operator()(T a) {
    return {static_cast<uint16_t>(a.bits & 0x7fff)};
  }
};
struct Ex2 {
  template <class T>
  T operator()(T a) {
    return from_float<T>(static_cast<float>(std::exp2(exact(a))));
  }
};
struct Tanh {
  template <class T>
  T operator()(T a) {
    return from_float<T>(static_cast<float>(std::tanh(exact(a))));
  }
};

// A pair is two elements of one register, the first in its low half.
template <class T>
struct Pair {
  T low, high;
};
template <class F>
struct OnPairs {
  template <class T, class... More>
  Pair<T> operator()(Pair<T> a, More... more) {
    return {F{}(a.low, more.low...), F{}(a.high, more.high...)};
  }
};

template <class T, class Wrap>
Handler handler_of(std::string_view name, Wrap) {
  const auto one = []<class F>(F) { return &unary<T, T, typename Wrap::template On<F>>; };
  const auto two = []<class F>(F) { return &binary<T, T, typename Wrap::template On<F>>; };
  static const std::unordered_map<std::string_view, Handler> all{
      {"add", two(Add{})},   {"sub", two(Sub{})},
      {"mul", two(Mul{})},   {"min", two(Min{})},
      {"max", two(Max{})},   {"neg", one(Neg{})},
      {"abs", one(Abs{})},   {"ex2", one(Ex2{})},
      {"tanh", one(Tanh{})}, {"fma", &ternary<T, T, typename Wrap::template On<Fma>>}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

struct Single {
  template <class F>
  using On = F;
};
struct Paired {
  template <class F>
  using On = OnPairs<F>;
};

}  // namespace

Handler half_handler(std::string_view name, Type type) {
  switch (type.kind) {
    case Type::Kind::f:
      return type.bytes == 2 ? handler_of<Half>(name, Single{}) : nullptr;
    case Type::Kind::bf:
      return handler_of<BFloat>(name, Single{});
    case Type::Kind::f_x2:
      return handler_of<Pair<Half>>(name, Paired{});
    case Type::Kind::bf_x2:
      return handler_of<Pair<BFloat>>(name, Paired{});
    default:
      return nullptr;
  }
}

}  // namespace flatshard::ptx_vm
