// cp.async.bulk cp.reduce.async.bulk createpolicy

#include "ptx_vm/ops_bulk.h"

#include <algorithm>
#include <cstring>

#include "ptx_vm/access.h"
#include "ptx_vm/bulk.h"
#include "ptx_vm/cluster.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kB16{Type::Kind::bits, 2}, kU32{Type::Kind::unsigned_int, 4}, kB64{Type::Kind::bits, 8};
constexpr uint64_t kUnit = 16;  // bytes: of addresses and sizes

// Slots; kReduction is a number, not a slot. Op::count is the Element of a reduction, Op::space the source's.
enum : size_t { kTo, kFrom, kBytes, kBarrier, kMask, kReduction };

struct Piece {
  uint64_t to, from;
  uint32_t bytes;
};

Piece piece_of(const Warp& warp, const Op& op, int lane) {
  const Piece p{warp.lanes<uint64_t>(op.slot[kTo])[lane], warp.lanes<uint64_t>(op.slot[kFrom])[lane],
                warp.lanes<uint32_t>(op.slot[kBytes])[lane]};
  if (p.to % kUnit || p.from % kUnit || p.bytes % kUnit)
    report(FindingKind::misaligned_access, warp, lane,
           str("copies ", p.bytes, " bytes from 0x", std::hex, p.from, " to 0x", p.to,
               ", must all be multiples of 16"));
  return p;
}

Combine combine_of(const Op& op) {
  return op.slot[kReduction] == kNowhere
             ? nullptr
             : combine_of(kReductions[op.slot[kReduction]], static_cast<Element>(op.count));
}

void put(Warp& actor, Space space, uint64_t to, const unsigned char* data, uint64_t bytes, Combine combine) {
  unsigned char* place = touch(actor, space, to, bytes, combine ? Access::update : Access::write);
  if (combine)
    combine(place, data, bytes);
  else
    std::memmove(place, data, bytes);
}

void load_pieces(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    const Piece p = piece_of(warp, op, lane);
    const uint64_t barrier = warp.lanes<uint64_t>(op.slot[kBarrier])[lane];
    for (const LoadTarget& target : targets_of(warp, lane, op.slot[kMask], p.to, barrier))
      issue_load(warp, lane, mbarrier_for_async(warp, lane, target.barrier), p.bytes,
                 [p, target, space = op.space, combine = combine_of(op)](Warp& actor) {
                   if (!p.bytes) return;
                   const unsigned char* from = touch(actor, space, p.from, p.bytes, Access::read);
                   put(actor, Space::cluster, target.to, from, p.bytes, combine);
                 });
  });
}

void store_pieces(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    const Piece p = piece_of(warp, op, lane);
    const bool ordered = needs_order(warp, op.slot[kReduction], static_cast<Element>(op.count));
    issue_store(
        warp, lane,
        [p](Warp& actor) {
          if (!p.bytes) return Bytes();
          const unsigned char* from = touch(actor, Space::cluster, p.from, p.bytes, Access::read);
          return Bytes(from, from + p.bytes);
        },
        [p, combine = combine_of(op), ordered](Warp& actor, const Bytes& data) {
          actor.adds_in_order = ordered;
          if (p.bytes) put(actor, Space::global, p.to, data.data(), p.bytes, combine);
        });
  });
}

void prefetch_pieces(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) { piece_of(warp, op, lane); });
}

void commit(Warp& warp, const Op&) {
  for_each_lane(warp.active, [&](int lane) { commit_stores(warp, lane); });
}

template <bool kReads>
void wait(Warp& warp, const Op& op) {
  for_each_lane(warp.active,
                [&](int lane) { wait_for_stores(warp, lane, static_cast<uint64_t>(op.immediate), kReads); });
}

