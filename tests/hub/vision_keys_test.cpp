#include <fstream>

#include "hub/format.h"
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

const Published kQwen2Vl{R"({"model_type": "qwen2_vl", "image_token_id": 151655, "hidden_act": "silu",
  "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "vocab_size": 151936,
  "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 32768,
  "max_window_layers": 28,
  "tie_word_embeddings": true, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3,
                    "hidden_size": 1536, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
                    "temporal_patch_size": 2}})",
                         2208985600};

const Published kQwen25Vl{R"({"model_type": "qwen2_5_vl", "image_token_id": 151655, "hidden_act": "silu",
  "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "vocab_size": 152064,
  "max_position_embeddings": 128000, "use_sliding_window": false, "sliding_window": 32768,
  "max_window_layers": 28,
  "tie_word_embeddings": false, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420,
                    "num_heads": 16, "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14,
                    "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
                    "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2,
                    "temporal_patch_size": 2}})",
                          8292166656};

ModelConfig read(const std::string& config) {
  std::ofstream("vision_keys_test.json") << config;
  return read_hf_config("vision_keys_test.json");
}

}  // namespace

TEST_CASE("published models that read images have their number of parameters, and are written as they are") {
  for (const Published& published : {kIdefics2, kSmolVlm, kQwen2Vl, kQwen25Vl}) {
    const ModelConfig config = read(published.config);
    Arena tables("tables", Device::cpu());
    CHECK(Model(config, tables).parameter_count() == published.parameters);
    const std::string written = hf_config_json(config, DType::bf16);
    CHECK(hf_config_json(read(written), DType::bf16) == written);
  }
}
