#include "hub/quantized/mxfp4_tensors.h"

#include <cmath>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "hub/hf_config.h"
#include "hub/model_folder.h"
#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const std::string kFolder = str(kSourceDir, "/tests/golden/folders/gpt_oss_mxfp4");

std::vector<uint8_t> bytes_of(const SafetensorsEntry& entry) {
  std::vector<uint8_t> bytes(static_cast<size_t>(entry.bytes.size));
  entry.bytes.read(0, entry.bytes.size, bytes.data());
  return bytes;
}

}  // namespace

TEST_CASE("a weight in MXFP4 is the transpose of its rows of blocks") {
  const ModelConfig config = read_hf_config(kFolder + "/config.json");
  const TensorFolder folder(kFolder, kWeightsStem);
  Mxfp4Tensors tensors(folder.path(), folder.entries(), config);
  CHECK(tensors.names().size() == 8);  // two matrices in each of two blocks
  const std::string name = "model.layers.1.mlp.experts.3.gate_up_proj.weight";
  const int64_t in = config.hidden, out = 2 * config.expert_ffn;
  REQUIRE(tensors.has(name));
  CHECK(tensors.shape_of(name) == std::vector<int64_t>{in, out});
  std::vector<float> values(static_cast<size_t>(in * out)), part(100);
  tensors.read(name, 0, in * out, values.data());
  const std::string all = "model.layers.1.mlp.experts.gate_up_proj";
  const std::vector<uint8_t> codes = bytes_of(*folder.find(all + "_blocks")),
                             scales = bytes_of(*folder.find(all + "_scales"));
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t row = 0; row < out; ++row)
    for (int64_t column = 0; column < in; ++column) {
      const int64_t at = (3 * out + row) * in + column;
      const int code = codes[static_cast<size_t>(at / 2)] >> 4 * (at % 2) & 15;
      const double size = magnitudes[code & 7] * std::exp2(scales[static_cast<size_t>(at / 32)] - 127);
      CHECK(static_cast<double>(values[static_cast<size_t>(column * out + row)]) ==
            (code & 8 ? -size : size));
    }
  tensors.read(name, 77, 100, part.data());
  CHECK(part == std::vector<float>(values.begin() + 77, values.begin() + 177));
}

TEST_CASE("tensors in MXFP4 that are missing or of another shape are named") {
  const ModelConfig config = read_hf_config(kFolder + "/config.json");
  const TensorFolder folder(kFolder, kWeightsStem);
  const std::string all = "model.layers.0.mlp.experts.down_proj";
  const auto error = [&](TensorEntries entries) {
    return test::error_of([&] { Mxfp4Tensors("model.safetensors", entries, config); });
  };
  TensorEntries entries = folder.entries();
  CHECK(error(entries) == "");
  entries.erase(all + "_scales");
  CHECK(error(entries) ==
        "model.safetensors: " + all + "_scales is missing: download all files of the folder again");
  SafetensorsEntry other = *folder.find(all + "_scales");
  other.shape = {5, 32, 2};
  entries[all + "_scales"] = &other;
  CHECK(error(entries) == "model.safetensors: " + all + "_scales is U8 [5, 32, 2], must be U8 [5, 32, 1]");
}