Element take_element(Decoder& d) {
  constexpr std::array<std::string_view, 10> kNames{"u8",  "u16", "u32", "s32", "u64",
                                                    "s64", "f16", "f32", "f64", "bf16"};
  const std::string_view name =
      d.take_any({"u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "b32", "b64"});
  if (name == "b32") return Element::u32;
  if (name == "b64") return Element::u64;
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) d.wrong("a type is missing");
  return static_cast<Element>(found - kNames.begin());
}

void take_type_of_reduction(Decoder& d, Op& op) {
  if (op.slot[kReduction] == kNowhere) return;
  const bool keeps_subnormals = d.take("noftz");
  const Element element = take_element(d);
  const bool is_half = element == Element::f16 || element == Element::bf16;
  op.count = static_cast<uint8_t>(element);
  op.is_strong = true;  // reductions of one address are serialized
  if (!combine_of(op) || keeps_subnormals != (is_half && kReductions[op.slot[kReduction]] == "add"))
    d.wrong("does not exist for this type");
}

void decode_prefetch(Decoder& d) {
  Op op;
  if (!d.take("L2") || !d.take("global")) d.wrong("only .L2.global exists");
  take_cache_hint(d);
  op.run = prefetch_pieces;
  op.slot = {d.literal(8, 0), d.whole_address(0), d.read(1, kU32)};
  d.emit(op);
}

void decode_piece(Decoder& d, bool reduces) {
  Op op;
  const std::string_view opcode = d.instruction().opcode;
  const bool to_global = opcode.find(".global.shared::cta") != opcode.npos;
  const bool from_shared = to_global || opcode.find(".shared::cluster.shared::cta") != opcode.npos;
  const bool to_shared = d.take("shared::cluster");
  const bool has_cta = d.take("shared::cta");
  const bool has_global = d.take("global");
  if (to_global ? to_shared : !to_shared && !(has_cta && has_global)) d.wrong("unsupported state spaces");
  op.slot[kReduction] = take_reduction(d, reduces);
  op.slot[kMask] = kNowhere;
  op.space = from_shared ? Space::cluster : Space::global;
  size_t next = 0;
  op.slot[kTo] = d.whole_address(next++);
  op.slot[kFrom] = d.whole_address(next++);
  op.slot[kBytes] = d.read(next++, kU32);
  if (to_global) {
    if (!d.take("bulk_group")) d.wrong("only .bulk_group exists");
    op.run = store_pieces;
  } else {
    if (!d.take("mbarrier::complete_tx::bytes")) d.wrong("only .mbarrier::complete_tx::bytes exists");
    op.run = load_pieces;
    op.slot[kBarrier] = d.whole_address(next++);
    if (!from_shared && d.take("multicast::cluster")) op.slot[kMask] = d.read(next++, kB16);
  }
  take_type_of_reduction(d, op);
  take_cache_hint(d);
  d.emit(op);
}

// A policy is only a hint: any value is one.
void create_policy(Decoder& d) {
  if (d.take_any({"fractional", "range"}).empty()) d.wrong("must be .fractional or .range");
  d.take("global");
  d.take_prefix("L2::");
  if (!d.take("b64")) d.wrong("only .b64 exists");
  Op op;
  op.run = [](Warp& warp, const Op& self) {
    write_lanes<uint64_t>(warp, self.slot[0], [](int) { return uint64_t{0}; });
  };
  op.slot[0] = d.result(0, kB64);
  d.emit(op);
}

}  // namespace

uint32_t take_reduction(Decoder& d, bool reduces) {
  if (!reduces) return kNowhere;
  for (uint32_t i = 0; i < kReductions.size(); ++i)
    if (d.take(kReductions[i])) return i;
  d.wrong("the operation is missing");
}

bool needs_order(const Warp& warp, uint32_t reduction, Element element) {
  return reduction != kNowhere && kReductions[reduction] == "add" && is_float(element) &&
         !may_add_floats(warp);
}

void take_cache_hint(Decoder& d) {
  if (d.take("L2::cache_hint")) d.read(d.operands() - 1, kB64);
}

std::vector<LoadTarget> targets_of(const Warp& warp, int lane, uint32_t mask_slot, uint64_t to,
                                   uint64_t barrier) {
  if (mask_slot == kNowhere) return {{to, barrier}};
  const uint32_t mask = warp.lanes<uint16_t>(mask_slot)[lane], size = cluster_size(warp);
  if (mask == 0 || mask >> size)
    report(FindingKind::out_of_bounds, warp, lane,
           str("the mask ", std::hex, mask, " names blocks outside the cluster of ", size));
  std::vector<LoadTarget> all;
  for_each_lane(mask, [&](int rank) {
    all.push_back(
        {address_in(static_cast<uint32_t>(rank), to), address_in(static_cast<uint32_t>(rank), barrier)});
  });
  return all;
}

void decode_bulk(Decoder& d) {
  d.need_sm_90();
  if (!d.take("async")) d.wrong("only .async exists");
  const bool reduces = d.take("reduce");
  Op op;
  if (d.take("commit_group")) {
    op.run = commit;
    return d.emit(op);
  }
  if (d.take("wait_group")) {
    op.run = d.take("read") ? wait<true> : wait<false>;
    op.immediate = static_cast<int64_t>(d.integer(0));
    return d.emit(op);
  }
  if (d.take("tensor")) return decode_tensor_copy(d, reduces);
  if (d.take("prefetch")) return decode_prefetch(d);
  decode_piece(d, reduces);
}

void add_bulk_ops(OpTable& table) { table["createpolicy"] = create_policy; }

}  // namespace flatshard::ptx_vm
