// What the verbs hold their tensors to before any back end sees them.

#include "comm/self_communicator.h"
#include "tests/comm/mirror_communicator.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// Planning drops the work: these tensors point nowhere.
Tensor tensor(int64_t size, DType dtype = DType::f32) { return {nullptr, dtype, {size}, Device::cpu()}; }

}  // namespace

TEST_CASE("a verb refuses tensors that do not fit, and says whom it was for") {
  StreamGroup streams(Device::cpu(), {.planning = true});
  Stream& s = streams.add("planning");
  test::MirrorCommunicator comm("gather", 1, 4);
  CollectiveLog log;
  comm.log_to(&log);
  const auto refused = [](auto&& call, const std::string& because) {
    CHECK(test::error_of(call).find(because) != std::string::npos);
  };
  refused([&] { comm.all_gather(s, tensor(32), tensor(7), "unit 1"); }, "all_gather of unit 1: a shard");
  refused([&] { comm.all_gather(s, tensor(30), tensor(8), "unit 1"); }, "does not divide into 4 parts");
  refused([&] { comm.all_gather(s, tensor(32), tensor(16, DType::bf16), "unit 1"); }, "of bf16, 4 of which");
  refused([&] { comm.all_to_all(s, tensor(32), tensor(36), "unit 2"); }, "all_to_all of unit 2");
  refused([&] { comm.all_to_all(s, tensor(30), tensor(30), "unit 2"); }, "does not divide into 4 parts");
  refused([&] { comm.reduce_scatter(s, tensor(8, DType::bf16), tensor(32, DType::bf16), "unit 3"); },
          "reduce_scatter of unit 3 adds f32, not bf16");
  refused([&] { comm.reduce_scatter(s, tensor(9), tensor(32), "unit 3"); },
          "reduce_scatter of unit 3: a shard");
  refused([&] { comm.broadcast(s, tensor(3), 4, "unit 4"); }, "broadcast of unit 4 from rank 4 of 4");
  CHECK(log.empty());
}

TEST_CASE("a call is written down with its communicator, verb, unit, bytes and dtype") {
  StreamGroup streams(Device::cpu(), {.planning = true});
  Stream& s = streams.add("planning");
  SelfCommunicator comm("reduce");
  CollectiveLog log;
  comm.log_to(&log);
  comm.all_to_all(s, tensor(100, DType::bf16), tensor(100, DType::bf16), intern(str("model.layers.", 3)));
  comm.broadcast(s, tensor(5), 0, "weights");
  comm.log_to(nullptr);
  comm.broadcast(s, tensor(5), 0, "weights");
  REQUIRE(log.size() == 2);
  CHECK(log[0].dtype == DType::bf16);
  CHECK(describe(log[0]) == "all_to_all of model.layers.3 on reduce, 200 bytes");
  CHECK(describe(log[1]) == "broadcast of weights on reduce, 20 bytes");
}
