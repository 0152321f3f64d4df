// setp selp set slct

#include "ptx_vm/decode.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/numbers.h"

namespace flatshard::ptx_vm {
namespace {

enum class Compare { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
enum class Combine : uint8_t { none, with_and, with_or, with_xor };

template <class T>
T number(T x) {
  return x;
}
float number(Half x) { return to_float(x); }
float number(BFloat x) { return to_float(x); }

// The u forms hold for NaN too; integers do not have them.
template <Compare kCompare, class N>
bool holds(N a, N b) {
  switch (kCompare) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a < b || a > b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    case Compare::ge:
      return a >= b;
    case Compare::equ:
      return !(a < b || a > b);
    case Compare::neu:
      return !(a == b);
    case Compare::ltu:
      return !(a >= b);
    case Compare::leu:
      return !(a > b);
    case Compare::gtu:
      return !(a <= b);
    case Compare::geu:
      return !(a < b);
    case Compare::num:
      return a == a && b == b;
    case Compare::nan:
      return !(a == a && b == b);
  }
}

template <Compare kCompare, class T>
uint32_t mask_of(const Warp& warp, const Op& op) {
  const T *a = warp.lanes<T>(op.slot[2]), *b = warp.lanes<T>(op.slot[3]);
  uint32_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    mask |= static_cast<uint32_t>(holds<kCompare>(number(a[lane]), number(b[lane]))) << lane;
  return mask;
}

uint32_t combined(const Warp& warp, const Op& op, uint32_t mask) {
  const uint32_t c = op.count ? warp.predicate(op.slot[4]) : 0;
  switch (static_cast<Combine>(op.count)) {
    case Combine::with_and:
      return mask & c;
    case Combine::with_or:
      return mask | c;
    case Combine::with_xor:
      return mask ^ c;
    default:
      return mask;
  }
}

template <Compare kCompare, class T>
void set_predicate(Warp& warp, const Op& op) {
  const uint32_t mask = mask_of<kCompare, T>(warp, op);
  const uint32_t second = op.slot[1] == kNowhere ? 0 : combined(warp, op, ~mask);
  warp.set_predicate(op.slot[0], combined(warp, op, mask));
  if (op.slot[1] != kNowhere) warp.set_predicate(op.slot[1], second);
}

// As set.u32 (all ones) or set.f32 (1.0).
template <Compare kCompare, class T>
void set_register(Warp& warp, const Op& op) {
  const uint32_t mask = combined(warp, op, mask_of<kCompare, T>(warp, op));
  const auto yes = static_cast<uint32_t>(op.immediate);
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) { return mask >> l & 1 ? yes : 0; });
}

struct Handlers {
  Handler predicate, value;
};

template <class T, bool kUnordered>
Handlers handlers_of(std::string_view compare) {
  const auto of = []<Compare kCompare>() {
    return Handlers{set_predicate<kCompare, T>, set_register<kCompare, T>};
  };
  if (compare == "eq") return of.template operator()<Compare::eq>();
  if (compare == "ne") return of.template operator()<Compare::ne>();
  if (compare == "lt" || compare == "lo") return of.template operator()<Compare::lt>();
  if (compare == "le" || compare == "ls") return of.template operator()<Compare::le>();
  if (compare == "gt" || compare == "hi") return of.template operator()<Compare::gt>();
  if (compare == "ge" || compare == "hs") return of.template operator()<Compare::ge>();
  if constexpr (kUnordered) {
    if (compare == "equ") return of.template operator()<Compare::equ>();
    if (compare == "neu") return of.template operator()<Compare::neu>();
    if (compare == "ltu") return of.template operator()<Compare::ltu>();
    if (compare == "leu") return of.template operator()<Compare::leu>();
    if (compare == "gtu") return of.template operator()<Compare::gtu>();
    if (compare == "geu") return of.template operator()<Compare::geu>();
    if (compare == "num") return of.template operator()<Compare::num>();
    if (compare == "nan") return of.template operator()<Compare::nan>();
  }
  return {};
}

