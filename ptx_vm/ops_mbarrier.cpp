// mbarrier: init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait pending_count

#include "ptx_vm/ops_mbarrier.h"

#include "ptx_vm/async_copy.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/lanes.h"
#include "ptx_vm/mbarrier.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kU32{Type::Kind::unsigned_int, 4}, kB64{Type::Kind::bits, 8};
constexpr uint32_t kSpuriously = 8;  // one try in this many fails spuriously

// Slots. Op::releases: an arrival publishes; Op::acquires: a wait learns.
enum : size_t { kResult, kAddress, kValue };
// Op::count of an arrival.
enum : uint8_t { kAnnounces = 1, kDrops = 2, kIncomplete = 4 };

uint64_t address_of(const Warp& warp, const Op& op, int lane) {
  const uint64_t address = warp.lanes<uint64_t>(op.slot[kAddress])[lane];
  if (op.space == Space::generic && (address & kWindowMask) != kSharedWindow)
    report(FindingKind::out_of_bounds, warp, lane,
           str("an mbarrier at ", describe_address(warp, address), ", must be in shared memory"));
  return address;
}

uint32_t value_of(const Warp& warp, const Op& op, int lane) {
  return warp.lanes<uint32_t>(op.slot[kValue])[lane];
}

void initialize(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    make_mbarrier(warp, lane, address_of(warp, op, lane), value_of(warp, op, lane));
  });
}

void invalidate(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) { end_mbarrier(warp, lane, address_of(warp, op, lane)); });
}

// The state that a wait for the phase receives: its number, and the pending arrivals.
uint64_t token_of(const Mbarrier& b) { return b.phase << 20 | b.pending; }

void arrive_lanes(Warp& warp, const Op& op) {
  const Mbarrier* published = nullptr;
  for_each_lane(warp.active, [&](int lane) {
    Mbarrier& b = *mbarrier_at(warp, lane, address_of(warp, op, lane)).state;
    if (op.releases && published != &b) publish(warp, b.gathering);
    published = &b;
    const uint32_t value = value_of(warp, op, lane);
    if (op.slot[kResult] != kNowhere) warp.lanes<uint64_t>(op.slot[kResult])[lane] = token_of(b);
    arrive(warp, lane, b,
           {.count = op.count & kAnnounces ? 1 : value,
            .bytes = op.count & kAnnounces ? value : 0,
            .drops = (op.count & kDrops) != 0,
            .may_complete = !(op.count & kIncomplete)});
  });
  if (op.releases) warp.advance();
}

void expect(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    expect_bytes(warp, lane, *mbarrier_at(warp, lane, address_of(warp, op, lane)).state,
                 value_of(warp, op, lane));
  });
}

void complete(Warp& warp, const Op& op) {
  const uint32_t active = warp.active;
  for_each_lane(active, [&](int lane) {
    warp.active = 1u << lane;
    complete_bytes(warp, mbarrier_at(warp, lane, address_of(warp, op, lane)), value_of(warp, op, lane));
  });
  warp.active = active;
  warp.advance();
}

template <bool kParity, bool kTries>
void ask(Warp& warp, const Op& op) {
  uint32_t done = 0;
  const bool fails = kTries && warp.block->launch->async.happens(kSpuriously);
  const Mbarrier* learned = nullptr;
  for_each_lane(warp.active, [&](int lane) {
    const uint64_t address = address_of(warp, op, lane);
    const Mbarrier& b = *mbarrier_at(warp, lane, address).state;
    const bool is_over = kParity ? (b.phase & 1) != (value_of(warp, op, lane) & 1)
                                 : b.phase != warp.lanes<uint64_t>(op.slot[kValue])[lane] >> 20;
    if (fails || !is_over) {
      warp.polled = address | kSharedWindow;
      return;
    }
    done |= 1u << lane;
    if (op.acquires && learned != &b) learn(warp, b.completed);
    learned = &b;
  });
  warp.set_predicate(op.slot[kResult], done);
  warp.polls = done != warp.active;
}

void pending_count(Warp& warp, const Op& op) {
  const uint64_t* token = warp.lanes<uint64_t>(op.slot[kAddress]);
  write_lanes<uint32_t>(warp, op.slot[kResult],
                        [&](int l) { return static_cast<uint32_t>(token[l] & Mbarrier::kMostArrivals); });
}

