// The checks and the log of the verbs, before any back end is involved.

#include "comm/self_communicator.h"
#include "tests/comm/mirror_communicator.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// A planning stream drops the work, so these tensors need no memory.
Tensor tensor(int64_t size, DType dtype = DType::f32) { return {nullptr, dtype, {size}, Device::cpu()}; }

}  // namespace

TEST_CASE("a verb rejects tensors of wrong sizes or dtypes and names its label") {
  StreamSet streams(Device::cpu(), {.planning = true});
  Stream& s = streams.add("planning");
  test::MirrorCommunicator comm("gather", 1, 4);
  CollectiveLog log;
  comm.log_to(&log);
  const auto refused = [](auto&& call, const std::string& because) {
    CHECK(test::error_of(call).find(because) != std::string::npos);
  };
  refused([&] { comm.all_gather(s, tensor(32), tensor(7), "unit 1"); },
          "all_gather of unit 1: 4 shards (7) of f32 do not make up (32) of f32");
  refused([&] { comm.all_gather(s, tensor(30), tensor(8), "unit 1"); }, "does not divide into 4 parts");
  refused([&] { comm.all_gather(s, tensor(32), tensor(16, DType::bf16), "unit 1"); },
          "4 shards (16) of bf16 do not make up (32) of f32");
  refused([&] { comm.all_to_all(s, tensor(32), tensor(36), "unit 2"); },
          "all_to_all of unit 2: cannot receive (36) of f32 into (32) of f32");
  refused([&] { comm.all_to_all(s, tensor(30), tensor(30), "unit 2"); }, "does not divide into 4 parts");
  refused([&] { comm.reduce_scatter(s, tensor(8, DType::bf16), tensor(32, DType::bf16), "unit 3"); },
          "reduce_scatter of unit 3: dtype is bf16, must be f32");
  refused([&] { comm.reduce_scatter(s, tensor(9), tensor(32), "unit 3"); },
          "reduce_scatter of unit 3: 4 shards (9) do not make up (32)");
  refused([&] { comm.broadcast(s, tensor(3), 4, "unit 4"); },
          "broadcast of unit 4: root is rank 4, must be below 4");
  CHECK(log.empty());
}

TEST_CASE("the log of a call has its communicator, verb, label, bytes and dtype") {
  StreamSet streams(Device::cpu(), {.planning = true});
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
