// shfl vote match activemask redux elect bar.warp.sync: operations between lanes. If lanes name a mask, it is
// in slot[5], and the warp's loop calls the handler once all lanes of the mask have arrived.

#include "ptx_vm/ops_warp.h"

#include <algorithm>

#include "ptx_vm/decode.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr size_t kMask = 5;
constexpr Type kB32{Type::Kind::bits, 4}, kPred{Type::Kind::pred, 0};

enum class Shuffle : uint8_t { up, down, bfly, idx };

// The lane that `lane` reads from, and whether it is within the segment; else it keeps its own value.
template <Shuffle kMode>
bool source_lane(int lane, uint32_t b, uint32_t c, int* source) {
  const auto segment = static_cast<int>(c >> 8 & 31), clamp = static_cast<int>(c & 31);
  const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
  const auto by = static_cast<int>(b & 31);
  bool valid = false;
  switch (kMode) {
    case Shuffle::up:
      *source = lane - by, valid = *source >= most;
      break;
    case Shuffle::down:
      *source = lane + by, valid = *source <= most;
      break;
    case Shuffle::bfly:
      *source = lane ^ by, valid = *source <= most;
      break;
    case Shuffle::idx:
      *source = least | (by & ~segment), valid = *source <= most;
      break;
  }
  if (!valid) *source = lane;
  return valid;
}

template <Shuffle kMode>
void shuffle(Warp& warp, const Op& op) {
  const uint32_t *a = warp.lanes<uint32_t>(op.slot[2]), *b = warp.lanes<uint32_t>(op.slot[3]),
                 *c = warp.lanes<uint32_t>(op.slot[4]);
  uint32_t result[kLanes], valid = 0;
  if (warp.active == kAllLanes) {
    uint32_t is_valid[kLanes];
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) {
      int source = 0;
      is_valid[lane] = static_cast<uint32_t>(source_lane<kMode>(lane, b[lane], c[lane], &source)) << lane;
      result[lane] = a[source];
    }
    for (const uint32_t bit : is_valid) valid |= bit;
  } else
    for_each_lane(warp.active, [&](int lane) {
      int source = 0;
      valid |= static_cast<uint32_t>(source_lane<kMode>(lane, b[lane], c[lane], &source)) << lane;
      if (!(warp.active >> source & 1)) [[unlikely]]
        report(FindingKind::shuffle_mask, warp, lane,
               str("reads from lane ", source, ", which ",
                   warp.live >> source & 1 ? "does not participate" : "has exited"));
      result[lane] = a[source];
    });
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) { return result[l]; });
  if (op.slot[1] != kNowhere) warp.set_predicate(op.slot[1], valid);
}

void shfl(Decoder& d) {
  Op op;
  op.flow = Flow::with_others;
  if (!d.take("sync") || !d.take("b32")) d.wrong("only .sync with .b32 is supported");
  const std::string_view mode = d.take_any({"up", "down", "bfly", "idx"});
  op.run = mode == "up"     ? shuffle<Shuffle::up>
           : mode == "down" ? shuffle<Shuffle::down>
           : mode == "bfly" ? shuffle<Shuffle::bfly>
                            : shuffle<Shuffle::idx>;
  if (mode.empty()) d.wrong("a mode is missing");
  Operand second = d.operand(0);
  second.name = second.second;
  op.slot = {d.result(0, kB32), second.name.empty() ? kNowhere : d.register_of(second, 0, true),
             d.read(1, kB32),   d.read(2, kB32),
             d.read(3, kB32),   d.read(4, kB32)};
  d.emit(op);
}

// The predicate of a vote among the participating lanes.
uint32_t ayes(const Warp& warp, const Op& op) { return warp.predicate(op.slot[1]) & warp.active; }

void vote_all(Warp& warp, const Op& op) {
  warp.set_predicate(op.slot[0], ayes(warp, op) == warp.active ? kAllLanes : 0);
}
void vote_any(Warp& warp, const Op& op) { warp.set_predicate(op.slot[0], ayes(warp, op) ? kAllLanes : 0); }
void vote_uniform(Warp& warp, const Op& op) {
  const uint32_t yes = ayes(warp, op);
  warp.set_predicate(op.slot[0], yes == 0 || yes == warp.active ? kAllLanes : 0);
}
void vote_ballot(Warp& warp, const Op& op) {
  const uint32_t yes = ayes(warp, op);
  write_lanes<uint32_t>(warp, op.slot[0], [&](int) { return yes; });
}

void vote(Decoder& d) {
  Op op;
  op.flow = Flow::with_others;
  if (!d.take("sync")) d.wrong("only .sync is supported");
  const std::string_view mode = d.take_any({"all", "any", "uni", "ballot"});
  const Type type = d.take_type();
  op.run = mode == "all" ? vote_all : mode == "any" ? vote_any : mode == "uni" ? vote_uniform : vote_ballot;
  if ((mode == "ballot") != (type.kind != Type::Kind::pred)) d.wrong("does not exist for this type");
  op.slot[0] = d.result(0, type);
  op.slot[1] = d.predicate(d.operand(1));
  op.slot[kMask] = d.read(2, kB32);
  d.emit(op);
}

