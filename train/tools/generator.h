#pragma once
// Continues a text with a trained model, token by token, with a cache of keys and values. The model's forward
// pass is that of training (model/model.h); memory is planned for the whole text and then allocated to the
// byte. The tokens are a function of model, dtype, prompt and sampler.

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
  // Reads the model folder's weights, in this dtype. Texts may have `capacity` tokens, prompt and
  // continuation together: an Error when the model has not so many positions.
  Generator(const std::string& folder, DType dtype, int64_t capacity, Device device = Device::cpu());

  const ModelConfig& config() const { return model_.model().config(); }
  int64_t memory_bytes() const;

  // The text to continue; replaces any before. At least one token.
  void read_prompt(std::span<const int32_t> prompt);
  // Continues the prompt by `count` tokens and gives each to `take` as soon as it is known. Called again it
  // starts at the prompt again.
  void generate(int64_t count, const Sampler& sampler, const std::function<void(int32_t)>& take);

 private:
  void allocate();
  void plan();
  void read(std::span<const int32_t> tokens);
  void run_piece(Stream& stream, int64_t tokens, bool with_logits);

  StreamGroup streams_;
  Stream& stream_;
  ResidentModel model_;
  int64_t capacity_, piece_;  // tokens of a text, and of one forward pass at most
  Arena memory_, host_, saved_, scratch_;
  KvCache cache_;
  Tensor x_, y_;                 // (piece, hidden)
  Tensor inputs_, host_inputs_;  // i32: tokens and positions of a piece, its boundaries, its keys' boundaries
  Tensor logits_, host_logits_;  // (1, vocab) f32 of a piece's last token
  std::vector<float> after_prompt_;  // the logits that follow the prompt
  int64_t prompt_tokens_ = 0;
};

// With a vocabulary of 256 a token is a byte. With any other, text is the tokens' numbers between spaces.
std::vector<int32_t> tokens_of_text(const std::string& text, int64_t vocab);
std::string text_of_token(int32_t token, int64_t vocab);

}  // namespace flatshard
