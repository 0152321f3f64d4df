// cp.async.bulk, cp.reduce.async.bulk and the instructions of clusters, form by form.

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/opcode_check.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

uint64_t alone(const std::string& body) { return run_ptx(body, 1)[0]; }

// An mbarrier at `tile` that waits for 32 bytes, then the copy, then the wait.
std::string loaded(const std::string& copy, const std::string& then) {
  return "mbarrier.init.shared::cta.b64 [tile], 1; fence.mbarrier_init.release.cluster;\n"
         "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [tile], 32;\n" +
         copy + "\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile], 0; @!%p1 bra WAIT;\n" + then;
}

// The store combines `tile` with 16 bytes of global memory `source` that begin with `there`.
std::string stored(const std::string& there, const std::string& here, const std::string& store) {
  return str("st.global.v4.b32 [source], {", there, ", ", there, ", ", there, ", ", there,
             "}; st.shared.v4.b32 [tile], {", here, ", ", here, ", ", here, ", ", here,
             "}; fence.proxy.async;\n", store,
             "\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u32 %r0, [source+8];");
}

std::string reduced(const std::string& operation, const std::string& there, const std::string& here) {
  return stored(there, here, operation + " [source], [tile], 16;");
}

FindingKind kind_found(const std::string& body) {
  test::error_of([&] { run_ptx(body, 1); });
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  return found[0].kind;
}

}  // namespace

TEST_CASE("a bulk load copies to shared memory and counts its bytes at the mbarrier") {
  const std::string read = "ld.shared.u32 %r0, [tile+68];";
  const std::string load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
  CHECK(alone(loaded(load + " [tile+64], [source+16], 32, [tile];", read)) == 0x17161514);
  CHECK(alone(loaded(load + ".L2::cache_hint [tile+64], [source+16], 32, [tile], %rd1;", "" + read)) ==
        0x17161514);
  CHECK(
      alone("createpolicy.fractional.L2::evict_first.b64 %rd1, 0f3F800000;\n" +
            loaded("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [tile+64], "
                   "[source+16], 32, [tile], %rd1;",
                   read)) == 0x17161514);
  // Within the cluster, which has one block here: to itself.
  CHECK(alone("mov.u32 %r1, tile; mapa.shared::cluster.u32 %r2, %r1, 0;\n"
              "st.shared.v4.u32 [tile+32], {1, 2, 3, 4}; st.shared.v4.u32 [tile+48], {5, 6, 7, 8};\n"
              "fence.proxy.async;\n" +
              loaded("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2+64], "
                     "[tile+32], 32, [%r2];",
                     "ld.shared.u32 %r0, [tile+84];")) == 6);
  // To all blocks of a mask; here there is one.
  const std::string multicast =
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile+64], "
      "[source+16], 32, [tile], %rs1;";
  CHECK(alone("mov.u16 %rs1, 1;" + loaded(multicast, read)) == 0x17161514);
  CHECK(kind_found("mov.u16 %rs1, 2;" + loaded(multicast, read)) == FindingKind::out_of_bounds);
  CHECK(alone("cp.async.bulk.prefetch.L2.global [source], 32; mov.u32 %r0, 1;") == 1);
}

TEST_CASE("a bulk store writes global memory, or reduces it, type by type") {
  const std::string copy = "cp.async.bulk.global.shared::cta.bulk_group [source], [tile], 16;";
  CHECK(alone(stored("7", "9", copy)) == 9);
  struct Reduction {
    const char *operation, *there, *here;
    uint64_t expected;
  };
  for (const auto& [operation, there, here, expected] : std::vector<Reduction>{
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", "7", "9", 16},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32", "7", "-9", 0xfffffffe},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32", "7", "-9", 0xfffffff7},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32", "7", "-9", 0xfffffff7},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.min.u32", "7", "-9", 7},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32", "7", "-9", 7},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.and.b32", "6", "12", 4},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.or.b32", "6", "12", 14},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.b32", "6", "12", 10},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.u32", "7", "9", 8},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.u32", "9", "9", 0},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.dec.u32", "7", "9", 6},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.dec.u32", "0", "9", 9},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64", "7", "0xffffffff",
            6},  // the low half of 0x0000000700000007 - 1
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s64", "7", "-9", 0xfffffff7},
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "0x3fc00000", "0x40100000",
            0x40700000},  // 1.5 + 2.25
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16", "0x3f803f80", "0x40004000",
            0x40404040},  // 1 + 2
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16", "0x3c003c00", "0x40004000",
            0x42004200},  // 1 + 2
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.min.bf16", "0x3f80c000", "0x4000bf80",
            0x3f80c000},  // 1 and 2, -2 and -1
           {"cp.reduce.async.bulk.global.shared::cta.bulk_group.max.f16", "0x3c00c000", "0x4000bc00",
            0x4000bc00},
       }) {
    CAPTURE(operation);
    CHECK(alone(reduced(operation, there, here)) == expected);
  }
  CHECK(alone(stored("0", "0",
                     "st.global.f64 [source+8], 0d3FF8000000000000;\n"
                     "st.shared.f64 [tile+8], 0d4002000000000000; fence.proxy.async;\n"
                     "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [source], [tile], 16;") +
              "ld.global.u32 %r0, [source+12];") == 0x400e0000);  // 1.5 + 2.25
}

