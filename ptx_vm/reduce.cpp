#include "ptx_vm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ptx_vm/grid.h"
#include "ptx_vm/numbers.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

struct Add {
  template <class T>
  T operator()(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    else if constexpr (sizeof(T) == 2)
      return from_float<T>(to_float(a) + to_float(b));
    else
      return canonical(a + b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) {
    if constexpr (sizeof(T) == 2)
      return to_float(b) < to_float(a) ? b : a;
    else
      return std::min(a, b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) {
    if constexpr (sizeof(T) == 2)
      return to_float(a) < to_float(b) ? b : a;
    else
      return std::max(a, b);
  }
};
template <class F>
struct Bitwise {
  template <class T>
  T operator()(T a, T b) {
    return static_cast<T>(F{}(a, b));
  }
};
struct Increment {
  uint32_t operator()(uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; }
};
struct Decrement {
  uint32_t operator()(uint32_t a, uint32_t b) { return a == 0 || a > b ? b : a - 1; }
};

template <class T, class F>
void combine(unsigned char* to, const unsigned char* from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, to + at, sizeof(T));
    std::memcpy(&b, from + at, sizeof(T));
    a = F{}(a, b);
    std::memcpy(to + at, &a, sizeof(T));
  }
}

template <class T>
Combine of_integer(std::string_view operation) {
  if (operation == "add") return combine<T, Add>;
  if (operation == "min") return combine<T, Min>;
  if (operation == "max") return combine<T, Max>;
  if (operation == "and") return combine<T, Bitwise<std::bit_and<>>>;
  if (operation == "or") return combine<T, Bitwise<std::bit_or<>>>;
  if (operation == "xor") return combine<T, Bitwise<std::bit_xor<>>>;
  if constexpr (std::is_same_v<T, uint32_t>) {
    if (operation == "inc") return combine<T, Increment>;
    if (operation == "dec") return combine<T, Decrement>;
  }
  return nullptr;
}

template <class T>
Combine of_half(std::string_view operation) {
  if (operation == "add") return combine<T, Add>;
  if (operation == "min") return combine<T, Min>;
  if (operation == "max") return combine<T, Max>;
  return nullptr;
}

}  // namespace

Combine combine_of(std::string_view operation, Element element) {
  switch (element) {
    case Element::u32:
      return of_integer<uint32_t>(operation);
    case Element::s32:
      return of_integer<int32_t>(operation);
    case Element::u64:
      return of_integer<uint64_t>(operation);
    case Element::s64:
      return of_integer<int64_t>(operation);
    case Element::f16:
      return of_half<Half>(operation);
    case Element::bf16:
      return of_half<BFloat>(operation);
    case Element::f32:
      return operation == "add" ? combine<float, Add> : nullptr;
    case Element::f64:
      return operation == "add" ? combine<double, Add> : nullptr;
    default:
      return nullptr;
  }
}

bool may_add_floats(const Warp& warp) {
  const std::vector<std::string>& may = options().may_add_floats;
  return std::any_of(may.begin(), may.end(), [&](const std::string& name) {
    return name == "*" || warp.block->kernel().name.find(name) != std::string::npos;
  });
}

void check_float_add(const Warp& warp, int lane, uint64_t address) {
  if (!may_add_floats(warp))
    report(FindingKind::float_atomic, warp, lane,
           str("adds a float to ", describe_address(warp, address),
               " in an undefined order; PTX_VM_FLOAT_ATOMICS permits it"));
}

}  // namespace flatshard::ptx_vm
