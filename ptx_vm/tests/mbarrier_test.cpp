// mbarriers: their state after each operation, misuse, and the ordering that a wait establishes.

#include <algorithm>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/run_ptx.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// Lane 0 initializes the mbarrier `tile` for `count` arrivals and makes it visible; then the lines run.
std::string with_barrier(int count, const std::string& lines) {
  return str("setp.eq.u32 %p0, %r30, 0;\n@%p0 mbarrier.init.shared::cta.b64 [tile], ", count,
             ";\nbar.sync 0;\n", lines);
}

// A line for lane 0 that tests whether the phase of this parity is complete: bit `bit` of %r0.
std::string asks(const char* parity, int bit) {
  return str("mbarrier.test_wait.parity.shared.b64 %p1, [tile], ", parity,
             ";\nselp.u32 %r1, 1, 0, %p1;\nshl.b32 %r1, %r1, ", bit, ";\nor.b32 %r0, %r0, %r1;\n");
}

// The result of a single lane.
uint64_t alone(const std::string& body) { return run_ptx(body, 1)[0]; }

FindingKind kind_found(const std::string& body, uint32_t threads = 32) {
  test::error_of([&] { run_ptx(body, threads); });
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  return found[0].kind;
}

}  // namespace

TEST_CASE("an mbarrier completes a phase with the last arrival and the last byte") {
  const std::string begin = "mbarrier.init.shared::cta.b64 [tile], 1;\n";
  CHECK(alone(begin + asks("1", 0) + asks("0", 1)) == 0b01);
  CHECK(alone(begin + "mbarrier.arrive.shared::cta.b64 _, [tile];\n" + asks("0", 0) + asks("1", 1)) == 0b01);
  const std::string announced =
      begin + "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [tile], 128;\n";
  CHECK(alone(announced + asks("0", 0)) == 0);
  const std::string half = announced + "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [tile], 64;\n";
  CHECK(alone(half + asks("0", 0)) == 0);
  CHECK(alone(half + "mbarrier.complete_tx.shared::cta.b64 [tile], 64;\n" + asks("0", 0) + asks("1", 1)) ==
        0b01);
  // Bytes may arrive before they are announced.
  CHECK(alone(begin +
              "mbarrier.complete_tx.shared::cta.b64 [tile], 32;\n"
              "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [tile], 32;\n"
              "mbarrier.arrive.release.cta.shared::cta.b64 _, [tile];\n" +
              asks("0", 0)) == 1);
  // After two phases the parity is that of the first again.
  CHECK(alone(begin +
              "mbarrier.arrive.shared::cta.b64 _, [tile];\nmbarrier.arrive.shared::cta.b64 _, [tile];\n" +
              asks("0", 0) + asks("1", 1)) == 0b10);
}

TEST_CASE("the state returned by an arrival encodes its phase and the pending count") {
  const std::string begin = "mbarrier.init.shared::cta.b64 [tile], 3;\n";
  CHECK(alone(begin + "mbarrier.arrive.shared::cta.b64 %rd1, [tile], 2;\n"
                      "mbarrier.pending_count.b64 %r0, %rd1;") == 3);
  CHECK(alone(begin + "mbarrier.arrive.noComplete.shared::cta.b64 %rd1, [tile], 2;\n"
                      "mbarrier.arrive.shared::cta.b64 %rd1, [tile];\n"
                      "mbarrier.pending_count.b64 %r0, %rd1;") == 1);
  const std::string waits =
      "mbarrier.try_wait.shared::cta.b64 %p1, [tile], %rd1, 1000;\n"
      "selp.u32 %r0, 1, 0, %p1;\n";
  const ScopedOptions scope({.async = AsyncTiming::late});  // else try_wait fails now and then
  CHECK(alone(begin + "mbarrier.arrive.shared::cta.b64 %rd1, [tile], 2;\n" + waits) == 0);
  CHECK(alone(begin + "mbarrier.arrive.shared::cta.b64 %rd1, [tile], 3;\n" + waits) == 1);
  // A lane that drops out is not expected again: after one drop of 3 the next phase takes 2.
  CHECK(alone(begin +
              "mbarrier.arrive_drop.shared::cta.b64 _, [tile];\n"
              "mbarrier.arrive.shared::cta.b64 _, [tile], 2;\n"
              "mbarrier.arrive.shared::cta.b64 %rd1, [tile], 2;\n" +
              waits) == 1);
  CHECK(alone(begin +
              "mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [tile], 16;\n"
              "mbarrier.arrive.shared::cta.b64 %rd1, [tile], 2;\n"
              "mbarrier.complete_tx.shared::cta.b64 [tile], 16;\n" +
              waits) == 1);
}

