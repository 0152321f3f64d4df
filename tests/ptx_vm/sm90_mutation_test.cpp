// The kernels of attention and of products on sm_90 hold no instruction that could be missing: without a
// barrier, a fence, a wait, a copy or a mask, or with another number in it, the machine has a finding, or the
// values change.

#include "bench/kernels/attention_setting.h"
#include "bench/kernels/gemm_setting.h"
#include "bench/kernels/grouped_case.h"
#include "bench/kernels/head_setting.h"
#include "build_config.h"
#include "kernels/gemm.h"
#include "runtime/gpu.h"
#include "tests/ptx_vm/ptx_mutation.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

namespace {

// Three things that the machine cannot notice are not here: warpgroups that do not take turns only take
// longer; it does not know the registers that ptxas assigns, so that none need be taken; and global memory is
// the same for threads and for the copy engine, without a fence between the two. It also moves the warps of a
// group in step, of which only a barrier makes sure before they write rows through shared memory.
const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all{
      {"no fence of products", std::regex("wgmma.fence.*"), ""},
      {"no commit", std::regex("wgmma.commit_group.*"), ""},
      {"a wait for fewer products", std::regex("(wgmma.wait_group.sync.aligned) (\\d);"), "$1 7;"},
      {"a barrier without an arrival", std::regex("mbarrier.arrive.release.*"), ""},
      {"a barrier that expects more", std::regex("(mbarrier.init.shared::cta.b64 .*), ([^;]*);"),
       "{ .reg .b32 more; add.u32 more, $2, 1; $1, more; }"},
      {"no wait at a barrier", std::regex("mbarrier.try_wait.*"), "setp.eq.u32 done, 0, 0;"},
      {"no barrier of the block", std::regex("(bar|barrier).sync\\s+0;"), ""},
      {"no turn for the next", std::regex("bar.arrive.*"), ""},
      {"no copy", std::regex("cp.async.bulk.tensor.*"), ""},
      {"no copy of a piece", std::regex("cp.async.cg.*"), ""},
      {"no group of copies", std::regex("cp.async.commit_group;"), ""},
      {"a wait for fewer copies", std::regex("(cp.async.wait_group) (\\d);"), "$1 7;"},
      {"no expected bytes", std::regex("mbarrier.arrive.expect_tx(.*), [^,]*;"), "mbarrier.arrive$1;"},
      {"registers are kept", std::regex("setmaxnreg.dec.*"), ""},
      {"another sign", std::regex("(wgmma.mma_async.*adds, 1), 1(.*)"), "$1, -1$2"},
      {"the other phase", std::regex("mbarrier.try_wait(.*), ([^,]*);"),
       "{ .reg .b32 other; xor.b32 other, $2, 1; mbarrier.try_wait$1, other; }"},
      {"no swizzle", std::regex("(or.b64 .*), 4611686\\d*;"), "$1, 274877906944;"},
      {"another stride between rows", std::regex("(or.b64 .*), 4611686293305294848;"),
       "$1, 4611686155866341376;"},
      {"no stride between panels", std::regex("(or.b64 .*), (46116862933[3-9]\\d*);"),
       "$1, 4611686293305294848;"},
      {"no mask", std::regex("selp.f32 ([^,]*), ([^,]*), 0fFF800000, .*"), "mov.f32 $1, $2;", true},
      {"no mask", std::regex("selp.f32 ([^,]*), 0fFF800000, ([^,]*), .*"), "mov.f32 $1, $2;", true},
      {"no tile that needs a mask", std::regex("vote.sync.all.pred\\s+([^,]*), .*"), "setp.eq.u32 $1, 0, 0;"},
      {"no product", std::regex("wgmma.mma_async.*"), "}"},
      {"no fence of shared memory", std::regex("fence.proxy.async.shared.*"), ""},
      {"matrices are not transposed", std::regex("(stmatrix.sync.aligned.m8n8.x4).trans(.*)"), "$1$2"},
      {"no wait for the blocks before", std::regex("ld.acquire.gpu.global.b32 ([^,]*), .*"),
       "mov.b32 $1, 0;"},
      {"a wait for the other half", std::regex("(ld.acquire.gpu.global.b32 .*)\\];"), "$1+4];"},
      {"no acquire", std::regex("ld.acquire(.*)"), "ld.relaxed$1"},
      {"no release", std::regex("red.release(.*)"), "red.relaxed$1"},
      {"no count", std::regex("red.release.*"), ""},
      {"a count too many", std::regex("(red.release[^,]*), ([^,;]*);"),
       "{ .reg .b32 more; add.u32 more, $2, 1; $1, more; }"},
      {"a store for an addition", std::regex("cp.reduce.async.bulk(.*).add.f32(.*)"), "cp.async.bulk$1$2"},
      {"an addition for a store", std::regex("cp.async.bulk(.global.shared::cta.bulk_group)(.*)"),
       "cp.reduce.async.bulk$1.add.f32$2"},
      {"no group of pieces", std::regex("cp.async.bulk.commit_group.*"), ""},
      {"no wait until pieces are read", std::regex("cp.async.bulk.wait_group.read.*"), ""},
      {"no wait until pieces are there", std::regex("cp.async.bulk.wait_group 0.*"), ""},
      {"lanes keep their sums", std::regex("shfl.sync.bfly.b32\\s+([^|]*)\\|[^,]*, ([^,]*), .*"),
       "mov.b32 $1, $2;"},
      {"blocks that begin are not counted", std::regex("(atom(.global)?.add.u32 .*), 1;"), "$1, 0;"},
  };
  return all;
}

