#pragma once
// The inputs of one lane of a micro-batch, on the host and on the device: tokens, positions, targets and
// boundaries, and for a model that reads images their patches and rows. The buffers have space for the
// largest lane; the device batch is cut to the part that the last read filled.

#include "model/layer_call.h"
#include "runtime/mirror.h"
#include "text/data/data.h"
#include "train/setup/run_setup.h"
#include "train/step/memory_plan.h"

namespace flatshard {

class LaneInputs {
 public:
  LaneInputs() = default;
  // Before the first read the batch is as large as it can be. Without `has_answers` it has no inputs for a
  // loss of whole answers.
  LaneInputs(const RunSetup& setup, int64_t sequences, MemoryPlan& memory, bool has_answers = true);

  // Reads the data of a lane and enqueues the copies to the device. The host tensors stay unchanged until the
  // next read.
  void read(const Data& data, int64_t data_step, int64_t lane, Stream& stream);
  // Enqueues the copies of the largest read on a planning stream.
  void plan_read(Stream& stream) const;

  const Batch& batch() const { return batch_; }          // the batch on the device
  const ImageInputs& images() const { return images_; }  // the images on the device
  const RowCounts& rows() const { return rows_; }
  Tensor host_targets() const { return text_in(text_.host).targets; }
  // The inputs of a loss of whole answers: on the device, and on the host.
  AnswerInputs answers(const AnswerFactors& factors) const { return answers_in(true, factors); }
  AnswerInputs host_answers(const AnswerFactors& factors) const { return answers_in(false, factors); }

 private:
  Batch text_in(const Tensor& space) const;
  Tensor axes_in(const Tensor& space) const;  // the positions of tokens in time, row and column
  ImageInputs images_in(const Tensor& indices, const Tensor& patches, const RowCounts& rows) const;
  AnswerInputs answers_in(bool on_device, const AnswerFactors& factors) const;
  void take_images(const ImageBatch& on_host, Stream& stream);

  std::optional<VisionConfig> vision_{};
  std::optional<AnswerLoss> loss_{};  // set for a loss of whole answers
  int64_t tokens_ = 0;
  bool has_axes_ = false;
  RowCounts most_{}, rows_{};
  Mirror text_;               // tokens, positions, targets, positions on axes, boundaries
  Mirror patches_, indices_;  // indices: positions of patches, frames, rows, and moves
  Mirror examples_, values_;  // rows and values of examples
  int64_t example_count_ = 0;
  Batch batch_;
  ImageInputs images_{};
};

}  // namespace flatshard