TEST_CASE("every lane arrives separately, also at generic addresses") {
  const auto expect_all = [](const std::string& arrives) {
    for (const uint64_t result : run_ptx(with_barrier(64, arrives + R"(
      WAIT:
        mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [tile], 0;
        @!%p1 bra WAIT;
        mov.u32 %r0, 7;
      )"),
                                         64))
      CHECK(result == 7);
  };
  expect_all("mbarrier.arrive.shared::cta.b64 _, [tile];\n");
  expect_all("mov.u64 %rd1, tile; cvta.shared.u64 %rd1, %rd1; mbarrier.arrive.b64 _, [%rd1];\n");
  expect_all("mov.u32 %r1, tile; sub.u32 %r1, %r1, 8; mbarrier.arrive.shared.b64 _, [%r1+8];\n");
}

TEST_CASE("a wait for an mbarrier orders everything before the arrivals") {
  // Warp 0 writes, warp 1 reads: with the wait in between, or without.
  const auto hands_over = [](const std::string& wait) {
    return with_barrier(32, R"(
      setp.lt.u32 %p2, %r30, 32;
      and.b32 %r1, %r30, 31;
      shl.b32 %r1, %r1, 2;
      mov.u32 %r2, tile;
      add.u32 %r1, %r1, %r2;
      @!%p2 bra READ;
      st.shared.u32 [%r1+64], 5;
      mbarrier.arrive.release.cta.shared::cta.b64 _, [tile];
      bra.uni END;
    READ:
    )" + wait + R"(
      @!%p1 bra READ;
      ld.shared.u32 %r0, [%r1+64];
    END:
    )");
  };
  for (const Schedule schedule : {Schedule::in_order, Schedule::reverse, Schedule::random}) {
    const ScopedOptions scope({.schedule = schedule});
    const std::vector<uint64_t> read =
        run_ptx(hands_over("mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p1, [tile], 0;"), 64);
    CHECK(std::count(read.begin() + 32, read.end(), 5u) == 32);
    const FindingKind without =
        kind_found(hands_over("mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 %p1, [tile], 0;"), 64);
    CHECK(without == FindingKind::shared_race);
    const FindingKind too_early =
        kind_found(hands_over("mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p1, [tile], 1;"), 64);
    CHECK((too_early == FindingKind::shared_race || too_early == FindingKind::uninitialised_read ||
           too_early == FindingKind::deadlock));  // where the phase has ended already
  }
}

TEST_CASE("mbarrier misuse is found") {
  using enum FindingKind;
  const std::string begin = "mbarrier.init.shared::cta.b64 [tile], 1;\n";
  CHECK(kind_found("mbarrier.init.shared::cta.b64 [tile], 0;", 1) == mbarrier_misuse);
  CHECK(kind_found("mbarrier.init.shared::cta.b64 [tile], 0x100000;", 1) == mbarrier_misuse);
  CHECK(kind_found("mbarrier.init.shared::cta.b64 [tile+4], 1;", 1) == misaligned_access);
  CHECK(kind_found("mbarrier.arrive.shared::cta.b64 _, [tile];", 1) == mbarrier_misuse);
  CHECK(kind_found(begin + "mbarrier.init.shared::cta.b64 [tile], 1;", 1) == mbarrier_misuse);
  CHECK(kind_found(begin + "mbarrier.arrive.shared::cta.b64 _, [tile], 2;", 1) == mbarrier_misuse);
  CHECK(kind_found(begin + "mbarrier.arrive.noComplete.shared::cta.b64 %rd1, [tile], 1;", 1) ==
        mbarrier_misuse);
  CHECK(kind_found(begin + "mbarrier.expect_tx.shared::cta.b64 [tile], 0xfffff;\n"
                           "mbarrier.expect_tx.shared::cta.b64 [tile], 1;",
                   1) == mbarrier_misuse);
  CHECK(kind_found(begin + "mbarrier.complete_tx.shared::cta.b64 [tile], 32;\n"
                           "mbarrier.arrive.expect_tx.shared::cta.b64 _, [tile], 16;",
                   1) == mbarrier_misuse);
  CHECK(kind_found(begin + "ld.shared.u32 %r0, [tile+4];", 1) == mbarrier_misuse);
  CHECK(kind_found(begin + "st.shared.u32 [tile], 0;", 1) == mbarrier_misuse);
  CHECK(kind_found("setp.eq.u32 %p0, %r30, 0; @%p0 mbarrier.init.shared::cta.b64 [tile], 64;\n"
                   "mbarrier.arrive.shared::cta.b64 _, [tile];",
                   64) == mbarrier_misuse);
  CHECK(kind_found(begin + "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;\n"
                           "@!%p1 bra WAIT;",
                   1) == deadlock);
  // After its end the word is memory like any other.
  CHECK(alone(begin + "mbarrier.inval.shared::cta.b64 [tile];\n"
                      "st.shared.u32 [tile], 9; ld.shared.u32 %r0, [tile];") == 9);
}