// Those of kernels with a soft cap, which have the others too.
const std::vector<Mutation>& cap_mutations() {
  static const std::vector<Mutation> all{
      {"no soft cap", std::regex("tanh.approx.f32 ([^,]*), ([^;]*);"), "mov.f32 $1, $2;", true},
      {"no slope of the soft cap", std::regex("fma.rn.f32 ([^,]*), .*, 0f3F800000;"),
       "mov.f32 $1, 0f3F800000;", true}};
  return all;
}

// Kernels by the names of their source and of their machine code.
MutatedKernel forward(int D) {
  return {str("forward_sm90_kernel<flatshard::bf16, ", D, ", 2>"),
          str("forward_sm90_kernelINS_4bf16ELi", D, "ELi2E")};
}
MutatedKernel gradient(const char* of, int D, bool capped) {
  return {str(of, "_gradient_sm90_kernel<flatshard::bf16, ", D, capped ? ", true>" : ", false>"),
          str(of, "_gradient_sm90_kernelINS_4bf16ELi", D, "ELb", capped ? 1 : 0, "E")};
}
MutatedKernel one_pass(int D) {
  return {str("one_pass_kernel<flatshard::bf16, ", D, ">"), str("one_pass_kernelINS_4bf16ELi", D, "E")};
}

struct Subject {
  MutatedKernel kernel;
  bool is_backward;
  int64_t D;
  double softcap = 0;
  bool one_pass = false;
  bool is_twin = false;  // of a kernel with another head size: only in tests/nightly
};
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{{forward(64), false, 64},
                                        {forward(128), false, 128, 0, false, true},
                                        {gradient("query", 64, false), true, 64},
                                        {gradient("key", 64, false), true, 64},
                                        {gradient("query", 128, false), true, 128, 0, false, true},
                                        {gradient("key", 128, false), true, 128, 0, false, true},
                                        {gradient("query", 64, true), true, 64, 1},
                                        {gradient("key", 64, true), true, 64, 1},
                                        {one_pass(64), true, 64, 0, true},
                                        {one_pass(128), true, 128, 0, true, true}};
  return all;
}

constexpr int kLeastMutants = 40;

// Checks the mutations of the kernels, each in up to so many places of a kernel.
void check_kernels(bool twins, size_t most_places) {
  int mutants = 0;
  for (const Subject& subject : subjects()) {
    if (subject.is_twin && !twins) continue;
    // Every stage of every ring is used twice.
    const AttentionSetting setting{.queries = {70, 560},
                                   .Hq = 1,
                                   .Hkv = 1,
                                   .D = subject.D,
                                   .window = 530,
                                   .softcap = subject.softcap,
                                   .one_pass = subject.one_pass};
    const Case c = (subject.is_backward ? backward_case : forward_case)(DType::bf16, setting);
    mutants +=
        check_mutations(subject.kernel, subject.softcap > 0 ? cap_mutations() : mutations(), c, most_places);
  }
  MESSAGE(mutants, " mutants");
  CHECK(mutants >= kLeastMutants);
}