TEST_CASE("groups of bulk stores complete in order") {
  const std::string two =
      "st.shared.v4.u32 [tile], {1, 1, 1, 1}; st.shared.v4.u32 [tile+16], {2, 2, 2, 2}; fence.proxy.async;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [source], [tile], 16;\n"
      "cp.async.bulk.commit_group;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [source+16], [tile+16], 16;\n"
      "cp.async.bulk.commit_group;\n";
  const std::string end = "cp.async.bulk.wait_group 0;";
  CHECK(alone(two + "cp.async.bulk.wait_group 1; ld.global.u32 %r0, [source];" + end) == 1);
  CHECK(alone(two + "cp.async.bulk.wait_group.read 1; st.shared.u32 [tile], 5;" + end +
              "ld.global.u32 %r0, [source];") == 1);
  for (const AsyncTiming timing : {AsyncTiming::early, AsyncTiming::late, AsyncTiming::random}) {
    const ScopedOptions scope({.async = timing});
    using enum FindingKind;
    const FindingKind unwaited =
        kind_found(two + "cp.async.bulk.wait_group 1; ld.global.u32 %r0, [source+16];" + end);
    CHECK((unwaited == early_read || unwaited == async_race));
    const FindingKind only_read =
        kind_found(two + "cp.async.bulk.wait_group.read 0; ld.global.u32 %r0, [source];" + end);
    CHECK((only_read == early_read || only_read == async_race));
    CHECK(kind_found(two + "cp.async.bulk.wait_group.read 1; st.shared.u32 [tile+16], 5;" + end) ==
          async_race);
    CHECK(kind_found(two + "cp.async.bulk.wait_group 1;") == async_race);
    CHECK(kind_found("st.shared.v4.u32 [tile], {1, 1, 1, 1}; fence.proxy.async;\n"
                     "cp.async.bulk.global.shared::cta.bulk_group [source], [tile], 16;") == async_race);
  }
}

TEST_CASE("invalid bulk copies are found") {
  using enum FindingKind;
  const std::string load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
  CHECK(kind_found(loaded(load + " [tile+64], [source+8], 32, [tile];", "")) == misaligned_access);
  CHECK(kind_found(loaded(load + " [tile+72], [source], 32, [tile];", "")) == misaligned_access);
  CHECK(kind_found(loaded(load + " [tile+64], [source], 24, [tile];", "")) == misaligned_access);
  CHECK(kind_found(loaded(load + " [tile+64], [source+240], 32, [tile];", "")) == out_of_bounds);
  CHECK(kind_found(loaded(load + " [tile+1008], [source], 32, [tile];", "")) == out_of_bounds);
  CHECK(kind_found(loaded(load + " [tile], [source], 32, [tile];", "")) == mbarrier_misuse);
  CHECK(kind_found("cp.async.bulk.global.shared::cta.bulk_group [source], [tile], 16;\n"
                   "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;") == uninitialised_read);
  const auto error = [](const std::string& body) { return test::error_of([&] { run_ptx(body); }); };
  CHECK(error(reduced("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.bf16", "0", "0"))
            .find("does not exist for this type") != std::string::npos);
  CHECK(error(reduced("cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.s32", "0", "0"))
            .find("does not exist for this type") != std::string::npos);
  CHECK(error("cp.async.bulk.global.global.bulk_group [source], [source], 16;").find("state spaces") !=
        std::string::npos);
  CHECK(take_findings().empty());
}

TEST_CASE(
    "bulk additions of floats are ordered, or a finding unless the kernel may add floats in any order") {
  const std::string add =
                        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [source], [tile], 16;\n",
                    wait = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n";
  const auto twice = [&](const std::string& between) {
    return stored("0x3fc00000", "0x40100000", add + between + add);  // 1.5 + 2.25 + 2.25
  };
  CHECK(alone(twice(wait)) == 0x40c00000);
  CHECK(kind_found(twice("")) == FindingKind::float_atomic);
  CHECK(kind_found(twice("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;\n")) ==
        FindingKind::float_atomic);
  const ScopedOptions scope({.may_add_floats = {"test"}});
  CHECK(alone(twice("")) == 0x40c00000);
}

