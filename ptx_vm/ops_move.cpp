// mov (with packing and unpacking of vectors), cvta, isspacep

#include "ptx_vm/decode.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/memory.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

template <class T>
void move(Warp& warp, const Op& op) {
  const T* a = warp.lanes<T>(op.slot[1]);
  write_lanes<T>(warp, op.slot[0], [&](int l) { return a[l]; });
}

void move_predicate(Warp& warp, const Op& op) { warp.set_predicate(op.slot[0], warp.predicate(op.slot[1])); }

// {a, b}: a is the low part.
template <class Whole, class Part>
void pack(Warp& warp, const Op& op) {
  constexpr uint32_t parts = sizeof(Whole) / sizeof(Part);
  const Part* part[parts];
  for (uint32_t i = 0; i < parts; ++i) part[i] = warp.lanes<Part>(op.slot[1 + i]);
  write_lanes<Whole>(warp, op.slot[0], [&](int l) {
    Whole whole = 0;
    for (uint32_t i = 0; i < parts; ++i) whole |= static_cast<Whole>(part[i][l]) << (i * sizeof(Part) * 8);
    return whole;
  });
}

template <class Whole, class Part>
void unpack(Warp& warp, const Op& op) {
  constexpr uint32_t parts = sizeof(Whole) / sizeof(Part);
  const Whole* whole = warp.lanes<Whole>(op.slot[parts]);
  for (uint32_t i = 0; i < parts; ++i)
    write_lanes<Part>(warp, op.slot[i],
                      [&](int l) { return static_cast<Part>(whole[l] >> (i * sizeof(Part) * 8)); });
}

void mov_list(Decoder& d, Type type, bool packs) {
  const std::vector<Operand>& parts = d.operand(packs ? 1 : 0).parts;
  const auto part_bytes = static_cast<uint32_t>(type.bytes / std::max<size_t>(parts.size(), 1));
  const Type part{Type::Kind::bits, part_bytes};
  Op op;
  if (type.bytes == 8 && part_bytes == 4)
    op.run = packs ? pack<uint64_t, uint32_t> : unpack<uint64_t, uint32_t>;
  else if (type.bytes == 8 && part_bytes == 2)
    op.run = packs ? pack<uint64_t, uint16_t> : unpack<uint64_t, uint16_t>;
  else if (type.bytes == 4 && part_bytes == 2)
    op.run = packs ? pack<uint32_t, uint16_t> : unpack<uint32_t, uint16_t>;
  else
    d.wrong("the parts do not make up the type");
  size_t at = 0;
  if (packs) op.slot[at++] = d.result(0, type);
  for (const Operand& o : parts) op.slot[at++] = packs ? d.read(o, part) : d.register_of(o, part_bytes);
  if (!packs) op.slot[at] = d.read(1, type);
  d.emit(op);
}

void mov(Decoder& d) {
  const Type type = d.take_type();
  const bool packs = d.operand(1).kind == Operand::Kind::list;
  if (packs || d.operand(0).kind == Operand::Kind::list) return mov_list(d, type, packs);
  Op op;
  op.slot = {d.result(0, type), d.read(1, type)};
  op.run = type.kind == Type::Kind::pred ? move_predicate
           : type.bytes == 2             ? move<uint16_t>
           : type.bytes == 4             ? move<uint32_t>
                                         : move<uint64_t>;
  d.emit(op);
}

uint64_t window_of(Space space) {
  switch (space) {
    case Space::shared:
      return kSharedWindow;
    case Space::local:
      return kLocalWindow;
    case Space::param:
      return kParamWindow;
    default:
      return 0;
  }
}

Space take_space(Decoder& d) {
  const std::string_view name = d.take_any({"global", "shared", "local", "const", "param"});
  if (name == "shared") return Space::shared;
  if (name == "local") return Space::local;
  if (name == "param") return Space::param;
  if (name.empty()) d.wrong("a state space is missing");
  return Space::global;
}

// The generic address of one of a space is that plus the space's window.
void to_generic(Warp& warp, const Op& op) {
  const uint64_t* a = warp.lanes<uint64_t>(op.slot[1]);
  const auto window = static_cast<uint64_t>(op.immediate);
  write_lanes<uint64_t>(warp, op.slot[0], [&](int l) { return a[l] + window; });
}

void cvta(Decoder& d) {
  const bool from_generic = d.take("to");
  const Space space = take_space(d);
  const Type type = d.take_type();
  if (type.bytes != 8) d.wrong("addresses have 64 bits");
  Op op;
  op.run = to_generic;
  op.immediate = static_cast<int64_t>(from_generic ? -window_of(space) : window_of(space));
  op.slot = {d.result(0, type), d.read(1, type)};
  d.emit(op);
}

void is_in_space(Warp& warp, const Op& op) {
  const uint64_t* a = warp.lanes<uint64_t>(op.slot[1]);
  uint32_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    mask |= static_cast<uint32_t>((a[lane] & kWindowMask) == static_cast<uint64_t>(op.immediate)) << lane;
  warp.set_predicate(op.slot[0], mask);
}

void isspacep(Decoder& d) {
  Op op;
  op.run = is_in_space;
  op.immediate = static_cast<int64_t>(window_of(take_space(d)));
  op.slot = {d.register_of(d.operand(0), 0, true), d.read(1, {Type::Kind::bits, 8})};
  d.emit(op);
}

}  // namespace

void add_move_ops(OpTable& table) {
  table["mov"] = mov;
  table["cvta"] = cvta;
  table["isspacep"] = isspacep;
}

}  // namespace flatshard::ptx_vm
