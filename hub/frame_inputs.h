#pragma once
// The inputs of the layers that read images, for one frame at a time, on the host and on the device. The
// frames of a text are computed one by one before it. So memory is only needed for the largest frame, and the
// bits of a frame do not depend on other frames.

#include "hub/prompt_images.h"
#include "runtime/mirror.h"

namespace flatshard {

class FrameInputs {
 public:
  FrameInputs() = default;
  // The images are in texts of at most `tokens` tokens. Until the first frame is written, the inputs have
  // their maximum size.
  FrameInputs(const VisionConfig& vision, int64_t tokens, Arena& memory, Arena& staging);

  // Writes the inputs of a frame on the host. The stream must be done with the inputs of the previous frame.
  void write(const PromptImages& images, int64_t frame);
  void upload(Stream& stream) const;

  const RowCounts& rows() const { return rows_; }
  ImageInputs on_device() const { return inputs_in(patches_.device, indices_.device); }

 private:
  ImageInputs inputs_in(const Tensor& patches, const Tensor& indices) const;

  VisionConfig vision_;
  RowCounts most_, rows_;
  Mirror patches_;  // (patches, width) f32
  Mirror indices_;  // i32: positions, boundaries of the frame, moves
};

}  // namespace flatshard