TEST_CASE("a block without a cluster is a cluster of one") {
  check_forms({
      {"mov.u32 %r0, %cluster_nctarank;", 1},
      {"mov.u32 %r0, %cluster_ctarank; add.u32 %r0, %r0, 1;", 1},
      {"mov.u32 %r0, %cluster_nctaid.x;", 1},
      {"mov.u32 %r0, %nclusterid.x;", 1},
      {"mov.u32 %r0, %clusterid.x; add.u32 %r0, %r0, 2;", 2},
      {"mov.pred %p1, %is_explicit_cluster; selp.u32 %r0, 1, 2, %p1;", 2},
      {"mov.u32 %r1, 0x410; mapa.shared::cluster.u32 %r0, %r1, 2;", 0x3000410},
      {"mov.u32 %r1, 0x3000410; getctarank.shared::cluster.u32 %r0, %r1;", 2},
      {"mov.u64 %rd1, tile; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd1, %rd1, 4; getctarank.u64 %r0, %rd1;",
       4},
      {"barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive.release.aligned;\n"
       "barrier.cluster.wait.acquire.aligned; griddepcontrol.wait; griddepcontrol.launch_dependents;\n"
       "mov.u32 %r0, 3;",
       3},
  });
  CHECK(alone("mov.u32 %r1, tile; mapa.shared::cluster.u32 %r2, %r1, 0; st.shared::cluster.u32 [%r2], 4;\n"
              "atom.shared::cluster.add.u32 %r3, [%r2], 5; red.shared::cluster.add.u32 [%r2], 1;\n"
              "ld.shared::cluster.u32 %r0, [%r2];") == 10);
  CHECK(alone("mov.u32 %r1, tile; mapa.shared::cluster.u32 %r2, %r1, 0; st.shared.f32 [tile], 0f3FC00000;\n"
              "ld.shared::cluster.f32 %f1, [%r2]; mov.b32 %r0, %f1;") == 0x3fc00000);
  CHECK(alone("mbarrier.init.shared::cta.b64 [tile], 1; fence.mbarrier_init.release.cluster;\n"
              "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;\n"
              "mov.u32 %r1, tile; mapa.shared::cluster.u32 %r2, %r1, 0;\n"
              "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];\n"
              "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %p1, [tile], 0;\n"
              "selp.u32 %r0, 1, 0, %p1;") == 1);
  using enum FindingKind;
  CHECK(kind_found(
            "mov.u32 %r1, tile; mapa.shared::cluster.u32 %r2, %r1, 1; ld.shared::cluster.u32 %r0, [%r2];") ==
        out_of_bounds);
  CHECK(kind_found("mov.u32 %r1, tile; mapa.shared::cluster.u32 %r2, %r1, 0; ld.shared.u32 %r0, [%r2];") ==
        out_of_bounds);
  CHECK(kind_found("barrier.cluster.arrive; barrier.cluster.arrive;") == barrier_count);
  CHECK(kind_found("barrier.cluster.wait;") == barrier_count);
}

TEST_CASE("tensor copies of every rank require a map") {
  const auto asks = [](const std::string& copy) {
    CAPTURE(copy);
    CHECK(kind_found("mbarrier.init.shared::cta.b64 [tile], 1; fence.mbarrier_init.release.cluster;\n" +
                     copy) == FindingKind::tensor_map);
  };
  const std::string to = " [tile+128], [source, {", barrier = "}], [tile];";
  asks("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + to + "0" +
       barrier);
  asks("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + to + "0, 1" +
       barrier);
  asks("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + to + "0, 1, 2" +
       barrier);
  asks("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + to +
       "0, 1, 2, 3" + barrier);
  asks("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + to +
       "0, 1, 2, 3, -4" + barrier);
  const std::string from = "}], [tile+128];";
  asks("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [source, {0" + from);
  asks("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [source, {0, 1" + from);
  asks("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [source, {0, 1, 2" + from);
  asks("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [source, {0, 1, 2, 3" + from);
  asks("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [source, {0, 1, 2, 3, -4" + from);
  asks("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [source, {0" + from);
  asks("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [source, {0, 1" + from);
  asks("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [source, {0, 1}];");
  asks("prefetch.tensormap [source];");
  CHECK(test::error_of([] { run_ptx("prefetch.tensormap [source];", 32, "", 80); }).find("needs sm_90") !=
        std::string::npos);
  CHECK(test::error_of([] {
          run_ptx("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [source, {0}];");
        }).find("1 coordinates for rank 2") != std::string::npos);
}
