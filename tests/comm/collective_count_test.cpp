// The calls and bytes that a step communicates, from the log of a planning engine: nothing runs and nothing
// is allocated.

#include "runtime/check.h"
#include "tests/comm/planned_rank.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int kBlocks = 5, kMicroSteps = 3, kRanks = 8;

Config small_config(const std::string& family) {
  return test::planned_config(family, kRanks, kBlocks, kMicroSteps);
}

class Counted : public test::PlannedRank {
 public:
  explicit Counted(const Config& config) : PlannedRank(config, kRanks) {}

  int64_t units() { return static_cast<int64_t>(engine.units().size()); }
  // The elements of all root units or of all blocks, padding included.
  int64_t elements(bool roots) {
    int64_t sum = 0;
    for (size_t i = 0; i < engine.units().size(); ++i)
      if ((i == 0 || i > kBlocks) == roots) sum += engine.units()[i].trainable().size();
    return sum;
  }
  int64_t elements() { return elements(true) + elements(false); }
};

// The calls on one communicator: all of them, of one verb, or of one unit.
CallSum of(const CollectiveLog& log, const std::string& communicator, const std::string& verb = "") {
  return sum_of(log, [&](const Collective& c) {
    return c.communicator == communicator && (verb.empty() || c.verb == verb);
  });
}
CallSum serving(const CollectiveLog& log, const std::string& communicator, const std::string& unit) {
  return sum_of(log, [&](const Collective& c) { return c.communicator == communicator && c.label == unit; });
}

}  // namespace

TEST_CASE("full_shard gathers blocks twice a micro-step and root units once a step") {
  for (const char* family : {"llama", "gpt2"})
    for (const BackwardPrefetch ahead :
         {BackwardPrefetch::pre, BackwardPrefetch::post, BackwardPrefetch::none})
      for (const bool forward : {true, false})
        for (const int64_t depth : {1, 2, 3}) {
          CAPTURE(family);
          CAPTURE(ahead);
          CAPTURE(depth);
          Config config = small_config(family);
          config.parallel.backward_prefetch = ahead;
          config.parallel.forward_prefetch = forward;
          config.parallel.depth = depth;
          Counted counted(config);
          const CollectiveLog log = counted.second_step();
          const int64_t roots = counted.units() - kBlocks;
          CHECK(roots == (std::string(family) == "gpt2" ? 1 : 2));
          constexpr int64_t kBf16 = 2, kF32 = 4;
          CHECK(of(log, "gather", "all_gather").calls == kMicroSteps * 2 * kBlocks + roots);
          CHECK(of(log, "gather", "all_gather").bytes ==
                kBf16 * (kMicroSteps * 2 * counted.elements(false) + counted.elements(true)));
          CHECK(of(log, "reduce", "all_to_all").calls == kMicroSteps * counted.units());
          CHECK(of(log, "reduce", "all_to_all").bytes == kF32 * kMicroSteps * counted.elements());
          CHECK(of(log, "reduce").calls == of(log, "reduce", "all_to_all").calls);
          CHECK(of(log, "compute").calls == 1);  // the partial sums of the gradient norm
          CHECK(of(log, "replicas").calls == 0);
        }
}

TEST_CASE("the first units of the next step are gathered at the end of a step, after the norm") {
  for (const bool forward : {true, false}) {
    CAPTURE(forward);
    Config config = small_config("llama");
    config.parallel.forward_prefetch = forward;
    Counted counted(config);
    const CollectiveLog log = counted.second_step();
    std::vector<std::string> after;
    for (const Collective& c : log) {
      if (c.label == std::string("gradient norm")) after.clear();
      after.push_back(c.label);
    }
    std::vector<std::string> expected{"gradient norm", "root, first"};
    if (forward) expected.push_back("model.layers.0");
    CHECK(after == expected);
  }
}

TEST_CASE("root units that are not kept are gathered twice a micro-step unless they can be reused") {
  Config config = small_config("llama");
  config.parallel.keep_root_gathered = false;
  Counted counted(config);
  const CollectiveLog log = counted.second_step();
  // The embedding for forward and backward; the head only once, because its backward pass follows directly.
  CHECK(of(log, "gather", "all_gather").calls == kMicroSteps * (2 * kBlocks + 2 + 1));
}

