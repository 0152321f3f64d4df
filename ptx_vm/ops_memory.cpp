// ld st prefetch: any space, vectors of 2 and 4, values that are narrower than their registers

#include <bit>
#include <cstring>

#include "ptx_vm/access.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/ops_bulk.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr size_t kBase = 4;  // the slot of the address; the elements of a vector come before it

// The same value for every lane.
template <class T, class Register>
void load_for_all(Warp& warp, const Op& op, const unsigned char* data) {
  for (uint32_t e = 0; e < op.count; ++e) {
    T value;
    std::memcpy(&value, data + e * sizeof(T), sizeof(T));
    write_lanes<Register>(warp, op.slot[e], [&](int) { return static_cast<Register>(value); });
  }
}

// Parameters exist before the launch: only their bounds are checked.
template <class T, class Register>
void load_parameter(Warp& warp, const Op& op) {
  load_for_all<T, Register>(warp, op, warp.block->launch->parameters.data() + op.immediate);
}

// result[lane] = element e of the vector of kCount that the lane reads; vectors are contiguous.
template <class T, class Register, uint32_t kCount>
void load_side_by_side(Warp& warp, const Op& op, const unsigned char* data) {
  T values[kLanes * kCount];
  std::memcpy(values, data, sizeof(values));
  for (uint32_t e = 0; e < kCount; ++e) {
    Register* result = warp.lanes<Register>(op.slot[e]);
#pragma GCC ivdep
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      result[lane] = static_cast<Register>(values[lane * kCount + e]);
  }
}

template <class T, class Register, uint32_t kCount>
void store_side_by_side(Warp& warp, const Op& op, unsigned char* data) {
  T values[kLanes * kCount];
  for (uint32_t e = 0; e < kCount; ++e) {
    const Register* source = warp.lanes<Register>(op.slot[e]);
#pragma GCC ivdep
    for (uint32_t lane = 0; lane < kLanes; ++lane) values[lane * kCount + e] = static_cast<T>(source[lane]);
  }
  std::memcpy(data, values, sizeof(values));
}

template <class T, class Register, uint32_t kCount>
void load_vectors(Warp& warp, const Op& op, const Places& places) {
  if (places.pattern == Places::Pattern::side_by_side)
    return load_side_by_side<T, Register, kCount>(warp, op, places.data[0]);
  Register* result[kCount];
  for (uint32_t e = 0; e < kCount; ++e) result[e] = warp.lanes<Register>(op.slot[e]);
  const auto load_lane = [&](int lane) {
    T values[kCount];
    std::memcpy(values, places.data[lane], sizeof(values));
    for (uint32_t e = 0; e < kCount; ++e) result[e][lane] = static_cast<Register>(values[e]);
  };
  if (warp.active != kAllLanes) return for_each_lane(warp.active, load_lane);
  for (int lane = 0; lane < kLanes; ++lane) load_lane(lane);
}

template <class T, class Register>
void load(Warp& warp, const Op& op) {
  Places places;
  resolve(warp, op, op.slot[kBase], static_cast<uint32_t>(sizeof(T)) * op.count, Access::read, &places);
  if (places.pattern == Places::Pattern::all_at_one)
    return load_for_all<T, Register>(warp, op, places.data[0]);
  if (op.count == 1) return load_vectors<T, Register, 1>(warp, op, places);
  if (op.count == 2) return load_vectors<T, Register, 2>(warp, op, places);
  load_vectors<T, Register, 4>(warp, op, places);
}

// An ld.acquire that reads the same value again is a poll in vain.
template <class T, class Register>
void load_acquire(Warp& warp, const Op& op) {
  load<T, Register>(warp, op);
  const int lane = std::countr_zero(warp.active);
  const uint64_t from = warp.lanes<uint64_t>(op.slot[kBase])[lane] + static_cast<uint64_t>(op.immediate),
                 value = warp.lanes<Register>(op.slot[0])[lane];
  warp.polls = warp.acquired_from == from && warp.acquired == value;
  warp.acquired_from = from, warp.acquired = value, warp.polled = 0;
}

// Lanes that write different values to one address are an error; equal values are not.
template <class T, class Register>
void check_agreement(Warp& warp, const Op& op, const Places& places) {
  for (uint32_t e = 0; e < op.count; ++e)
    for_each_lane(warp.active, [&](int lane) {
      const T value = static_cast<T>(warp.lanes<Register>(op.slot[e])[lane]);
      if (std::memcmp(places.data[lane] + e * sizeof(T), &value, sizeof(T)) != 0)
        report(FindingKind::colliding_writes, warp, lane,
               "another lane writes a different value to the same address");
    });
}

