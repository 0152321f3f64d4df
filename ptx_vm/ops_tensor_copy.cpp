// cp.async.bulk.tensor cp.reduce.async.bulk.tensor, prefetches of tensors and of their maps

#include <algorithm>
#include <cstring>

#include "ptx_vm/access.h"
#include "ptx_vm/bulk.h"
#include "ptx_vm/cluster.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/hw/tensor_map.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ops_bulk.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kB16{Type::Kind::bits, 2}, kS32{Type::Kind::signed_int, 4};
constexpr uint64_t kBoxAlignment = 128, kMapAlignment = 64, kChunk = 16;
constexpr uint32_t kLine = 128;  // within which a swizzle moves chunks

// Slots; kReduction is a number, not a slot. Op::count is the rank, Op::immediate where the coordinates begin
// among the kernel's slot lists.
enum : size_t { kMap, kShared, kBarrier, kMask, kReduction };

struct Box {
  TensorMap map;
  Coordinates at{};
  uint64_t shared;
};

[[noreturn]] void bad_map(const Warp& warp, int lane, const std::string& what) {
  report(FindingKind::tensor_map, warp, lane, what);
}

TensorMap map_at(Warp& warp, int lane, uint64_t address) {
  if (address % kMapAlignment)
    report(FindingKind::misaligned_access, warp, lane,
           str("a tensor map at ", describe_address(warp, address), ", must be at a multiple of 64"));
  const unsigned char* data = nullptr;
  if ((address & kWindowMask) == kParamWindow) {
    const std::vector<unsigned char>& parameters = warp.block->launch->parameters;
    const uint64_t offset = address & ~kWindowMask;
    if (offset + TensorMap::kPackedBytes <= parameters.size()) data = parameters.data() + offset;
  } else {
    const Allocation* home = heap().find(address);
    if (home && home->is_live && home->end() - address >= TensorMap::kPackedBytes)
      data = reinterpret_cast<const unsigned char*>(address);
  }
  if (!data)
    report(FindingKind::out_of_bounds, warp, lane, str("a tensor map at ", describe_address(warp, address)));
  const std::optional<TensorMap> map = unpack_tensor_map(data);
  if (!map) bad_map(warp, lane, str("there is no tensor map at ", describe_address(warp, address)));
  return *map;
}

TensorMap map_of(Warp& warp, const Op& op, int lane) {
  const TensorMap map = map_at(warp, lane, warp.lanes<uint64_t>(op.slot[kMap])[lane]);
  if (map.rank != op.count)
    bad_map(warp, lane, str("the tensor map has rank ", map.rank, ", the instruction ", int{op.count}));
  return map;
}

Box box_of(Warp& warp, const Op& op, int lane) {
  Box box{.map = map_of(warp, op, lane), .shared = warp.lanes<uint64_t>(op.slot[kShared])[lane]};
  const uint32_t* slots = &warp.block->kernel().slot_lists[static_cast<size_t>(op.immediate)];
  for (uint32_t d = 0; d < op.count; ++d) box.at[d] = warp.lanes<int32_t>(slots[d])[lane];
  if (box.shared % kBoxAlignment)
    report(FindingKind::misaligned_access, warp, lane,
           str("a box at ", describe_address(warp, box.shared | kSharedWindow),
               ", must be at a multiple of 128"));
  return box;
}

// A box in shared memory, checked and recorded: the addresses of its chunks.
class SharedBox {
 public:
  SharedBox(Warp& actor, const Box& box, Access access) : box_(box), offset_(address_in_block(box.shared)) {
    const uint64_t begin = box.shared - offset_, bytes = box.map.box_bytes();
    if (box.map.swizzle == Swizzle::none || bytes % kLine == 0) {
      data_ = touch(actor, Space::cluster, box.shared, bytes, access);
      return;
    }
    for (uint64_t at = 0; at < bytes; at += kChunk) {
      const uint64_t place = place_of(at);
      data_ = touch(actor, Space::cluster, begin + place, kChunk, access) + offset_ - place;
    }
  }
  unsigned char* chunk(uint64_t at) const { return data_ + place_of(at) - offset_; }

 private:
  uint64_t place_of(uint64_t at) const {
    return swizzled(box_.map.swizzle, static_cast<uint32_t>(offset_ + at));
  }
  const Box& box_;
  uint64_t offset_;
  unsigned char* data_ = nullptr;
};

// From the tensor to shared memory; elements outside the tensor are zero.
void load_box(Warp& actor, const Box& box) {
  Bytes data(box.map.box_bytes());
  for (uint32_t r = 0; r < box.map.rows(); ++r) {
    const BoxRow row = row_of(box.map, box.at, r);
    if (row.bytes)
      std::memcpy(&data[row.in_box], touch(actor, Space::global, row.address, row.bytes, Access::read),
                  row.bytes);
  }
  const SharedBox shared(actor, box, Access::write);
  for (uint64_t at = 0; at < data.size(); at += kChunk) std::memcpy(shared.chunk(at), &data[at], kChunk);
}

