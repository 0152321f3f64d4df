// The kernels of attention on sm_90 hold no instruction that could be missing: without a barrier, a fence, a
// wait, a copy or a mask, or with another number in it, the machine has a finding, or the values change.

#include <algorithm>
#include <regex>

#include "bench/kernels/attention_setting.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "tests/kernels/outputs.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The body of the kernel whose mangled name contains `name`, in the PTX of a file.
struct Body {
  size_t begin, end;
};
Body body_of(const std::string& ptx, const std::string& name) {
  for (size_t at = 0; (at = ptx.find(".entry", at)) != ptx.npos; ++at) {
    const size_t parameters = ptx.find('(', at);
    if (ptx.substr(at, parameters - at).find(name) == std::string::npos) continue;
    const size_t begin = ptx.find("\n{", parameters);
    return {begin, std::min(ptx.find(".entry", begin), ptx.size())};  // braces of asm are no end
  }
  fail(str("no kernel is named like ", name));
}

// A line that matches `pattern` becomes `with`.
struct Mutation {
  std::string name;
  std::regex pattern;
  std::string with;
  bool everywhere = false;  // not in one place: some masks mask nothing here
  bool of_cap = false;      // only in kernels with a soft cap, which have no other mutations
};

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
      {"no soft cap", std::regex("tanh.approx.f32 ([^,]*), ([^;]*);"), "mov.f32 $1, $2;", true, true},
      {"no slope of the soft cap", std::regex("fma.rn.f32 ([^,]*), .*, 0f3F800000;"),
       "mov.f32 $1, 0f3F800000;", true, true},
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
      {"blocks that begin are not counted", std::regex("(atom(.global)?.add.u32 .*), 1;"), "$1, 0;"},
  };
  return all;
}

struct Subject {
  std::string demangled, mangled;  // parts of its name
  bool is_backward;
  int64_t D;
  double softcap = 0;
  bool one_pass = false;
};
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{
      {"forward_sm90_kernel<flatshard::bf16, 64, 2>", "forward_sm90_kernelINS_4bf16ELi64ELi2E", false, 64},
      {"forward_sm90_kernel<flatshard::bf16, 128, 2>", "forward_sm90_kernelINS_4bf16ELi128ELi2E", false, 128},
      {"query_gradient_sm90_kernel<flatshard::bf16, 128, false>",
       "query_gradient_sm90_kernelINS_4bf16ELi128ELb0E", true, 128},
      {"key_gradient_sm90_kernel<flatshard::bf16, 128, false>",
       "key_gradient_sm90_kernelINS_4bf16ELi128ELb0E", true, 128},
      {"query_gradient_sm90_kernel<flatshard::bf16, 128, true>",
       "query_gradient_sm90_kernelINS_4bf16ELi128ELb1E", true, 128, 1},
      {"key_gradient_sm90_kernel<flatshard::bf16, 128, true>", "key_gradient_sm90_kernelINS_4bf16ELi128ELb1E",
       true, 128, 1},
      {"one_pass_kernel<flatshard::bf16, 64>", "one_pass_kernelINS_4bf16ELi64E", true, 64, 0, true},
      {"one_pass_kernel<flatshard::bf16, 128>", "one_pass_kernelINS_4bf16ELi128E", true, 128, 0, true}};
  return all;
}

// The PTX of a file with one of the lines of a kernel changed that match: the one numbered `which`. `changed`
// is that line.
std::string edited(const std::string& ptx, const Subject& kernel, const Mutation& mutation, size_t which,
                   std::string& changed, size_t& found) {
  const Body body = body_of(ptx, kernel.mangled);
  std::string result = ptx.substr(0, body.begin);
  found = 0;
  for (const std::string& line : lines_of(ptx.substr(body.begin, body.end - body.begin))) {
    const bool is_it = std::regex_search(line, mutation.pattern) && (found++ == which || mutation.everywhere);
    if (is_it) changed = line;
    result += (is_it ? std::regex_replace(line, mutation.pattern, mutation.with) : line) + '\n';
  }
  return result + ptx.substr(body.end);
}

// Whether the machine has a finding or the outputs differ when asynchronous work runs late, or else early.
bool is_noticed(const Case& c, const std::vector<std::vector<unsigned char>>& expected) {
  for (const AsyncTiming timing : {AsyncTiming::late, AsyncTiming::early}) {
    const ScopedOptions options({.async = timing});
    bool differs = false;
    try {
      differs = test::output_bytes(c, {.device = Device::cuda(0)}) != expected;
    } catch (const Error&) {
      differs = true;
    }
    if (!take_findings().empty() || differs) return true;
  }
  return false;
}

constexpr size_t kMostPlaces = 2;  // of one mutation in a kernel
constexpr int kLeastMutants = 40;

}  // namespace

TEST_CASE("attention on sm_90 has no barrier or fence or wait or copy or constant that could be another") {
  int mutants = 0;
  for (const Subject& kernel : subjects()) {
    // Every stage of every ring is used twice.
    const AttentionSetting setting{.queries = {70, 560},
                                   .Hq = 1,
                                   .Hkv = 1,
                                   .D = kernel.D,
                                   .window = 530,
                                   .softcap = kernel.softcap,
                                   .one_pass = kernel.one_pass};
    const Case c = (kernel.is_backward ? backward_case : forward_case)(DType::bf16, setting);
    const auto expected = test::output_bytes(c, {.device = Device::cuda(0)});
    for (const Mutation& mutation : mutations()) {
      if (mutation.of_cap != (kernel.softcap > 0)) continue;
      size_t found = 1;  // more are known after the first run
      const auto places = [&] { return mutation.everywhere ? 1 : std::min(found, kMostPlaces); };
      for (size_t i = 0; i < places(); ++i) {
        const size_t which = i * found / places();
        std::string changed;
        const ScopedEdit edit(kernel.demangled, [&](const std::string& ptx) {
          return edited(ptx, kernel, mutation, which, changed, found);
        });
        const bool noticed = is_noticed(c, expected);
        if (found == 0) break;  // this kernel has none
        CAPTURE(kernel.demangled);
        CAPTURE(mutation.name);
        CAPTURE(changed);
        CHECK(noticed);
        ++mutants;
      }
    }
  }
  MESSAGE(mutants, " mutants");
  CHECK(mutants >= kLeastMutants);
}
