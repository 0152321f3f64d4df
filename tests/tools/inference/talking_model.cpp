#include "tests/tools/inference/talking_model.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/json.h"
#include "tests/small_model.h"

namespace flatshard::test {
namespace {

using Json = nlohmann::json;

std::string tokenizer_json() {
  Json vocab;
  for (char c = '!'; c <= '~'; ++c) vocab[std::string(1, c)] = c - '!';
  vocab["\xc4\xa0"] = 94;  // how byte-level tokenizers write a space, and a line break
  vocab["\xc4\x8a"] = 95;
  const auto special = [](int id, const char* content) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", {special(96, "<|im_start|>"), special(97, "<|im_end|>")}},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"vocab", vocab},
                {"merges", Json::array()}}}}
      .dump();
}

}  // namespace

void write_talking_model(const std::string& folder) {
  StreamSet streams(Device::cpu());
  ModelConfig config = small_model("llama", kTalkingVocab);
  config.max_positions = 300;
  const ResidentModel model(config, DType::f32, streams.add("compute"));
  fill_random(model);
  write_model_folder(folder, model);
  write_text(folder + "/tokenizer.json", tokenizer_json());
  write_text(folder + "/tokenizer_config.json",
             Json{{"eos_token", "<|im_end|>"}, {"tokenizer_class", "PreTrainedTokenizerFast"}}.dump());
}

void write_text(const std::string& path, const std::string& text) {
  if (std::filesystem::path(path).has_parent_path())
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace flatshard::test
