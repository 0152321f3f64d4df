#include "hub/gguf/gguf_patterns.h"

#include "text/words/known_pattern.h"

namespace flatshard {
namespace {

constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4oPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

const std::vector<PatternRow>& pattern_rows() {
  static const std::vector<PatternRow> rows{
      {"gpt-2", {kGpt2Pattern}},
      {"smollm", {kOneDigit, kGpt2Pattern}},
      {"smaug-bpe", {kLlama3Pattern}},
      {"llama-bpe", {kLlama3Pattern}, true, true},
      {"qwen2", {kQwen2Pattern}},
      {"tekken", {kTekkenPattern}, true, true},
      {"gpt-4o", {kGpt4oPattern}},
      {"dbrx", {kLlama3Pattern}},
      {"llama3", {kLlama3Pattern}, true, true},
      {"starcoder", {kOneDigit, kGpt2Pattern}},
      {"refact", {kOneDigit, kGpt2Pattern}},
      {"deepseek-r1-qwen", {kQwen2Pattern}},
      {"glm4", {kLlama3Pattern}, true},
      {"pixtral", {kLlama3Pattern}, true, true},
  };
  return rows;
}

}  // namespace flatshard
