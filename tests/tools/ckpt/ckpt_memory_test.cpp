// The memory of ckpt does not grow with the files.

#include <filesystem>

#include "build_config.h"
#include "hub/adapter_folder.h"
#include "runtime/host_memory.h"
#include "tests/test.h"
#include "tests/tools/ckpt/ckpt_run.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

constexpr int64_t kMegabyte = 1'000'000;

// The largest growth of this process while ckpt ran.
int64_t growth_of(const std::vector<std::string>& words) {
  REQUIRE(reset_peak_memory());
  const int64_t before = process_memory().resident;
  const test::Ran ran = test::ckpt(words);
  CAPTURE(ran);
  CHECK(ran.exit_code != 2);
  return process_memory().peak - before;
}

// An adapter of the model below that replaces its head too; all tensors are zero.
void write_adapter(const std::string& folder) {
  std::filesystem::create_directories(folder);
  test::write_file(folder + "/adapter_config.json", R"({"peft_type": "LORA", "r": 2})");
  const std::string layer = "model.layers.0.self_attn.q_proj";
  const SafetensorsLayout layout({{adapter_tensor_name(layer + ".lora_A.weight"), DType::f32, {2, 256}},
                                  {adapter_tensor_name(layer + ".lora_B.weight"), DType::f32, {256, 2}},
                                  {adapter_tensor_name("lm_head.weight"), DType::f32, {32768, 256}}});
  SafetensorsWriter(folder + "/adapter_model.safetensors", layout, true).finish();
}

}  // namespace

TEST_CASE("ckpt needs a few blocks of memory, however large the tensors are") {
  if (*kSanitizer != '\0') return test::skip("sanitizers keep what is freed");
  if (!reset_peak_memory()) return test::skip("/proc/self/clear_refs cannot be written");
  const test::Workshop workshop("ckpt_memory");
  const test::Finished run = workshop.train(
      1,
      "--run.dir=run --train.steps=2 --checkpoint.save_every=1 --model.vocab=32768 --model.hidden=256 "
      "--data.vocab=53");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::string folder = workshop.file("run"), first = folder + "/step-1", last = folder + "/step-2";
  constexpr int64_t kLimit = 32 * kMegabyte;  // each set of tensors has 67 MB in its two largest alone
  CHECK(growth_of({"verify", last}) < kLimit);
  CHECK(growth_of({"diff", first, last}) < kLimit);
  CHECK(growth_of({"export", last, folder + "/same"}) < kLimit);
  CHECK(growth_of({"export", last, folder + "/half", "--dtype", "bf16"}) < kLimit);
  CHECK(growth_of({"diff", folder + "/same", folder + "/half"}) < kLimit);
  const std::string four_bits = folder + "/four_bits";
  CHECK(growth_of({"quantize", folder + "/model", "--out", four_bits, "--double"}) < kLimit);
  CHECK(growth_of({"export", four_bits, folder + "/dequantized", "--dtype", "f32"}) < kLimit);
  write_adapter(folder + "/adapter");
  CHECK(growth_of({"merge-adapter", folder + "/model", folder + "/adapter", "--out", folder + "/merged"}) <
        kLimit);
  CHECK(growth_of({"merge-adapter", four_bits, folder + "/adapter", "--out", folder + "/requantized",
                   "--requantize", "--force"}) < kLimit);
}
