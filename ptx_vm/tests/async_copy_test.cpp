// cp.async: the bytes that arrive, when they may be accessed, and which lanes must wait.

#include <string>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/opcode_check.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// %r5: lane's own 16 bytes of the tile; %rd5: byte 4 l of the source, 16-byte aligned for every fourth lane.
const std::string kSetup = R"(
    mov.u32 %r5, tile;
    mad.lo.u32 %r5, %r30, 16, %r5;
    mov.u64 %rd5, source;
    mad.wide.u32 %rd5, %r30, 4, %rd5;
    shl.b32 %r6, %r30, 4;
    and.b32 %r6, %r6, 127;
    mov.u64 %rd6, source;
    cvt.u64.u32 %rd7, %r6;
    add.u64 %rd6, %rd6, %rd7;
)";  // %rd6: 16-byte piece l % 8 of the source

// Bytes first ... first + 3 of the source.
uint64_t word(uint64_t first) { return first | (first + 1) << 8 | (first + 2) << 16 | (first + 3) << 24; }

struct Found {
  FindingKind kind;
  std::string text;
};
Found finding_of(const std::string& body, uint32_t threads = 32) {
  test::error_of([&] { run_ptx(body, threads); });
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  return {found[0].kind, found[0].text};
}

}  // namespace

TEST_CASE("an asynchronous copy has arrived once its lane has waited") {
  const std::string wait = "cp.async.wait_all; ld.shared.u32 %r0, ";
  check_lanes(kSetup + "cp.async.ca.shared.global [%r5], [%rd5], 4;" + wait + "[%r5];",
              [](uint64_t l) { return word(4 * l); });
  check_lanes(kSetup + "cp.async.ca.shared.global [%r5+8], [%rd6+128], 8;" + wait + "[%r5+12];",
              [](uint64_t l) { return word(128 + l % 8 * 16 + 4); });
  check_lanes(kSetup + "cp.async.cg.shared.global [%r5], [%rd6], 16;" + wait + "[%r5+12];",
              [](uint64_t l) { return word(l % 8 * 16 + 12); });
  check_lanes(kSetup + "cp.async.cg.shared::cta.global.L2::128B [%r5], [source+16], 16;" + wait + "[%r5];",
              [](uint64_t) { return word(16); });
}

TEST_CASE("the bytes that an asynchronous copy does not read are zero") {
  const std::string wait = "cp.async.wait_all; ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r5];";
  // Lane l reads l bytes of its 16, at most 16: word 1 holds bytes 4 ... 7.
  check_lanes(kSetup + "min.u32 %r7, %r30, 16; cp.async.cg.shared.global [%r5], [%rd6], 16, %r7;" + wait +
                  "mov.u32 %r0, %r2;",
              [](uint64_t l) {
                const uint64_t whole = word(l % 8 * 16 + 4);
                return l >= 8 ? whole : l <= 4 ? 0 : whole & ((uint64_t{1} << (8 * (l - 4))) - 1);
              });
  check_lanes(kSetup +
                  "cp.async.ca.shared.global [%r5], [%rd6], 4, 2; cp.async.wait_all; "
                  "ld.shared.u32 %r0, [%r5];",
              [](uint64_t l) { return word(l % 8 * 16) & 0xffff; });
  check_lanes(kSetup + "setp.ge.u32 %p1, %r30, 20; cp.async.cg.shared.global [%r5], [%rd6], 16, %p1;" + wait +
                  "mov.u32 %r0, %r1;",
              [](uint64_t l) { return l >= 20 ? 0 : word(l % 8 * 16); });
  // An address from which nothing is read is not checked, not even a null pointer.
  check_lanes(
      kSetup + "cp.async.cg.shared.global [%r5], [%rd6+4096], 16, 0;" + wait + "or.b32 %r0, %r1, %r4;",
      [](uint64_t) { return 0; });
}

TEST_CASE("a wait for groups leaves the latest ones in flight") {
  const std::string two_groups = kSetup + R"(
    cp.async.ca.shared.global [%r5], [%rd5], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r5+4], [%rd5+4], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r5+8], [%rd5+8], 4;
  )";
  const auto first = [](uint64_t l) { return word(4 * l); };
  const auto second = [](uint64_t l) { return word(4 * l + 4); };
  check_lanes(two_groups + "cp.async.wait_group 1; ld.shared.u32 %r0, [%r5];", first);
  check_lanes(two_groups + "cp.async.wait_group 0; ld.shared.u32 %r0, [%r5+4];", second);
  const auto early = [&](const std::string& rest) { return finding_of(two_groups + rest).kind; };
  CHECK(early("cp.async.wait_group 2; ld.shared.u32 %r0, [%r5];") == FindingKind::async_in_flight);
  CHECK(early("cp.async.wait_group 1; ld.shared.u32 %r0, [%r5+4];") == FindingKind::async_in_flight);
  CHECK(early("cp.async.wait_group 0; ld.shared.u32 %r0, [%r5+8];") == FindingKind::async_in_flight);
}

TEST_CASE("each lane counts its own groups") {
  // Lanes from 16 on commit once more, so they have one more group before the latest.
  const std::string body = kSetup + R"(
    cp.async.ca.shared.global [%r5], [%rd5], 4;
    cp.async.commit_group;
    setp.ge.u32 %p1, %r30, 16;
    @%p1 cp.async.commit_group;
    cp.async.wait_group 1;
  )";
  check_lanes(body + "mov.u32 %r0, 7; @%p1 ld.shared.u32 %r0, [%r5];",
              [](uint64_t l) { return l >= 16 ? word(4 * l) : 7; });
  CHECK(finding_of(body + "@!%p1 ld.shared.u32 %r0, [%r5];").kind == FindingKind::async_in_flight);
}