// The lane arrives once its copies so far have ended. Op::count: the arrival is one that was not expected.
void arrive_when_copied(Warp& warp, const Op& op) {
  for_each_lane(warp.active, [&](int lane) {
    const MbarrierPlace place = mbarrier_at(warp, lane, address_of(warp, op, lane));
    if (op.count) expect_arrival(warp, lane, *place.state);
    warp.block->launch->async.issue(warp, lane,
                                    [place, lane, owner = &warp, count = warp.copies.begun](Warp& actor) {
                                      finish_copies(*owner, lane, count, actor);
                                      arrive_late(actor, lane, place);
                                    });
  });
}

Space take_space(Decoder& d) {
  if (d.take("shared::cluster")) return Space::cluster;
  return d.take("shared::cta") || d.take("shared") ? Space::shared : Space::generic;
}

void decode_arrive(Decoder& d, Op op) {
  if (d.take("expect_tx")) d.need_sm_90(), op.count |= kAnnounces;
  if (d.take("noComplete")) op.count |= kIncomplete;
  op.run = arrive_lanes;
  op.releases = !d.take("relaxed");
  d.take("release");
  d.take_any({"cta", "cluster"});
  const bool is_sunk = d.operand(0).name == "_";
  if (op.space == Space::cluster && !is_sunk)
    d.wrong("an arrival at another block's mbarrier returns no state");
  op.slot[kResult] = is_sunk ? kNowhere : d.result(0, kB64);
  op.slot[kAddress] = d.whole_address(1);
  op.slot[kValue] = d.operands() > 2 ? d.read(2, kU32) : d.literal(4, 1);
  if ((op.count & kAnnounces) && d.operands() < 3) d.wrong("the byte count is missing");
  d.emit(op);
}

// test_wait and try_wait, which may have a hint of how long to wait.
void decode_wait(Decoder& d, Op op, bool tries) {
  if (tries) d.need_sm_90();
  if (op.space == Space::cluster) d.wrong("only an mbarrier of the own block can be waited for");
  const bool by_parity = d.take("parity");
  op.flow = Flow::poll;
  op.run = by_parity ? (tries ? ask<true, true> : ask<true, false>)
                     : (tries ? ask<false, true> : ask<false, false>);
  op.acquires = !d.take("relaxed");
  d.take("acquire");
  d.take_any({"cta", "cluster"});
  op.slot[kResult] = d.register_of(d.operand(0), 0, true);
  op.slot[kAddress] = d.whole_address(1);
  op.slot[kValue] = d.read(2, by_parity ? kU32 : kB64);
  if (d.operands() > 3) {
    if (!tries) d.wrong("only try_wait accepts a time hint");
    d.read(3, kU32);
  }
  d.emit(op);
}

void decode_bytes(Decoder& d, Op op, Handler run) {
  d.need_sm_90();
  d.take("relaxed");
  d.take_any({"cta", "cluster"});
  op.run = run;
  op.slot[kAddress] = d.whole_address(0);
  op.slot[kValue] = d.read(1, kU32);
  d.emit(op);
}

void mbarrier(Decoder& d) {
  Op op;
  const std::string_view what = d.take_any({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait",
                                            "expect_tx", "complete_tx", "pending_count"});
  if (!d.take("b64")) d.wrong("only .b64 exists");
  op.space = take_space(d);
  if (what == "arrive" || what == "arrive_drop") {
    op.count = what == "arrive_drop" ? kDrops : 0;
    return decode_arrive(d, op);
  }
  if (what == "test_wait" || what == "try_wait") return decode_wait(d, op, what == "try_wait");
  if (what == "expect_tx") return decode_bytes(d, op, expect);
  if (what == "complete_tx") return decode_bytes(d, op, complete);
  if (what == "init" || what == "inval") {
    op.run = what == "init" ? initialize : invalidate;
    op.slot[kAddress] = d.whole_address(0);
    if (what == "init") op.slot[kValue] = d.read(1, kU32);
    return d.emit(op);
  }
  if (what.empty()) d.wrong("an operation is missing");
  op.run = pending_count;
  op.slot = {d.result(0, kU32), d.read(1, kB64)};
  d.emit(op);
}

}  // namespace

void decode_copy_arrival(Decoder& d) {
  if (!d.take("async") || !d.take("arrive") || !d.take("b64")) d.wrong("only .arrive.b64 exists");
  Op op;
  op.run = arrive_when_copied;
  op.count = d.take("noinc") ? 0 : 1;
  op.space = take_space(d);
  op.slot[kAddress] = d.whole_address(0);
  d.emit(op);
}

void add_mbarrier_ops(OpTable& table) { table["mbarrier"] = mbarrier; }

}  // namespace flatshard::ptx_vm