Bytes read_box(Warp& actor, const Box& box) {
  Bytes data(box.map.box_bytes());
  const SharedBox shared(actor, box, Access::read);
  for (uint64_t at = 0; at < data.size(); at += kChunk) std::memcpy(&data[at], shared.chunk(at), kChunk);
  return data;
}

void store_box(Warp& actor, const Box& box, const Bytes& data, Combine combine) {
  for (uint32_t r = 0; r < box.map.rows(); ++r) {
    const BoxRow row = row_of(box.map, box.at, r);
    if (!row.bytes) continue;
    unsigned char* to =
        touch(actor, Space::global, row.address, row.bytes, combine ? Access::update : Access::write);
    if (combine)
      combine(to, &data[row.in_box], row.bytes);
    else
      std::memcpy(to, &data[row.in_box], row.bytes);
  }
}

void load_boxes(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    const Box box = box_of(warp, op, lane);
    const uint64_t barrier = warp.lanes<uint64_t>(op.slot[kBarrier])[lane];
    for (const LoadTarget& target : targets_of(warp, lane, op.slot[kMask], box.shared, barrier)) {
      Box there = box;
      there.shared = target.to;
      issue_load(warp, lane, mbarrier_for_async(warp, lane, target.barrier), box.map.box_bytes(),
                 [there](Warp& actor) { load_box(actor, there); });
    }
  });
}

void store_boxes(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    const Box box = box_of(warp, op, lane);
    Combine combine = nullptr;
    if (op.slot[kReduction] != kNowhere) {
      combine = combine_of(kReductions[op.slot[kReduction]], box.map.element);
      if (!combine) bad_map(warp, lane, "the reduction does not exist for the type of the map");
    }
    const bool ordered = needs_order(warp, op.slot[kReduction], box.map.element);
    issue_store(
        warp, lane, [box](Warp& actor) { return read_box(actor, box); },
        [box, combine, ordered](Warp& actor, const Bytes& data) {
          actor.adds_in_order = ordered;
          store_box(actor, box, data, combine);
        });
  });
}

void check_maps(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    if (op.count)
      map_of(warp, op, lane);
    else
      map_at(warp, lane, warp.lanes<uint64_t>(op.slot[kMap])[lane]);
  });
}

// [map, {c0, c1}]
void take_tensor(Decoder& d, Op& op, size_t i) {
  const Operand& o = d.operand(i);
  if (o.parts.size() != 1 || o.parts[0].kind != Operand::Kind::list) d.wrong("the coordinates are missing");
  const std::vector<Operand>& parts = o.parts[0].parts;
  if (parts.size() != op.count) d.wrong(str(parts.size(), " coordinates for rank ", int{op.count}));
  op.slot[kMap] = d.whole_address(i);
  std::vector<uint32_t> slots;
  for (const Operand& part : parts) slots.push_back(d.read(part, kS32));
  op.immediate = d.slot_list(slots);
}

}  // namespace

void decode_tensor_copy(Decoder& d, bool reduces) {
  Op op;
  const std::string_view rank = d.take_any({"1d", "2d", "3d", "4d", "5d"});
  if (rank.empty()) d.wrong("a rank is missing");
  op.count = static_cast<uint8_t>(rank[0] - '0');
  op.slot[kMask] = kNowhere;
  op.slot[kReduction] = take_reduction(d, reduces);
  d.take("tile");
  const bool prefetches = d.take("prefetch");
  const std::string_view opcode = d.instruction().opcode;
  const bool loads = !prefetches && opcode.find(".global.shared::cta") == opcode.npos;
  if (!d.take("global")) d.wrong("the tensor must be in .global");
  if (prefetches) {
    if (!d.take("L2")) d.wrong("only .L2 exists");
    op.run = check_maps;
    take_tensor(d, op, 0);
  } else if (loads) {
    if (!d.take("shared::cluster") && !d.take("shared::cta")) d.wrong("the box must be in shared memory");
    if (!d.take("mbarrier::complete_tx::bytes")) d.wrong("only .mbarrier::complete_tx::bytes exists");
    op.run = load_boxes;
    op.slot[kShared] = d.whole_address(0);
    take_tensor(d, op, 1);
    op.slot[kBarrier] = d.whole_address(2);
    if (d.take("multicast::cluster")) op.slot[kMask] = d.read(3, kB16);
    if (reduces) d.wrong("only stores reduce");
  } else {
    if (!d.take("shared::cta") || !d.take("bulk_group")) d.wrong("only .shared::cta.bulk_group exists");
    op.run = store_boxes;
    op.is_strong = reduces;  // reductions of one address are serialized
    take_tensor(d, op, 0);
    op.slot[kShared] = d.whole_address(1);
  }
  take_cache_hint(d);
  d.emit(op);
}

void decode_map_prefetch(Decoder& d) {
  d.need_sm_90();
  d.take_any({"param", "const"});
  Op op;
  op.run = check_maps;
  op.slot[kMap] = d.whole_address(0);
  d.emit(op);
}

}  // namespace flatshard::ptx_vm
