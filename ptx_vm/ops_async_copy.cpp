// cp.async and its groups: sources, targets and sizes of the lanes' copies

#include <cstring>

#include "ptx_vm/access.h"
#include "ptx_vm/async_copy.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/ops_bulk.h"
#include "ptx_vm/ops_mbarrier.h"
#include "ptx_vm/report.h"
#include "ptx_vm/warp.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kU32{Type::Kind::unsigned_int, 4};

// Slots of cp.async. Op::immediate is the offset of the source, Op::count the size, wide_address is of `to`.
enum : size_t { kTo, kFrom, kToOffset, kBytesRead, kIgnored };

// Bytes [at, at + bytes) of the pieces of these lanes.
void capture(Warp& warp, Op op, uint32_t lanes, uint32_t at, uint32_t bytes, AsyncCopy* copy) {
  if (!lanes) return;
  Places places;
  op.immediate += at;
  op.wide_address = true;  // the source's, not the target's
  warp.active = lanes;
  resolve(warp, op, op.slot[kFrom], bytes, Access::read, &places);
  for_each_lane(lanes, [&](int lane) {
    std::memcpy(copy->data[static_cast<size_t>(lane)].data() + at, places.at(lane, bytes), bytes);
  });
}

// The bytes of a piece beyond those that are read are zero, and their source is not checked.
void copy_pieces(Warp& warp, const Op& op) {
  const uint32_t lanes = warp.active, bytes = op.count;
  const uint32_t ignored = op.slot[kIgnored] == kNowhere ? 0 : warp.predicate(op.slot[kIgnored]);
  const uint32_t* bytes_read = warp.lanes<uint32_t>(op.slot[kBytesRead]);
  AsyncCopy& copy = add_copy(warp, op, bytes, lanes);
  uint32_t whole = 0, parts[16]{};  // parts[i]: lanes that read byte i of a piece that they read in part
  for_each_lane(lanes & ~ignored, [&](int lane) {
    const uint64_t from = warp.lanes<uint64_t>(op.slot[kFrom])[lane] + static_cast<uint64_t>(op.immediate);
    const uint32_t count = bytes_read[lane];
    if (count > bytes)
      report(FindingKind::out_of_bounds, warp, lane,
             str("reads ", count, " bytes for a copy of ", bytes, " bytes"));
    if (count > 0 && from % bytes != 0)
      report(FindingKind::misaligned_access, warp, lane,
             str("copies ", bytes, " bytes from ", describe_address(warp, from)));
    if (count == bytes) whole |= 1u << lane;
    for (uint32_t i = 0; i < count && count < bytes; ++i) parts[i] |= 1u << lane;
  });
  capture(warp, op, whole, 0, bytes, &copy);
  for (uint32_t i = 0; i < bytes; ++i) capture(warp, op, parts[i], i, 1, &copy);
  warp.active = lanes;
  Op to = op;
  to.space = Space::shared;
  to.immediate = warp.lanes<int64_t>(op.slot[kToOffset])[0];
  Places places;
  resolve(warp, to, op.slot[kTo], bytes, Access::write, &places);
  begin(warp, copy, places);
}

void copy(Decoder& d) {
  Op op;
  op.run = copy_pieces;
  const bool past_l1 = d.take("cg");
  if (!past_l1 && !d.take("ca")) d.wrong("must be .ca or .cg");
  if ((!d.take("shared") && !d.take("shared::cta")) || !d.take("global"))
    d.wrong("only .shared.global is supported");
  d.take_any({"L2::64B", "L2::128B", "L2::256B"});  // hints
  d.address(op, 0, kTo, Space::shared);
  if (op.space != Space::shared) d.wrong("the first address must be in shared memory");
  op.slot[kToOffset] = d.literal(8, static_cast<uint64_t>(op.immediate));
  const bool to_is_wide = op.wide_address;
  d.address(op, 1, kFrom, Space::global);
  if (op.space != Space::global || !op.wide_address) d.wrong("the second address must be in global memory");
  op.wide_address = to_is_wide;
  const uint64_t bytes = d.integer(2);
  if (bytes != 16 && (past_l1 || (bytes != 4 && bytes != 8)))
    d.wrong(str("does not copy ", bytes, " bytes at a time"));
  op.count = static_cast<uint8_t>(bytes);
  op.slot[kBytesRead] = d.literal(4, bytes);
  op.slot[kIgnored] = kNowhere;
  if (d.operands() > 3) {
    if (d.is_predicate(3))
      op.slot[kIgnored] = d.predicate(d.operand(3));
    else
      op.slot[kBytesRead] = d.read(3, kU32);
  }
  if (d.operands() > 4) d.wrong("a cache policy is not supported");
  d.emit(op);
}

void commit(Warp& warp, const Op&) {
  for_each_lane(warp.active, [&](int lane) { ++warp.copies.groups[static_cast<size_t>(lane)]; });
}

void cp(Decoder& d) {
  if (d.take("bulk")) return decode_bulk(d);
  if (d.take("mbarrier")) return decode_copy_arrival(d);
  if (!d.take("async")) d.wrong("only .async is supported");
  Op op;
  if (d.take("commit_group")) {
    op.run = commit;
  } else if (d.take("wait_group")) {
    op.immediate = static_cast<int64_t>(d.integer(0));
    op.run = [](Warp& warp, const Op& self) { wait_for_groups(warp, static_cast<uint32_t>(self.immediate)); };
  } else if (d.take("wait_all")) {
    op.run = [](Warp& warp, const Op&) { wait_for_all(warp); };
  } else {
    return copy(d);
  }
  d.emit(op);
}

}  // namespace

void add_async_copy_ops(OpTable& table) { table["cp"] = cp; }

}  // namespace flatshard::ptx_vm