Handlers handlers_of(Type type, std::string_view compare) {
  switch (type.kind) {
    case Type::Kind::f:
      return type.bytes == 2   ? handlers_of<Half, true>(compare)
             : type.bytes == 4 ? handlers_of<float, true>(compare)
                               : handlers_of<double, true>(compare);
    case Type::Kind::bf:
      return handlers_of<BFloat, true>(compare);
    case Type::Kind::signed_int:
      return type.bytes == 2   ? handlers_of<int16_t, false>(compare)
             : type.bytes == 4 ? handlers_of<int32_t, false>(compare)
                               : handlers_of<int64_t, false>(compare);
    case Type::Kind::bits:
    case Type::Kind::unsigned_int:
      return type.bytes == 2   ? handlers_of<uint16_t, false>(compare)
             : type.bytes == 4 ? handlers_of<uint32_t, false>(compare)
                               : handlers_of<uint64_t, false>(compare);
    default:
      return {};
  }
}

// Common to setp and set: comparison, combination with a predicate, operands.
Handlers comparison(Decoder& d, Op& op, Type type) {
  const std::string_view compare = d.take_any({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
                                               "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  const Handlers handlers = handlers_of(type, compare);
  if (!handlers.predicate) d.wrong("this comparison does not exist for this type");
  const std::string_view combine = d.take_any({"and", "or", "xor"});
  const Combine how = combine == "and"   ? Combine::with_and
                      : combine == "or"  ? Combine::with_or
                      : combine == "xor" ? Combine::with_xor
                                         : Combine::none;
  op.count = static_cast<uint8_t>(how);
  op.slot[2] = d.read(1, type);
  op.slot[3] = d.read(2, type);
  if (how != Combine::none) op.slot[4] = d.predicate(d.operand(3));
  return handlers;
}

void setp(Decoder& d) {
  Op op;
  op.run = comparison(d, op, d.take_type()).predicate;
  Operand first = d.operand(0);
  op.slot[1] = kNowhere;
  if (!first.second.empty()) {
    Operand second = first;
    second.name = first.second;
    op.slot[1] = d.register_of(second, 0, true);
  }
  op.slot[0] = d.register_of(first, 0, true);
  d.emit(op);
}

void set(Decoder& d) {
  Op op;
  const Type result = d.take_type(), type = d.take_type();
  if (result.bytes != 4) d.wrong("a result of this type is not supported");
  op.run = comparison(d, op, type).value;
  op.immediate = result.is_f32() ? 0x3f800000 : 0xffffffff;
  op.slot[0] = d.result(0, result);
  d.emit(op);
}

template <class T>
void select(Warp& warp, const Op& op) {
  const T *a = warp.lanes<T>(op.slot[1]), *b = warp.lanes<T>(op.slot[2]);
  const uint32_t p = warp.predicate(op.slot[3]);
  write_lanes<T>(warp, op.slot[0], [&](int l) { return p >> l & 1 ? a[l] : b[l]; });
}

template <class T, class C>
void select_by_sign(Warp& warp, const Op& op) {
  const T *a = warp.lanes<T>(op.slot[1]), *b = warp.lanes<T>(op.slot[2]);
  const C* c = warp.lanes<C>(op.slot[3]);
  write_lanes<T>(warp, op.slot[0], [&](int l) { return c[l] >= 0 ? a[l] : b[l]; });
}

void selp(Decoder& d) {
  const Type type = d.take_type();
  Op op;
  op.run = type.bytes == 2 ? select<uint16_t> : type.bytes == 4 ? select<uint32_t> : select<uint64_t>;
  op.slot = {d.result(0, type), d.read(1, type), d.read(2, type), d.predicate(d.operand(3))};
  d.emit(op);
}

void slct(Decoder& d) {
  const Type type = d.take_type(), by = d.take_type();
  if (by.bytes != 4 || type.bytes < 4) d.wrong("does not exist for this type");
  Op op;
  op.run = by.is_f32()
               ? (type.bytes == 4 ? select_by_sign<uint32_t, float> : select_by_sign<uint64_t, float>)
               : (type.bytes == 4 ? select_by_sign<uint32_t, int32_t> : select_by_sign<uint64_t, int32_t>);
  op.slot = {d.result(0, type), d.read(1, type), d.read(2, type), d.read(3, by)};
  d.emit(op);
}

}  // namespace

void add_compare_ops(OpTable& table) {
  table["setp"] = setp;
  table["set"] = set;
  table["selp"] = selp;
  table["slct"] = slct;
}

}  // namespace flatshard::ptx_vm