template <class T, bool kAll>
void match_values(Warp& warp, const Op& op) {
  const T* a = warp.lanes<T>(op.slot[2]);
  uint32_t equal[kLanes]{}, all = 0;
  for_each_lane(warp.active, [&](int lane) {
    for_each_lane(warp.active,
                  [&](int other) { equal[lane] |= static_cast<uint32_t>(a[lane] == a[other]) << other; });
    if (equal[lane] == warp.active) all = kAllLanes;
  });
  write_lanes<uint32_t>(warp, op.slot[0], [&](int l) { return kAll ? warp.active & all : equal[l]; });
  if (kAll && op.slot[1] != kNowhere) warp.set_predicate(op.slot[1], all);
}

void match(Decoder& d) {
  Op op;
  op.flow = Flow::with_others;
  const bool all = d.take("all");
  if (!d.take("sync") || (!all && !d.take("any"))) d.wrong("only .any.sync and .all.sync are supported");
  const Type type = d.take_type();
  op.run = type.bytes == 4 ? (all ? match_values<uint32_t, true> : match_values<uint32_t, false>)
                           : (all ? match_values<uint64_t, true> : match_values<uint64_t, false>);
  Operand second = d.operand(0);
  second.name = second.second;
  op.slot = {d.result(0, kB32), second.name.empty() ? kNowhere : d.register_of(second, 0, true),
             d.read(1, type)};
  op.slot[kMask] = d.read(2, kB32);
  d.emit(op);
}

void active_mask(Warp& warp, const Op& op) {
  const uint32_t mask = warp.active;
  write_lanes<uint32_t>(warp, op.slot[0], [&](int) { return mask; });
}

void activemask(Decoder& d) {
  Op op;
  op.run = active_mask;
  op.slot[0] = d.result(0, d.take_type());
  d.emit(op);
}

template <class T, class F>
void reduce(Warp& warp, const Op& op) {
  const T* a = warp.lanes<T>(op.slot[1]);
  T total = a[std::countr_zero(warp.active)];
  for_each_lane(warp.active & (warp.active - 1), [&](int lane) { total = F{}(total, a[lane]); });
  write_lanes<T>(warp, op.slot[0], [&](int) { return total; });
}

struct Least {
  template <class T>
  T operator()(T a, T b) {
    return std::min(a, b);
  }
};
struct Greatest {
  template <class T>
  T operator()(T a, T b) {
    return std::max(a, b);
  }
};

void redux(Decoder& d) {
  Op op;
  op.flow = Flow::with_others;
  if (!d.take("sync")) d.wrong("only .sync is supported");
  const std::string_view name = d.take_any({"add", "min", "max", "and", "or", "xor"});
  const Type type = d.take_type();
  const bool is_signed = type.is_signed();
  op.run = name == "add"   ? reduce<uint32_t, std::plus<>>
           : name == "min" ? (is_signed ? reduce<int32_t, Least> : reduce<uint32_t, Least>)
           : name == "max" ? (is_signed ? reduce<int32_t, Greatest> : reduce<uint32_t, Greatest>)
           : name == "and" ? reduce<uint32_t, std::bit_and<>>
           : name == "or"  ? reduce<uint32_t, std::bit_or<>>
                           : reduce<uint32_t, std::bit_xor<>>;
  if (!type.is_integer() || type.bytes != 4) d.wrong("does not exist for this type");
  op.slot[0] = d.result(0, type);
  op.slot[1] = d.read(1, type);
  op.slot[kMask] = d.read(2, kB32);
  d.emit(op);
}

// The first of the arriving lanes, the same for all of them.
void choose_one(Warp& warp, const Op& op) {
  const auto leader = static_cast<uint32_t>(std::countr_zero(warp.active));
  write_lanes<uint32_t>(warp, op.slot[0], [&](int) { return leader; });
  warp.set_predicate(op.slot[1], 1u << leader);
}

void elect(Decoder& d) {
  d.need_sm_90();
  if (!d.take("sync")) d.wrong("only .sync is supported");
  Operand second = d.operand(0);
  second.name = second.second;
  Op op;
  op.flow = Flow::with_others;
  op.run = choose_one;
  op.slot = {d.result(0, kB32), d.register_of(second, 0, true)};
  op.slot[kMask] = d.read(1, kB32);
  d.emit(op);
}

// Earlier accesses of the warp's lanes happened before later ones.
void synchronise_warp(Warp& warp, const Op&) { warp.advance(); }

}  // namespace

void decode_warp_barrier(Decoder& d) {
  Op op;
  op.flow = Flow::with_others;
  op.run = synchronise_warp;
  op.slot[kMask] = d.read(0, kB32);
  d.emit(op);
}

void add_warp_ops(OpTable& table) {
  table["shfl"] = shfl;
  table["vote"] = vote;
  table["match"] = match;
  table["activemask"] = activemask;
  table["redux"] = redux;
  table["elect"] = elect;
}

}  // namespace flatshard::ptx_vm
