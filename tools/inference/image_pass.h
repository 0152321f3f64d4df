#pragma once
// The layers of a model that read images, run before a text is: they make the rows that the embedding puts in
// the place of image tokens.

#include <cstdint>

#include "hub/frame_inputs.h"
#include "tools/inference/model_weights.h"

namespace flatshard {

class ImagePass {
 public:
  // The weights must outlive it. The model reads images, in texts of at most so many tokens.
  ImagePass(ModelWeights& weights, DType dtype, int64_t tokens)
      : weights_(weights), dtype_(dtype), tokens_(tokens) {}

  void allocate(Arena& memory, Arena& host);
  void plan(Stream& stream, Arena& scratch, Arena& saved) { forward(stream, scratch, saved); }
  int64_t rows_of(const PromptImages& images, int64_t frame) const {  // of text
    return image_rows(vision(), images.rows_of(frame));
  }
  // Writes the rows of a frame, and waits for them.
  void run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows, Arena& scratch,
           Arena& saved);

 private:
  const VisionConfig& vision() const { return *weights_.model().config().vision; }
  void forward(Stream& stream, Arena& scratch, Arena& saved);

  ModelWeights& weights_;
  DType dtype_;
  int64_t tokens_;
  Tensor x_, y_;  // with room for the output of any of the layers
  FrameInputs inputs_;
};

}  // namespace flatshard
