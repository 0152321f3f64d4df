// The kernels that copy rows to shared memory ahead of their use wait for them, and for nothing less: without
// a wait, a commit, a copy or a barrier, the machine has a finding, or the values change.

#include <algorithm>

#include "tests/ptx_vm/ptx_mutation.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

namespace {

// A kernel, and a case in which each thread copies to each of its places more than once.
struct Subject {
  MutatedKernel kernel;
  Scale scale;
  std::string label;
};
const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{
      {{"rmsnorm_backward_kernel<flatshard::bf16, flatshard::bf16, 8, 1, false>",
        "rmsnorm_backward_kernelINS_4bf16ES3_Li8ELi1ELb0E"},
       Scale::vm,
       "rmsnorm_backward 128 x 2048 dx+= bf16"},
      {{"layernorm_backward_kernel<flatshard::bf16, flatshard::bf16, 8, 1, false>",
        "layernorm_backward_kernelINS_4bf16ES3_Li8ELi1ELb0E"},
       Scale::vm,
       "layernorm_backward 128 x 2048 dx+= bf16"},
      {{"backward_kernel<flatshard::bf16, flatshard::bf16, 8, 8, 1, false>",
        "15backward_kernelINS_4bf16ES3_Li8ELi8ELi1ELb0E"},
       Scale::vm,
       "qk_norm_backward 128 x 16+8 x 128 bf16"},
      {{"add_frequent_kernel<flatshard::bf16>", "add_frequent_kernelINS_4bf16EE"},
       Scale::test,
       "embedding_backward 1000 x 72 of 2 bf16"}};
  return all;
}

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all{
      {"no wait for copies", std::regex("cp.async.wait_group.*"), ""},
      {"a wait for fewer copies", std::regex("cp.async.wait_group\\s+1;"), "cp.async.wait_group 2;"},
      {"a wait for fewer copies", std::regex("cp.async.wait_group\\s+3;"), "cp.async.wait_group 4;"},
      {"no commit", std::regex("cp.async.commit_group.*"), "", true},
      {"no copy", std::regex("cp.async.cg.*"), ""},
      {"no barrier", std::regex("(bar|barrier).sync\\s+0;"), "", true},
  };
  return all;
}

Case case_of(const Subject& subject) {
  for (Case& c : all_cases(subject.scale))
    if (label(c) == subject.label) return c;
  fail(str("there is no case ", subject.label));
}

constexpr size_t kMostPlaces = 2;  // of one mutation in a kernel
constexpr int kLeastMutants = 20;

}  // namespace

TEST_CASE("kernels that copy rows ahead have no wait or commit or copy or barrier that could be missing") {
  int mutants = 0;
  for (const Subject& subject : subjects())
    mutants += check_mutations(subject.kernel, mutations(), case_of(subject), kMostPlaces);
  MESSAGE(mutants, " mutants");
  CHECK(mutants >= kLeastMutants);
}
