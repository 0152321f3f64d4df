// Registers share a slot only if they are never live at the same time.

#include "ptx_vm/register_allocation.h"

#include <set>

#include "ptx_vm/registry.h"
#include "ptx_vm/tests/run_ptx.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// The slots of %r0 ... %r7 in a function of this body.
std::vector<uint32_t> slots_of(const std::string& body) {
  const auto module = parse(
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() {\n"
      ".reg .b32 %r<8>;\n.reg .pred %p<2>;\n" +
      body + "\nret;\n}\n");
  return allocate_registers(module->functions.at(0), 0).slots;
}

}  // namespace

TEST_CASE("a dead register's slot is reused") {
  const auto slot =
      slots_of("mov.u32 %r0, 1; add.u32 %r1, %r0, 2; add.u32 %r2, %r1, 3; add.u32 %r3, %r2, %r1;");
  CHECK(slot[1] == slot[0]);  // a result may reuse the slot of an operand
  CHECK(slot[2] != slot[1]);  // both are read later
}

TEST_CASE("a loop-carried register keeps its slot throughout the loop") {
  const auto slot = slots_of(R"(
  mov.u32 %r0, 1;
  mov.u32 %r1, 0;
again:
  mov.u32 %r2, 5;
  add.u32 %r3, %r2, %r0;
  add.u32 %r1, %r1, %r3;
  setp.lt.u32 %p0, %r1, 100;
  @%p0 bra again;)");
  CHECK(std::set<uint32_t>{slot[0], slot[1], slot[2]}.size() == 3);  // %r0 is read again after %r3 is written
  CHECK(slot[3] != slot[0]);
  CHECK(slot[3] != slot[1]);
}

TEST_CASE("a register that some lanes preserve counts as read") {
  const auto slot = slots_of(R"(
  mov.u32 %r0, 1;
  setp.lt.u32 %p0, %r0, 100;
  mov.u32 %r1, 7;
  add.u32 %r2, %r0, 1;
  @%p0 mov.u32 %r1, 8;
  add.u32 %r3, %r1, %r2;)");
  CHECK(slot[1] != slot[2]);
}

TEST_CASE("an op with several results shares no slot with its operands") {
  const auto slot =
      slots_of("mov.u32 %r0, 1; shfl.sync.idx.b32 %r1|%p0, %r0, 0, 31, -1; add.u32 %r2, %r1, 1;");
  CHECK(slot[1] != slot[0]);
}

TEST_CASE("values survive slot sharing in a loop with divergent lanes") {
  // Lane l adds l + 1 while it counts to l: 0, 2, 6, 12, ...
  const auto results = run_ptx(R"(
  mov.u32 %r1, 0;
  mov.u32 %r2, 0;
again:
  setp.ge.u32 %p1, %r1, %r30;
  @%p1 bra done;
  add.u32 %r3, %r30, 1;
  add.u32 %r2, %r2, %r3;
  add.u32 %r4, %r1, 1;
  mov.u32 %r1, %r4;
  bra again;
done:
  mov.u32 %r5, %r2;
  mov.u32 %r0, %r5;)");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(results[lane] == lane * (lane + 1));
}

TEST_CASE("a kernel finds its own constants in registers that another kernel had") {
  // An edited kernel ends with its edit, and the next may be decoded to the same address.
  for (int constant = 1; constant <= 20; ++constant) {
    const ScopedEdit edit("test", [&](std::string ptx) {
      const std::string marked = "424242";
      return ptx.replace(ptx.find(marked), marked.size(), std::to_string(constant));
    });
    CHECK(run_ptx("mov.u64 %rd0, 424242;").at(31) == static_cast<uint64_t>(constant));
  }
}