TEST_CASE("the report of a deadlock at an mbarrier states what is missing") {
  test::error_of([] {
    run_ptx(with_barrier(33, R"(
      mbarrier.arrive.shared::cta.b64 _, [tile];
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0;
      @!%p1 bra WAIT;
    )"));
  });
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CAPTURE(found[0].text);
  CHECK(found[0].text.find("in phase 0, where 1 of 33 arrivals and 0 bytes are still expected") !=
        std::string::npos);
}

TEST_CASE("elect.sync elects the first lane of its mask") {
  const std::vector<uint64_t> chosen = run_ptx(
      "elect.sync %r1|%p1, 0xffffffff; selp.u32 %r0, 1, 0, %p1;\n"
      "shl.b32 %r1, %r1, 8; or.b32 %r0, %r0, %r1;");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(chosen[lane] == (lane == 0));
  const std::vector<uint64_t> upper = run_ptx(R"(
    setp.lt.u32 %p0, %r30, 12;
    @%p0 bra END;
    elect.sync _|%p1, 0xfffff000;
    selp.u32 %r0, 1, 0, %p1;
  END:
  )");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(upper[lane] == (lane == 12));
}

TEST_CASE("fences of all kinds are supported if the code's architecture has them") {
  run_ptx(
      "membar.cta; membar.gl; membar.sys; fence.sc.gpu; fence.acq_rel.cluster;\n"
      "fence.mbarrier_init.release.cluster; fence.proxy.async; fence.proxy.async.shared::cta;\n"
      "fence.proxy.async.global; fence.proxy.alias;");
  CHECK(test::error_of([] { run_ptx("fence.proxy.texture;"); }).find("are supported") != std::string::npos);
  CHECK(test::error_of([] { run_ptx("fence.acq_rel;"); }).find("a scope is missing") != std::string::npos);
  CHECK(test::error_of([] {
          run_ptx("fence.mbarrier_init.release.cluster;", 32, "", 80);
        }).find("needs sm_90") != std::string::npos);
  CHECK(test::error_of([] { run_ptx("elect.sync _|%p1, -1;", 32, "", 80); }).find("needs sm_90") !=
        std::string::npos);
}

TEST_CASE("an arrival after copies makes their data visible to others") {
  const std::string begin = "mbarrier.init.shared::cta.b64 [tile], ";
  const std::string copy = "cp.async.ca.shared.global [tile+64], [source+16], 16;\n";
  const std::string read =
      "WAIT: mbarrier.test_wait.parity.shared::cta.b64 %p1, [tile], 0;\n@!%p1 bra WAIT;\n"
      "ld.shared.u32 %r0, [tile+68];";
  CHECK(alone(begin + "1;\n" + copy + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile];\n" + read) ==
        0x17161514);
  CHECK(alone(begin + "1;\n" + copy +
              "cp.async.mbarrier.arrive.shared::cta.b64 [tile];\n"
              "mbarrier.arrive.shared::cta.b64 _, [tile];\n" +
              read) == 0x17161514);
  CHECK(alone(begin + "1;\n" + copy +
              "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile];\n"
              "cp.async.wait_all;\n" +
              read) == 0x17161514);
  // The first lane of warp 0 copies, warp 1 waits and reads.
  const std::string between =
      with_barrier(1, "setp.lt.u32 %p2, %r30, 32; @!%p2 bra WAIT; @!%p0 bra END;\n" + copy +
                          "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [tile];\n"
                          "bra.uni END;\n" +
                          read + "\nEND:\n");
  for (const AsyncTiming timing : {AsyncTiming::early, AsyncTiming::late, AsyncTiming::random}) {
    const ScopedOptions scope({.async = timing});
    const std::vector<uint64_t> results = run_ptx(between, 64);
    CHECK(std::count(results.begin() + 32, results.end(), 0x17161514u) == 32);
  }
}
