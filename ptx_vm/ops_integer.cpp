#include <unordered_map>

#include "ptx_vm/arithmetic.h"
#include "ptx_vm/lanes.h"

namespace flatshard::ptx_vm {
namespace {

// Arithmetic wraps, so it is done unsigned; 16 bits are widened first, lest int overflows.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
template <class T>
using Double = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
Wrapping<T> wrap(T x) {
  return static_cast<Wrapping<T>>(x);
}

struct Add {
  template <class T>
  T operator()(T a, T b) {
    return static_cast<T>(wrap(a) + wrap(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) {
    return static_cast<T>(wrap(a) - wrap(b));
  }
};
struct MulLow {
  template <class T>
  T operator()(T a, T b) {
    return static_cast<T>(wrap(a) * wrap(b));
  }
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) {
    return static_cast<T>((Double<T>(a) * Double<T>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T>
  Double<T> operator()(T a, T b) {
    return Double<T>(a) * Double<T>(b);
  }
};
template <class Mul>
struct Mad {
  template <class T, class R>
  R operator()(T a, T b, R c) {
    return static_cast<R>(wrap<R>(static_cast<R>(Mul{}(a, b))) + wrap(c));
  }
};
// Division by zero gives all ones on the GPU; the least number by -1 wraps.
struct Div {
  template <class T>
  T operator()(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(Wrapping<T>{0} - wrap(a));
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) {
    return a < b ? b : a;
  }
};
struct Neg {
  template <class T>
  T operator()(T a) {
    return static_cast<T>(Wrapping<T>{0} - wrap(a));
  }
};
struct Abs {
  template <class T>
  T operator()(T a) {
    return a < 0 ? Neg{}(a) : a;
  }
};

template <class T>
Handler handler_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Handler> all = [] {
    std::unordered_map<std::string_view, Handler> handlers{{"add", binary<T, T, Add>},
                                                           {"sub", binary<T, T, Sub>},
                                                           {"mul.lo", binary<T, T, MulLow>},
                                                           {"mul.hi", binary<T, T, MulHigh>},
                                                           {"mad.lo", ternary<T, T, Mad<MulLow>>},
                                                           {"mad.hi", ternary<T, T, Mad<MulHigh>>},
                                                           {"div", binary<T, T, Div>},
                                                           {"rem", binary<T, T, Rem>},
                                                           {"min", binary<T, T, Min>},
                                                           {"max", binary<T, T, Max>},
                                                           {"neg", unary<T, T, Neg>},
                                                           {"abs", unary<T, T, Abs>}};
    if constexpr (sizeof(T) < 8) {
      handlers["mul.wide"] = binary<Double<T>, T, MulWide>;
      handlers["mad.wide"] = ternary<Double<T>, T, Mad<MulWide>>;
    }
    return handlers;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace

Handler integer_handler(std::string_view name, Type type) {
  switch (type.bytes) {
    case 2:
      return type.is_signed() ? handler_of<int16_t>(name) : handler_of<uint16_t>(name);
    case 4:
      return type.is_signed() ? handler_of<int32_t>(name) : handler_of<uint32_t>(name);
    case 8:
      return type.is_signed() ? handler_of<int64_t>(name) : handler_of<uint64_t>(name);
    default:
      return nullptr;
  }
}

}  // namespace flatshard::ptx_vm
