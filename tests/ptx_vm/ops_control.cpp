// bra brx ret exit trap bar barrier membar fence nanosleep call (of __assertfail alone)

#include <bit>
#include <cstring>

#include "runtime/check.h"
#include "tests/ptx_vm/decode.h"
#include "tests/ptx_vm/grid.h"
#include "tests/ptx_vm/lanes.h"
#include "tests/ptx_vm/memory.h"
#include "tests/ptx_vm/ops_warp.h"
#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kU32{Type::Kind::unsigned_int, 4};

void branch(Decoder& d) {
  d.take("uni");
  d.branch_to(d.operand(0).name);
}

void branch_by_table(Decoder& d) {
  if (!d.take("idx")) d.wrong("only .idx is supported");
  d.take("uni");
  d.branch_by_table(d.operand(1).name);
}

void end_lanes(Decoder& d) {
  d.take("uni");
  Op op;
  op.flow = Flow::exit;
  d.emit(op);
}

void trap(Decoder& d) {
  Op op;
  op.run = [](Warp& warp, const Op&) {
    report(FindingKind::trap, warp, std::countr_zero(warp.active), "the kernel stops itself");
  };
  d.emit(op);
}

template <bool kWaits>
void arrive(Warp& warp, const Op& op) {
  const int lane = std::countr_zero(warp.active);
  const uint32_t id = warp.lanes<uint32_t>(op.slot[0])[lane];
  const uint32_t expected = op.count > 1 ? warp.lanes<uint32_t>(op.slot[1])[lane] : 0;
  warp.block->arrive(warp, id, expected, kWaits);
}

void bar(Decoder& d) {
  if (d.take("warp")) {
    d.take("sync");
    return decode_warp_barrier(d);
  }
  d.take("cta");
  d.take("aligned");
  Op op;
  op.flow = Flow::barrier;
  const std::string_view what = d.take_any({"sync", "arrive", "red"});
  if (what.empty()) d.wrong("neither .sync, .arrive nor .red");
  op.run = what == "arrive" ? arrive<false> : arrive<true>;
  size_t first = 0, last = d.operands();
  if (what == "red") {
    const std::string_view name = d.take_any({"popc", "and", "or"});
    if (name.empty()) d.wrong("neither .popc, .and nor .or");
    op.immediate = static_cast<int64_t>(name == "popc"  ? Reduction::count
                                        : name == "and" ? Reduction::all
                                                        : Reduction::any);
    op.slot[2] = d.result(0, d.take_type());
    op.slot[3] = d.predicate(d.operand(d.operands() - 1));
    first = 1, last = d.operands() - 1;
  }
  op.count = static_cast<uint8_t>(last - first);
  for (size_t i = first; i < last; ++i) op.slot[i - first] = d.read(i, kU32);
  d.emit(op);
}

// Memory is consistent at every step here; what a fence changes is what counts as ordered.
void decode_fence(Decoder& d) {
  d.take_rest();
  Op op;
  op.run = [](Warp& warp, const Op&) { fence(warp); };
  d.emit(op);
}

void do_nothing(Decoder& d) { d.take_rest(); }

std::string text_at(uint64_t address) {
  const Allocation* a = heap().find(address);
  if (!a) return "?";
  const auto* text = reinterpret_cast<const char*>(address);
  return std::string(text, strnlen(text, a->end() - address));
}

// call.uni __assertfail, (message, file, line, function, size): parameters lie in local memory.
void assertion_failed(Warp& warp, const Op& op) {
  const int lane = std::countr_zero(warp.active);
  const unsigned char* local =
      warp.local.data() + static_cast<uint64_t>(lane) * warp.block->kernel().local_bytes;
  uint64_t message;
  std::memcpy(&message, local + op.immediate, sizeof(message));
  report(FindingKind::trap, warp, lane, str("assertion failed: ", text_at(message & ~kWindowMask)));
}

void call(Decoder& d) {
  d.take("uni");
  const size_t name_at = d.operand(0).kind == Operand::Kind::list ? 1 : 0;
  const std::string_view name = d.operand(name_at).name;
  if (name != "__assertfail") d.wrong(str("calls of ", name, " are not supported"));
  const std::vector<Operand>& arguments = d.operand(name_at + 1).parts;
  const uint64_t* message = arguments.empty() ? nullptr : d.variable(arguments[0].name);
  if (!message) d.wrong("the message is missing");
  Op op;
  op.run = assertion_failed;
  op.immediate = static_cast<int64_t>(*message - kLocalBase);
  d.emit(op);
}

}  // namespace

void add_control_ops(OpTable& table) {
  table["bra"] = branch;
  table["brx"] = branch_by_table;
  table["ret"] = table["exit"] = end_lanes;
  table["trap"] = trap;
  table["bar"] = table["barrier"] = bar;
  table["membar"] = table["fence"] = decode_fence;
  table["nanosleep"] = do_nothing;
  table["call"] = call;
}

}  // namespace flatshard::ptx_vm
