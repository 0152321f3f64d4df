#pragma once
// The losses of documents, without training: -ln p(token) of the targets of each window of a document. A
// document is cut into windows of at most `seq_len` targets, and the model sees nothing before a window.
// Windows share forward passes; the losses of a window do not depend on the others of its pass.

#include <functional>
#include <span>
#include <vector>

#include "hub/adapted_model.h"
#include "hub/resident_model.h"

namespace flatshard {

// At most seq_len + 1 consecutive tokens of a document, and whether each of them is trained. All but the
// first are targets if they are.
struct LossWindow {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
};

struct LossSum {
  double sum = 0, targets = 0;
  LossSum& operator+=(const LossSum& more);
};
// `losses` are those of all the window's tokens but the first.
LossSum sum_of(const LossWindow& window, std::span<const float> losses);

using TakeWindow = std::function<void(LossWindow window)>;

// Cuts a document into windows. One of fewer than two tokens has none.
void cut_windows(std::span<const int32_t> tokens, std::span<const uint8_t> trained, int64_t seq_len,
                 const TakeWindow& take);

class LossMeter {
 public:
  LossMeter(const ModelSource& source, DType dtype, int64_t seq_len, Device device);

  int64_t seq_len() const { return seq_len_; }
  // How many of the windows, from the first on, fit one pass; at least one.
  size_t windows_of_pass(std::span<const LossWindow> windows) const;
  // The losses of each window's tokens but the first, trained or not, computed in one pass.
  std::vector<std::vector<float>> measure(std::span<const LossWindow> windows);

 private:
  void allocate();
  void run_pass(Stream& stream, int64_t documents);

  StreamGroup streams_;
  Stream& stream_;
  int64_t seq_len_;
  ResidentModel model_;
  Arena memory_, host_, saved_, scratch_;
  Tensor x_, y_, inputs_, host_inputs_;  // inputs: tokens, positions and targets, then boundaries
  Tensor weights_, host_weights_, losses_, host_losses_;
};

}  // namespace flatshard
