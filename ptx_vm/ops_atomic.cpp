// atom and red: lanes in order, each atomically

#include <bit>
#include <cstring>

#include "ptx_vm/access.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/numbers.h"
#include "ptx_vm/reduce.h"

namespace flatshard::ptx_vm {
namespace {

// slots: result (or nowhere), operands, address in slot[kBase].
constexpr size_t kBase = 4;

struct Add {
  template <class T>
  T operator()(T a, T b, T) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    else
      return canonical(a + b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b, T) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b, T) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b, T) {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b, T) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b, T) {
    return a ^ b;
  }
};
struct Exchange {
  template <class T>
  T operator()(T, T b, T) {
    return b;
  }
};
struct CompareAndSwap {
  template <class T>
  T operator()(T a, T b, T c) {
    return a == b ? c : a;
  }
};
struct Increment {
  template <class T>
  T operator()(T a, T b, T) {
    return a >= b ? T{0} : a + 1;
  }
};
struct Decrement {
  template <class T>
  T operator()(T a, T b, T) {
    return a == 0 || a > b ? b : a - 1;
  }
};

void check_float_add(Warp& warp, const Op& op) {
  const int lane = std::countr_zero(warp.active);
  const uint64_t address = warp.lanes<uint64_t>(op.slot[kBase])[lane] + static_cast<uint64_t>(op.immediate);
  if (op.space == Space::global || (op.space == Space::generic && !(address & kWindowMask)))
    check_float_add(warp, lane, address);
}

template <class T, class F>
void atomic(Warp& warp, const Op& op) {
  if constexpr (std::is_floating_point_v<T> && std::is_same_v<F, Add>) check_float_add(warp, op);
  Places places;
  resolve(warp, op, op.slot[kBase], sizeof(T), Access::update, &places);
  unsigned char** data = places.data;
  T* result = op.slot[0] == kNowhere ? nullptr : warp.lanes<T>(op.slot[0]);
  const T *b = warp.lanes<T>(op.slot[1]), *c = warp.lanes<T>(op.slot[2]);
  for_each_lane(warp.active, [&](int lane) {
    T before;
    std::memcpy(&before, data[lane], sizeof(T));
    const T after = F{}(before, b[lane], c[lane]);
    std::memcpy(data[lane], &after, sizeof(T));
    if (result) result[lane] = before;
    if (std::memcmp(&before, &after, sizeof(T)) != 0) ++warp.block->launch->progress;  // a poll is none
  });
}

template <class T>
Handler integer_handler(std::string_view name) {
  if (name == "add") return atomic<T, Add>;
  if (name == "min") return atomic<T, Min>;
  if (name == "max") return atomic<T, Max>;
  if (name == "and") return atomic<T, And>;
  if (name == "or") return atomic<T, Or>;
  if (name == "xor") return atomic<T, Xor>;
  if (name == "exch") return atomic<T, Exchange>;
  if (name == "cas") return atomic<T, CompareAndSwap>;
  if constexpr (std::is_same_v<T, uint32_t>) {
    if (name == "inc") return atomic<T, Increment>;
    if (name == "dec") return atomic<T, Decrement>;
  }
  return nullptr;
}

Handler handler_of(std::string_view name, Type type) {
  if (type.is_f32()) return name == "add" ? atomic<float, Add> : nullptr;
  if (type.is_f64()) return name == "add" ? atomic<double, Add> : nullptr;
  if (!type.is_integer() || type.bytes < 4) return nullptr;
  if (type.bytes == 4)
    return type.is_signed() ? integer_handler<int32_t>(name) : integer_handler<uint32_t>(name);
  return type.is_signed() ? integer_handler<int64_t>(name) : integer_handler<uint64_t>(name);
}

void decode_atomic(Decoder& d) {
  const bool has_result = d.base() == "atom";
  const std::string_view order = d.take_any({"relaxed", "acquire", "release", "acq_rel"});
  d.take_any({"cta", "cluster", "gpu", "sys"});
  const bool is_shared = d.take("shared") || d.take("shared::cta");
  const bool is_cluster = !is_shared && d.take("shared::cluster");
  const bool is_global = !is_shared && !is_cluster && d.take("global");
  const std::string_view name =
      d.take_any({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  const Type type = d.take_type();
  Op op;
  op.run = handler_of(name, type);
  if (!op.run) d.wrong("does not exist for this type");
  op.is_strong = true;
  op.acquires = order.starts_with("acq");
  op.releases = order == "release" || order == "acq_rel";
  const size_t first = has_result ? 1 : 0;
  op.slot[0] = has_result ? d.result(0, type) : kNowhere;
  op.slot[1] = op.slot[2] = d.read(first + 1, type);
  if (name == "cas") op.slot[2] = d.read(first + 2, type);
  d.address(op, first, kBase,
            is_shared    ? Space::shared
            : is_cluster ? Space::cluster
            : is_global  ? Space::global
                         : Space::generic);
  d.emit(op);
}

}  // namespace

void add_atomic_ops(OpTable& table) { table["atom"] = table["red"] = decode_atomic; }

}  // namespace flatshard::ptx_vm
