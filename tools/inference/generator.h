#pragma once
// Text generation with a KV cache, for several texts at a time. The forward pass is the one of training
// (model/model.h); memory is planned for the longest texts and allocated to the byte. The logits that follow
// a text are a function of model, dtype and the text: on a CPU the bits do not depend on the other texts.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/kv_cache.h"
#include "tools/inference/image_pass.h"
#include "tools/inference/model_weights.h"

namespace flatshard {

struct GeneratorOptions {
  DType dtype = DType::f32;
  int64_t texts = 1;
  int64_t capacity = 0;  // most tokens of a text; an Error if the model has fewer positions
  Device device = Device::cpu();
  // With several ranks, each keeps a shard of the weights and makes the same calls, with the same results.
  World* world = nullptr;
};

// A token to append to a text.
struct NextToken {
  int64_t text;
  int32_t token;
};

class Generator {
 public:
  // Reads the model's weights, rounded to the dtype.
  Generator(const ModelSource& source, const GeneratorOptions& options);

  const ModelConfig& config() const { return weights_.model().config(); }
  const GeneratorOptions& options() const { return options_; }
  int64_t parameter_count() const { return weights_.model().parameter_count(); }
  int64_t memory_bytes() const;

  // Replaces a text by a prompt of at least one token. If it has images, they have one row for each of its
  // image tokens.
  void read_prompt(int64_t text, std::span<const int32_t> prompt, PromptImages images = {});
  // Replaces a text. The tokens at its beginning that equal the previous text, and their images, are not read
  // again.
  void read_changes(int64_t text, std::span<const int32_t> tokens, PromptImages images = {});
  // Appends one token to each of several texts, in one forward pass.
  void append(std::span<const NextToken> next);

  const std::vector<int32_t>& tokens(int64_t text) const { return texts_[static_cast<size_t>(text)]; }
  // The logits that follow a text, valid until it changes.
  std::span<const float> logits(int64_t text) const;

  // The mean over all positions of the final hidden states of a text. Text 0 is empty afterwards.
  std::vector<double> mean_state(std::span<const int32_t> tokens);

 private:
  enum class Output { none, logits, states };

  void allocate();
  void plan();
  void read(int64_t text, std::span<const int32_t> tokens, Output output);
  size_t tokens_before_changed_image(std::span<const int32_t> tokens, const PromptImages& images,
                                     const PromptImages& before) const;
  void read_images(const PromptImages& images, int64_t first_row);
  Tensor images_of(int64_t text, std::span<const int32_t> piece);
  void run_pass(Stream& stream, std::span<const TextRows> rows, Output output, const Tensor& images = {});
  int64_t axes() const { return family(config().family).rope_axes ? 3 : 1; }  // coordinates of a token
  int64_t image_inputs_at() const { return (1 + axes()) * x_.shape[0] + 4 * batch_; }
  bool is_image(int32_t token) const { return config().vision && token == config().vision->image_token; }
  void append_pass(std::span<const NextToken> next);
  void write_inputs(std::span<const TextRows> rows, std::span<const int32_t> tokens);
  void check_capacity(int64_t tokens) const;

  StreamSet streams_;
  Stream& stream_;
  GeneratorOptions options_;
  ModelWeights weights_;
  int64_t piece_, batch_;  // most tokens of a pass over one text, and most texts of a pass over several
  Arena memory_, host_, saved_, scratch_;
  std::optional<ImagePass> image_pass_;
  Tensor image_rows_;           // (capacity, hidden): rows of the frames in the current text
  int64_t next_image_row_ = 0;  // row of the next image token
  KvCache cache_;
  Tensor x_, y_;  // (tokens of a pass, hidden)
  // i32: tokens and positions of a pass, four boundaries per text (model/layer_call.h), and the rows of
  // images.
  Tensor inputs_, host_inputs_;
  Tensor logits_, pass_logits_;  // (batch, vocab) f32 in a pass, on the device and on the host
  Tensor states_, host_states_;  // (piece, hidden) in a pass
  std::vector<std::vector<int32_t>> texts_;
  std::vector<PromptImages> images_;     // images of each text
  std::vector<TextAxes> axes_of_texts_;  // positions in each text
  std::vector<std::vector<float>> next_logits_;
};

}  // namespace flatshard
