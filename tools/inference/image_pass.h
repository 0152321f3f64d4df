#pragma once
// The layers of a model that read images. They run before a text is read, and compute the rows that replace
// the embeddings of image tokens.

#include <cstdint>

#include "hub/frame_inputs.h"
#include "tools/inference/model_weights.h"

namespace flatshard {

class ImagePass {
 public:
  // The weights must outlive the object. The model must read images, in texts of at most `tokens` tokens.
  ImagePass(ModelWeights& weights, DType dtype, int64_t tokens)
      : weights_(weights), dtype_(dtype), tokens_(tokens) {}

  void allocate(Arena& memory, Arena& host);
  void plan(Stream& stream, Arena& scratch, Arena& saved) { forward(stream, scratch, saved); }
  int64_t rows_of(const PromptImages& images, int64_t frame) const {  // rows of the text
    return image_rows(vision(), images.rows_of(frame));
  }
  // Writes the rows of a frame, and waits for them.
  void run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows, Arena& scratch,
           Arena& saved);

 private:
  const VisionConfig& vision() const { return *weights_.model().config().vision; }
  Tensor forward(Stream& stream, Arena& scratch, Arena& saved);

  ModelWeights& weights_;
  DType dtype_;
  int64_t tokens_;
  Tensor x_, y_;  // large enough for the output of any layer
  FrameInputs inputs_;
};

}  // namespace flatshard