TEST_CASE("zero1 and shard_grad_op gather each unit once a step") {
  for (const Strategy strategy : {Strategy::zero1, Strategy::shard_grad_op}) {
    CAPTURE(strategy);
    Config config = small_config("llama");
    config.parallel.strategy = strategy;
    Counted counted(config);
    const CollectiveLog log = counted.second_step();
    CHECK(of(log, "gather", "all_gather") == CallSum{counted.units(), 2 * counted.elements()});
    const int64_t times = strategy == Strategy::zero1 ? 1 : kMicroSteps;
    CHECK(of(log, "reduce", "all_to_all") ==
          CallSum{times * counted.units(), 4 * times * counted.elements()});
    CHECK(of(log, "compute").calls == 1);
  }
}

TEST_CASE("no_sync reduces each unit once a step, and bf16 halves the bytes of sharded sums") {
  for (const Reduction reduction : {Reduction::exact, Reduction::sequential}) {
    Config config = small_config("llama");
    config.parallel.reduction = reduction;
    config.parallel.accumulation = Accumulation::no_sync;
    Counted whole(config);
    CHECK(of(whole.second_step(), "reduce", "all_to_all") == CallSum{whole.units(), 4 * whole.elements()});
    config.parallel.accumulation = Accumulation::sharded;
    config.precision.reduce = Precision::bf16;
    Counted rounded(config);
    CHECK(of(rounded.second_step(), "reduce", "all_to_all") ==
          CallSum{kMicroSteps * rounded.units(), 2 * kMicroSteps * rounded.elements()});
  }
  Config config = small_config("llama");
  config.parallel.reduction = Reduction::native;
  Counted native(config);
  const CollectiveLog log = native.second_step();
  CHECK(of(log, "reduce", "all_to_all").calls == 0);
  CHECK(of(log, "reduce", "reduce_scatter") ==
        CallSum{kMicroSteps * native.units(), 4 * kMicroSteps * native.elements()});
}

TEST_CASE("replicas reduce their sums once a step") {
  for (const int64_t size : {1, 2, 4}) {
    CAPTURE(size);
    Config config = small_config("llama");
    config.parallel.strategy = size == 1 ? Strategy::no_shard : Strategy::hybrid;
    config.parallel.group_size = size == 1 ? 0 : size;
    Counted counted(config);
    const CollectiveLog log = counted.second_step();
    const CallSum shards{counted.units(), 4 * counted.elements() / size};
    CHECK(of(log, "replicas", "all_to_all") == shards);
    CHECK(of(log, "replicas", "all_gather") == shards);
    CHECK(of(log, "reduce", "all_to_all").calls == (size == 1 ? 0 : kMicroSteps * counted.units()));
    CHECK(of(log, "gather", "all_gather").calls == (size == 1 ? 0 : kMicroSteps * 2 * kBlocks + 2));
    CHECK(of(log, "compute").calls == (size == 1 ? 0 : 1));
  }
}

TEST_CASE("frozen units are not reduced, and the blocks below the first trained one are gathered once") {
  Config config = small_config("llama");
  config.trainable = {"*layers.3.*", "*layers.4.*proj*"};
  Counted counted(config);
  const CollectiveLog log = counted.second_step();
  CHECK(of(log, "reduce", "all_to_all").calls == kMicroSteps * 2);
  // Forward: five blocks. Backward: the two trained ones. Trained and frozen parameters arrive together.
  CHECK(of(log, "gather", "all_gather").calls == kMicroSteps * (5 + 2) + 2);
}

TEST_CASE("every call is labeled with its unit") {
  Counted counted(small_config("llama"));
  const CollectiveLog log = counted.second_step();
  const int64_t block = counted.elements(false) / kBlocks;
  for (int i = 0; i < kBlocks; ++i) {
    const std::string unit = str("model.layers.", i);
    CHECK(serving(log, "gather", unit) == CallSum{kMicroSteps * 2, 2 * kMicroSteps * 2 * block});
    CHECK(serving(log, "reduce", unit) == CallSum{kMicroSteps, 4 * kMicroSteps * block});
  }
  CHECK(serving(log, "gather", "root, first").calls == 1);
  CHECK(serving(log, "gather", "root, last").calls == 1);
  CHECK(serving(log, "compute", "gradient norm").calls == 1);
}
