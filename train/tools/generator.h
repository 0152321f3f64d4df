#pragma once
// Text generation with a KV cache. The forward pass is that of training (model/model.h); memory is planned
// for the longest text and allocated to the byte. The tokens are a function of model, dtype, prompt and
// sampler.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/kv_cache.h"
#include "train/models/resident_model.h"
#include "train/tools/sampler.h"

namespace flatshard {

class Generator {
 public:
  // Reads the model folder's weights as `dtype`. Prompt and continuation together may have `capacity`
  // tokens; an Error if the model has fewer positions.
  Generator(const std::string& folder, DType dtype, int64_t capacity, Device device = Device::cpu());

  const ModelConfig& config() const { return model_.model().config(); }
  int64_t memory_bytes() const;

  // Sets the text to continue, at least one token; replaces any previous prompt.
  void read_prompt(std::span<const int32_t> prompt);
  // Generates `count` tokens and passes each to `take` as soon as it is sampled. Every call starts from the
  // prompt.
  void generate(int64_t count, const Sampler& sampler, const std::function<void(int32_t)>& take);

 private:
  void allocate();
  void plan();
  void read(std::span<const int32_t> tokens);
  void run_piece(Stream& stream, int64_t tokens, bool with_logits);

  StreamGroup streams_;
  Stream& stream_;
  ResidentModel model_;
  int64_t capacity_, piece_;  // maximum tokens of a text, and of a forward pass
  Arena memory_, host_, saved_, scratch_;
  KvCache cache_;
  Tensor x_, y_;                 // (piece, hidden)
  Tensor inputs_, host_inputs_;  // i32: tokens and positions of a piece, its boundaries, its keys' boundaries
  Tensor logits_, host_logits_;  // (1, vocab) f32 of a piece's last token
  std::vector<float> after_prompt_;  // the logits that follow the prompt
  int64_t prompt_tokens_ = 0;
};

// With a vocabulary of 256 a token is a byte; otherwise text is token numbers separated by spaces.
std::vector<int32_t> tokens_of_text(const std::string& text, int64_t vocab);
std::string text_of_token(int32_t token, int64_t vocab);

}  // namespace flatshard