// A product by one block, which computes several tiles and goes around its ring of stages for each.
struct ProductSubject {
  const char *types, *mangled_types;  // of jobs and end
  bool transpose_a, transpose_b;
  Case c;
  bool is_twin = false;  // only in tests/nightly
  int gathers = 0;       // the value of Gathers
};
Case product(bool ta, bool tb, DType out, GemmEnd end = GemmEnd::none) {
  return gemm_case(
      {DType::bf16,
       out,
       144,
       end == GemmEnd::rotated ? 576 : 528,
       344,
       {.transpose_a = ta, .transpose_b = tb, .accumulate = out == DType::f32, .own = true, .end = end}});
}
// The same with segments, of which one has no rows, and rows behind the last.
Case segments(GroupedKind kind, int64_t tokens = 0) {
  return grouped_case({.dtype = DType::bf16,
                       .kind = kind,
                       .rows = {192, 0, 64},
                       .behind = 64,
                       .M = 136,
                       .N = 264,
                       .K = 344,
                       .accumulate = kind == GroupedKind::weight_gradient,
                       .tokens = tokens});
}
std::vector<ProductSubject> products() {
  constexpr const char *kPlain = "DenseJobs, flatshard::cuda::PlainEnd<flatshard::bf16, flatshard::bf16>",
                       *kMangledPlain = "9DenseJobsENS0_8PlainEndIS2_S2_E",
                       *kPlainF32 = "DenseJobs, flatshard::cuda::PlainEnd<flatshard::bf16, float>",
                       *kMangledPlainF32 = "9DenseJobsENS0_8PlainEndIS2_fE";
  return {
      {kPlain, kMangledPlain, false, true, product(false, true, DType::bf16)},
      {kPlain, kMangledPlain, false, false, product(false, false, DType::bf16), true},
      {kPlainF32, kMangledPlainF32, true, false, product(true, false, DType::f32)},
      {kPlainF32, kMangledPlainF32, true, true, product(true, true, DType::f32), true},
      {"DenseJobs, flatshard::cuda::GatedEnd<flatshard::bf16, flatshard::cuda::Silu>",
       "9DenseJobsENS0_8GatedEndIS2_NS0_4SiluEE", false, true,
       product(false, true, DType::bf16, GemmEnd::gated), true},
      {"DenseJobs, flatshard::cuda::GradientEnd<flatshard::bf16, flatshard::cuda::Silu>",
       "9DenseJobsENS0_11GradientEndIS2_NS0_4SiluEE", false, false,
       product(false, false, DType::bf16, GemmEnd::gradient), true},
      {"RowSegments, flatshard::cuda::PlainEnd<flatshard::bf16, flatshard::bf16>",
       "11RowSegmentsENS0_8PlainEndIS2_S2_E", false, true, segments(GroupedKind::forward), true},
      {"TermSegments, flatshard::cuda::PlainEnd<flatshard::bf16, float>",
       "12TermSegmentsENS0_8PlainEndIS2_fE", true, false, segments(GroupedKind::weight_gradient), true},
      {"RowSegments, flatshard::cuda::PlainEnd<flatshard::bf16, flatshard::bf16>",
       "11RowSegmentsENS0_8PlainEndIS2_S2_E", false, true, segments(GroupedKind::forward, 50), false, 1},
      {"TermSegments, flatshard::cuda::PlainEnd<flatshard::bf16, float>",
       "12TermSegmentsENS0_8PlainEndIS2_fE", true, false, segments(GroupedKind::weight_gradient, 50), true,
       2},
      {"DenseJobs, flatshard::cuda::RotatedEnd<flatshard::bf16, 32>", "9DenseJobsENS0_10RotatedEndIS2_Li32EE",
       false, true, product(false, true, DType::bf16, GemmEnd::rotated), true},
      {"DenseJobs, flatshard::cuda::ExponentialEnd<flatshard::bf16>", "9DenseJobsENS0_14ExponentialEndIS2_EE",
       false, true, head_backward_case(DType::bf16, {.N = 144, .C = 344, .V = 530, .own = true}), true}};
}

void check_products(bool twins, size_t most_places, int least) {
  const Device device = Device::cuda(0);
  spare_multiprocessors(device, multiprocessors(device) - 1);
  int mutants = 0;
  for (const ProductSubject& s : products()) {
    if (s.is_twin && !twins) continue;
    const auto flag = [](bool is) { return is ? "true" : "false"; };
    const MutatedKernel kernel{
        str("gemm_sm90_kernel<flatshard::bf16, flatshard::cuda::", s.types, ", ", flag(s.transpose_a), ", ",
            flag(s.transpose_b), ", (flatshard::cuda::Gathers)", s.gathers, ">"),
        str("gemm_sm90_kernelINS_4bf16ENS0_", s.mangled_types, "ELb", s.transpose_a ? 1 : 0, "ELb",
            s.transpose_b ? 1 : 0, "ELNS0_7GathersE", s.gathers, "E")};
    mutants += check_mutations(kernel, mutations(), s.c, most_places);
  }
  spare_multiprocessors(device, 0);
  MESSAGE(mutants, " mutants");
  CHECK(mutants >= least);
}

}  // namespace

TEST_CASE("attention on sm_90 has no barrier or fence or wait or copy or constant that could be another") {
  check_kernels(false, 1);
}

TEST_CASE("attention on sm_90 could have no instruction another in two places of any kernel" *
          doctest::test_suite("nightly") * doctest::skip()) {
  check_kernels(true, 2);
}

TEST_CASE("products on sm_90 have no barrier or fence or wait or copy or constant that could be another") {
  if (!kCublasBuilt) return test::skip("a build without cuBLASLt");
  check_products(false, 1, 30);
}

TEST_CASE("products on sm_90 could have no instruction another in two places of any kernel" *
          doctest::test_suite("nightly") * doctest::skip()) {
  if (!kCublasBuilt) return test::skip("a build without cuBLASLt");
  check_products(true, 2, 60);
}
