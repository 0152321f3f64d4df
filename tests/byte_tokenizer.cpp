#include "tests/byte_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/json.h"
#include "runtime/utf8.h"

namespace flatshard::test {
namespace {

using nlohmann::json;

const std::vector<std::string> kSpecial{"<s>",        "</s>",     "<|im_start|>",
                                        "<|im_end|>", "<|user|>", "<|assistant|>"};

}  // namespace

void write_byte_tokenizer(const std::string& folder, bool adds_bos) {
  std::filesystem::create_directories(folder);
  json vocab, added = json::array();
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = is_plain ? byte : 256 + byte - (byte < 33 ? 0 : byte < 161 ? 94 : 106);
    std::string letter;
    append_utf8(letter, static_cast<char32_t>(code));
    vocab[letter] = byte;
  }
  for (size_t i = 0; i < kSpecial.size(); ++i)
    added.push_back({{"id", 256 + i},
                     {"content", kSpecial[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const json level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  json tokenizer{{"version", "1.0"},
                 {"truncation", nullptr},
                 {"padding", nullptr},
                 {"added_tokens", added},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", level},
                 {"post_processor", level},
                 {"decoder", level},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
  std::ofstream(folder + "/tokenizer.json") << tokenizer;
  std::ofstream(folder + "/tokenizer_config.json")
      << json{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_bos_token", adds_bos}};
}

}  // namespace flatshard::test