TEST_CASE("accessing bytes in flight is a finding that names the copy") {
  const std::string copy = kSetup + "cp.async.ca.shared.global [%r5], [%rd5], 4;";
  const Found read = finding_of(copy + "ld.shared.u16 %r0, [%r5+2];");
  CHECK(read.kind == FindingKind::async_in_flight);
  CHECK(read.text.find("reads 2 bytes at byte 2 of the block's 1024 bytes of shared memory, which block "
                       "(0,0,0) warp 0 lane 0 at PTX line") != std::string::npos);
  CHECK(finding_of(copy + "st.shared.u32 [%r5], 1;").kind == FindingKind::async_in_flight);
  CHECK(finding_of(copy + "atom.shared.add.u32 %r0, [%r5], 1;").kind == FindingKind::async_in_flight);
  CHECK(finding_of(copy + "cp.async.ca.shared.global [%r5], [%rd5], 4;").kind ==
        FindingKind::async_in_flight);
  // Another lane's piece, which that lane alone could wait for.
  CHECK(finding_of(copy + "setp.eq.u32 %p1, %r30, 3; @!%p1 cp.async.wait_all; bar.warp.sync -1; "
                          "@!%p1 ld.shared.u32 %r0, [tile+48];")
            .kind == FindingKind::async_in_flight);
  // Nothing is in flight beside it.
  check_lanes(copy + "st.shared.u32 [%r5+4], 9; ld.shared.u32 %r0, [%r5+4];", [](uint64_t) { return 9; });
}

TEST_CASE("a wait covers only the lane's own copies: others need a barrier after it") {
  const std::string copy = kSetup + "cp.async.ca.shared.global [%r5], [%rd5], 4; cp.async.wait_all;";
  const std::string neighbour = "xor.b32 %r7, %r5, 16; ld.shared.u32 %r0, [%r7];";
  CHECK(finding_of(copy + neighbour).kind == FindingKind::warp_race);
  check_lanes(copy + "bar.warp.sync -1;" + neighbour, [](uint64_t l) { return word(4 * (l ^ 1)); });
  // The other warp's, with the barrier before the wait instead of after it.
  const FindingKind kind =
      finding_of(kSetup +
                     "cp.async.ca.shared.global [%r5], [%rd5], 4; bar.sync 0; cp.async.wait_all;"
                     "xor.b32 %r7, %r5, 512; ld.shared.u32 %r0, [%r7];",
                 64)
          .kind;
  CHECK((kind == FindingKind::shared_race || kind == FindingKind::async_in_flight));
}

TEST_CASE("an asynchronous copy into memory that others still read is a race") {
  const std::string reads = kSetup +
                            "st.shared.u32 [%r5], 1; bar.warp.sync -1; xor.b32 %r7, %r5, 16; "
                            "ld.shared.u32 %r0, [%r7];";
  const std::string copy = "cp.async.ca.shared.global [%r5], [%rd5], 4; cp.async.wait_all;";
  CHECK(finding_of(reads + copy).kind == FindingKind::warp_race);
  check_lanes(reads + "bar.warp.sync -1;" + copy, [](uint64_t) { return 1; });
}

TEST_CASE("source and target of an asynchronous copy are checked at issue") {
  const auto found = [](const std::string& copy) { return finding_of(kSetup + copy).kind; };
  CHECK(found("cp.async.cg.shared.global [%r5+8], [%rd6], 16;") == FindingKind::misaligned_access);
  CHECK(found("cp.async.cg.shared.global [%r5], [%rd5], 16;") == FindingKind::misaligned_access);
  CHECK(found("cp.async.cg.shared.global [%r5], [%rd5], 16, 3;") == FindingKind::misaligned_access);
  CHECK(found("cp.async.cg.shared.global [%r5+1024], [%rd6], 16;") == FindingKind::out_of_bounds);
  CHECK(found("cp.async.cg.shared.global [%r5], [%rd6+256], 16;") == FindingKind::out_of_bounds);
  CHECK(found("cp.async.cg.shared.global [%r5], [%rd6], 16, 20;") == FindingKind::out_of_bounds);
  CHECK(found("cp.async.cg.shared.global [tile], [%rd6], 16;") == FindingKind::colliding_writes);
}

TEST_CASE("copies without a wait end with their block") {
  check_lanes(kSetup + "cp.async.cg.shared.global [%r5], [%rd6], 16; mov.u32 %r0, 3;",
              [](uint64_t) { return 3; });
}

TEST_CASE("unsupported forms of asynchronous copies are errors") {
  const auto error = [](const std::string& body) { return test::error_of([&] { run_ptx(body); }); };
  CHECK(error("cp.async.cg.shared.global [tile], [source], 8;").find("does not copy 8 bytes at a time") !=
        std::string::npos);
  CHECK(error("cp.async.ca.shared.global.L2::cache_hint [tile], [source], 4, 4, %rd1;")
            .find("a cache policy is not supported") != std::string::npos);
  CHECK(error("cp.async.ca.global.shared [source], [tile], 4;").find("must be in shared memory") !=
        std::string::npos);
}
