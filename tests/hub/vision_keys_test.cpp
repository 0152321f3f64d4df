#include "hub/vision_keys.h"

#include <fstream>

#include "hub/hf_config.h"
#include "model/model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

struct Published {
  std::string config;  // as the folder's config.json has it, without what no reader needs
  int64_t parameters;
};

// Most of Idefics2's is left out, and is what transformers takes then.
const Published kIdefics2{R"({"model_type": "idefics2", "image_token_id": 32001,
  "perceiver_config": {"model_type": "idefics2"},
  "text_config": {"max_position_embeddings": 32768, "model_type": "mistral", "rms_norm_eps": 1e-05,
                  "pad_token_id": 0, "sliding_window": 4096, "vocab_size": 32003},
  "vision_config": {"hidden_size": 1152, "image_size": 980, "intermediate_size": 4304,
                    "model_type": "idefics2", "num_attention_heads": 16, "num_hidden_layers": 27,
                    "patch_size": 14}})",
                          8402768112};

const Published kSmolVlm{R"({"model_type": "idefics3", "image_token_id": 49190, "scale_factor": 4,
  "tie_word_embeddings": false,
  "text_config": {"head_dim": 64, "hidden_size": 576, "intermediate_size": 1536, "model_type": "llama",
                  "max_position_embeddings": 8192, "num_attention_heads": 9, "num_hidden_layers": 30,
                  "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_theta": 100000, "vocab_size": 49280},
  "vision_config": {"hidden_size": 768, "image_size": 512, "max_image_size": {"longest_edge": 512},
                    "model_type": "idefics3", "num_attention_heads": 12, "patch_size": 16}})",
                         256484928};

ModelConfig read(const std::string& config) {
  std::ofstream("vision_keys_test.json") << config;
  return read_hf_config("vision_keys_test.json");
}

}  // namespace

TEST_CASE("published models that read images have their number of parameters, and are written as they are") {
  for (const Published& published : {kIdefics2, kSmolVlm}) {
    const ModelConfig config = read(published.config);
    Arena tables("tables", Device::cpu());
    CHECK(Model(config, tables).parameter_count() == published.parameters);
    const std::string written = hf_config_json(config, DType::bf16);
    CHECK(hf_config_json(read(written), DType::bf16) == written);
  }
}
