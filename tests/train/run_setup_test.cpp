#include "train/run_setup.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

Config config_of(const std::string& compute) {
  Config c;
  c.run.device = "cpu";
  c.model = {.family = "llama", .layers = 1, .hidden = 16, .heads = 2, .ffn = 24, .vocab = 31};
  c.data.seq_len = 8;
  c.train.steps = 1;
  c.train.total_batch_size = 1;
  c.optimizer.lr = 1e-3;
  c.precision.compute = compute;
  return c;
}

}  // namespace

TEST_CASE("TF32 is refused where there are no fp32 products to round") {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    CAPTURE(compute);
    Config config = config_of(compute);
    config.precision.tf32 = true;
    const std::string error = test::error_of([&] { set_up(config, 1); });
    CHECK(error.empty() == (compute == std::string("fp32")));
    if (!error.empty())
      CHECK(error.find("but precision.compute is \"" + std::string(compute)) != std::string::npos);
  }
}
