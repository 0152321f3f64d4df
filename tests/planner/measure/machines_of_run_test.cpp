#include <algorithm>

#include "planner/measure/measured_machines.h"
#include "planner/simulate/simulated_step.h"
#include "planner/times/op_times.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

RunSetup setup_of(int ranks, DeviceChoice device, HostPlace place = {}) {
  Config c;
  c.run.device = device;
  c.model = {.family = "llama", .layers = 2, .hidden = 64, .heads = 2, .ffn = 128, .vocab = 96};
  c.data.seq_len = 32;
  c.data.packing = Packing::wrapped;
  c.train.steps = 1;
  c.train.total_batch_size = 8;
  c.optimizer.lr = 1e-3;
  c.precision.compute = Precision::bf16;
  return set_up(c, ranks, std::move(place), Purpose::plan);
}

const std::vector<TimedOp> kOps{
    {{.name = "gemm", .shape = {8, 8, 8, 0}, .dtype = DType::bf16, .flops = 1024}, 1e-6}};

}  // namespace

TEST_CASE("a run on CPUs has machines once its ops were timed, with the measured bandwidth between ranks") {
  const RunSetup setup = setup_of(4, DeviceChoice::cpu);
  CHECK(!machines_of_run(setup, "", {.products = 1e9, .copies = 1e9}));
  const auto machines =
      machines_of_run(setup, "", {.products = 1e9, .copies = 1e9, .ops = kOps, .exchanged = 3e9});
  REQUIRE(machines);
  CHECK(machines->node_gpus == 4);
  CHECK(machines->link_gbps * machines->link_efficiency == doctest::Approx(3));
  CHECK(machines->jitter_step == 0);
  // A slower connection is a longer step.
  const auto slower =
      machines_of_run(setup, "", {.products = 1e9, .copies = 1e9, .ops = kOps, .exchanged = 1e6});
  CHECK(simulate_step(setup, *slower).seconds > simulate_step(setup, *machines).seconds);
}

TEST_CASE("the peak is at least the rate of every timed product, however busy the machine was before") {
  const RunSetup setup = setup_of(1, DeviceChoice::cpu);
  const TimedOp attention{
      {.name = "attention_forward", .shape = {64, 2, 64, 2, 32, 1, 1}, .dtype = DType::bf16, .flops = 4096},
      1e-6};
  const double of_products = 1024e6, of_attention = 4096e6;
  for (const double measured : {1e6, 1e10}) {
    CAPTURE(measured);
    const auto peak = [&](const std::vector<TimedOp>& ops) {
      const auto machines = machines_of_run(setup, "", {.products = measured, .copies = 1e9, .ops = ops});
      REQUIRE(machines);
      return matrix_rate(*machines, setup.compute, false);
    };
    CHECK(peak(kOps) == doctest::Approx(std::max(measured, of_products)));
    CHECK(peak({kOps.front(), attention}) == doctest::Approx(std::max(measured, of_attention)));
  }
}

TEST_CASE("a run on a known GPU has the measured rates of products and, with updates on the host, of these") {
  const RunSetup setup = setup_of(1, DeviceChoice::cuda);
  CHECK(!machines_of_run(setup, "an unknown GPU", {.products = 1e12}));
  const auto usual = machines_of_run(setup, "NVIDIA H100 80GB HBM3", {.products = 700e12});
  const auto measured =
      machines_of_run(setup, "NVIDIA H100 80GB HBM3", {.products = 350e12, .updates = 60e9});
  REQUIRE((usual && measured));
  CHECK(measured->gpu.matrix_tflops == doctest::Approx(usual->gpu.matrix_tflops / 2));
  CHECK(usual->update_gbps < 60);
  CHECK(measured->update_gbps == doctest::Approx(60));
}

TEST_CASE("an exchange takes a processor from the compute threads of a rank that has none left for it") {
  CHECK(taken_by_exchange(1, 2) == 0);
  CHECK(taken_by_exchange(1, 1) == 1);
  CHECK(taken_by_exchange(4, 4) == 0.25);
  CHECK(taken_by_exchange(1, 0.5) == 1);  // two ranks share a processor
}

TEST_CASE("ranks that share processors take longer by how many share one") {
  CHECK(slowed_by_sharing(1, 2) == 1);
  CHECK(slowed_by_sharing(1, 1) == 1);
  CHECK(slowed_by_sharing(1, 0.5) == 2);
  CHECK(slowed_by_sharing(4, 3) == doctest::Approx(4.0 / 3));
}

TEST_CASE("between hosts, the measured bandwidth is that of the network") {
  const RunSetup setup = setup_of(4, DeviceChoice::cpu, {.hosts = {0, 0, 1, 1}});
  const auto machines =
      machines_of_run(setup, "", {.products = 1e9, .copies = 1e9, .ops = kOps, .exchanged = 2e8});
  REQUIRE(machines);
  CHECK(machines->node_gpus == 2);
  CHECK(machines->nics_per_node == 1);
  CHECK(machines->nic_gbps * machines->nic_efficiency == doctest::Approx(0.2));
}
