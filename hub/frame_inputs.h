#pragma once
// The inputs of the layers that read images, for one frame at a time, on the host and on the device. Frames
// are computed one by one before a text, so the memory is that of the largest, and the bits of a frame do not
// depend on the others.

#include "hub/prompt_images.h"
#include "runtime/mirror.h"

namespace flatshard {

class FrameInputs {
 public:
  FrameInputs() = default;
  // The images are in texts of at most so many tokens. Until the first frame is written, the inputs are as
  // large as they can be.
  FrameInputs(const VisionConfig& vision, int64_t tokens, Arena& memory, Arena& staging);

  // Writes the inputs of a frame on the host. The stream must be done with those of the frame before.
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