template <class T, class Register>
void store(Warp& warp, const Op& op) {
  Places places;
  resolve(warp, op, op.slot[kBase], static_cast<uint32_t>(sizeof(T)) * op.count, Access::write, &places);
  if (places.pattern == Places::Pattern::side_by_side) {
    if (op.count == 1) return store_side_by_side<T, Register, 1>(warp, op, places.data[0]);
    if (op.count == 2) return store_side_by_side<T, Register, 2>(warp, op, places.data[0]);
    return store_side_by_side<T, Register, 4>(warp, op, places.data[0]);
  }
  for (uint32_t e = 0; e < op.count; ++e) {
    const Register* source = warp.lanes<Register>(op.slot[e]);
    for_each_lane(warp.active, [&](int lane) {
      const T value = static_cast<T>(source[lane]);
      std::memcpy(places.data[lane] + e * sizeof(T), &value, sizeof(T));
    });
  }
  if (places.collides) check_agreement<T, Register>(warp, op, places);
}

struct Handlers {
  Handler load = nullptr, load_parameter = nullptr, load_acquire = nullptr, store = nullptr;
};

template <class T, class Register>
Handlers handlers_for() {
  if constexpr (sizeof(T) > sizeof(Register))
    return {};
  else
    return {load<T, Register>, load_parameter<T, Register>, load_acquire<T, Register>, store<T, Register>};
}

template <class T>
Handlers in_register(uint32_t bytes) {
  return bytes == 2   ? handlers_for<T, uint16_t>()
         : bytes == 4 ? handlers_for<T, uint32_t>()
                      : handlers_for<T, uint64_t>();
}

Handlers handlers_of(Type type, uint32_t register_bytes) {
  switch (type.bytes) {
    case 1:
      return type.is_signed() ? in_register<int8_t>(register_bytes) : in_register<uint8_t>(register_bytes);
    case 2:
      return type.is_signed() ? in_register<int16_t>(register_bytes) : in_register<uint16_t>(register_bytes);
    case 4:
      return type.is_signed() ? in_register<int32_t>(register_bytes) : in_register<uint32_t>(register_bytes);
    case 8:
      return in_register<uint64_t>(register_bytes);
    default:
      return {};
  }
}

Space take_space(Decoder& d) {
  if (d.take("global") || d.take("const")) return Space::global;
  if (d.take("shared") || d.take("shared::cta")) return Space::shared;
  if (d.take("shared::cluster")) return Space::cluster;
  if (d.take("local")) return Space::local;
  if (d.take("param")) return Space::param;
  return Space::generic;
}

// Hints change nothing here; an access with a scope is a strong one.
void take_semantics(Decoder& d, Op& op) {
  d.take_any({"nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt"});
  d.take_prefix("L1::");
  d.take_prefix("L2::");
  d.take("weak");
  d.take_any({"cta", "cluster", "gpu", "sys"});
  const std::string_view order = d.take_any({"volatile", "relaxed", "acquire", "release"});
  op.is_strong = !order.empty();
  op.acquires = order == "acquire";
  op.releases = order == "release";
}

void decode_access(Decoder& d, bool is_load) {
  Op op;
  const Space space = take_space(d);
  take_semantics(d, op);
  const std::string_view vector = d.take_any({"v2", "v4"});
  const Type type = d.take_type();
  const std::vector<Operand> parts = d.elements(is_load ? 0 : 1);
  if (parts.size() != (vector == "v2" ? 2 : vector == "v4" ? 4 : 1))
    d.wrong("the vector has a different size");
  op.count = static_cast<uint8_t>(parts.size());
  uint32_t width = register_bytes(type);
  for (const Operand& part : parts) width = std::max(width, d.width_of(part.name));
  for (size_t e = 0; e < parts.size(); ++e)
    op.slot[e] = is_load ? d.register_of(parts[e], width) : d.read(parts[e], {Type::Kind::bits, width});
  d.address(op, is_load ? 1 : 0, kBase, space);
  const Handlers handlers = handlers_of(type, width);
  const Operand& address = d.operand(is_load ? 1 : 0);
  const bool is_fixed = d.width_of(address.name) == 0;  // a symbol, not a register
  op.run = is_load ? (op.space == Space::param && is_fixed ? handlers.load_parameter : handlers.load)
                   : handlers.store;
  if (is_load && op.acquires && space == Space::global) {
    op.flow = Flow::poll;
    op.run = handlers.load_acquire;
  }
  if (!op.run) d.wrong("does not exist for this type");
  d.emit(op);
}

void prefetch(Decoder& d) {
  if (d.take("tensormap")) return decode_map_prefetch(d);
  d.take_rest();
}

}  // namespace

void add_memory_ops(OpTable& table) {
  table["ld"] = table["ldu"] = [](Decoder& d) { decode_access(d, true); };
  table["st"] = [](Decoder& d) { decode_access(d, false); };
  table["prefetch"] = table["prefetchu"] = prefetch;
}

}  // namespace flatshard::ptx_vm
