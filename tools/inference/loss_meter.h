#pragma once
// Measures the losses of documents, without training: -ln p(token) of the targets in each window of a
// document. A document is cut into windows of at most `seq_len` targets, but not within an image, and the
// model sees nothing before a window. Windows share forward passes; the losses of a window do not depend on
// the other windows in its pass.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/adapted_model.h"
#include "tools/inference/image_pass.h"
#include "tools/inference/model_weights.h"

namespace flatshard {

// Consecutive tokens of a document, and whether each of them is trained. Trained tokens are targets, except
// for the first token. The model reads at most seq_len tokens: all but the last, or all if an image ends the
// document.
struct LossWindow {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  int64_t inputs = 0;
  std::vector<std::function<void(PromptImages&)>> images{};  // each appends an image of the window
};

// A document with its images. Each image has the tokens [begin, end).
struct LossDocument {
  struct Image {
    int64_t begin = 0, end = 0;
    std::function<void(PromptImages&)> append;
  };
  std::span<const int32_t> tokens;
  std::span<const uint8_t> trained{};  // empty: all are trained
  std::vector<Image> images{};
  std::string where{};

  int64_t inputs() const;  // number of tokens that the model reads
};

struct LossSum {
  double sum = 0, targets = 0;
  LossSum& operator+=(const LossSum& more);
};
// `losses` has a loss for each token of the window but the first.
LossSum sum_of(const LossWindow& window, std::span<const float> losses);

using TakeWindow = std::function<void(LossWindow window)>;

// Cuts a document into windows; there are none if it has fewer than two tokens. Throws an Error if an image
// does not fit into a window.
void cut_windows(const LossDocument& document, int64_t seq_len, const TakeWindow& take);

class LossMeter {
 public:
  LossMeter(const ModelSource& source, DType dtype, int64_t seq_len, Device device);

  int64_t seq_len() const { return seq_len_; }
  // The number of windows, from the first on, that fit into one pass; at least one.
  size_t windows_of_pass(std::span<const LossWindow> windows) const;
  // The losses of each window's tokens but the first, trained or not, computed in one pass.
  std::vector<std::vector<float>> measure(std::span<const LossWindow> windows);
  const ModelConfig& config() const { return weights_.model().config(); }
  // The experts of the tokens of the last pass, (blocks, seq_len, k) i32, -1 for padding behind the windows
  // and in blocks without experts; empty unless the model is a mixture of experts.
  const Tensor& choices() const { return host_choices_; }

 private:
  // The parts of the inputs: tokens, positions, targets, boundaries and the rows of images.
  struct Inputs {
    Tensor tokens, positions, targets, boundaries, image_rows;
  };
  void allocate();
  Inputs parts_of(const Tensor& inputs) const;
  int64_t axes() const { return family(weights_.model().config().family).rope_axes ? 3 : 1; }
  int64_t read_images(std::span<const LossWindow> windows, const Inputs& host);
  void run_pass(Stream& stream, int64_t documents, int64_t image_rows);

  StreamSet streams_;
  Stream& stream_;
  int64_t seq_len_;
  DType dtype_;
  ModelWeights weights_;
  std::optional<ImagePass> image_pass_;
  Arena memory_, host_, saved_, scratch_;
  Tensor x_, y_, image_rows_;  // image_rows_: output for a pass of the layers that read images
  Tensor inputs_, host_inputs_;
  Tensor target_weights_, host_target_weights_, losses_, host_losses_, choices_, host_choices_;
};

}  // namespace flatshard
