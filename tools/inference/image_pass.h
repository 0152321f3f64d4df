#pragma once
// The layers of a model that read images, run before a text is: they make the rows that the embedding puts in
// the place of image tokens. Frames are computed one by one, so the memory is that of the largest frame, and
// the bits of a frame do not depend on the others.

#include <cstdint>
#include <vector>

#include "model/image_rows.h"
#include "tools/inference/model_weights.h"

namespace flatshard {

// The images of a text, in the order of their tokens, as frames of patches (text/images/image_rules.h).
struct PromptImages {
  std::vector<float> patches;
  std::vector<int32_t> positions;  // of patches; on two axes, those of a frame are (2, patches)
  std::vector<int32_t> frames{0};  // where frames begin among the patches, and the end

  int64_t frame_count() const { return static_cast<int64_t>(frames.size()) - 1; }
  RowCounts rows_of(int64_t frame) const {
    const size_t i = static_cast<size_t>(frame);
    return {.tokens = 0, .patches = frames[i + 1] - frames[i], .frames = 1};
  }
};

// How many frames two texts begin with alike.
int64_t common_frames(const PromptImages& a, const PromptImages& b);

class ImagePass {
 public:
  // The weights must outlive it. The model reads images, in texts of at most so many tokens.
  ImagePass(ModelWeights& weights, DType dtype, int64_t tokens);

  void allocate(Arena& memory, Arena& host);
  void plan(Stream& stream, Arena& scratch, Arena& saved);
  int64_t rows_of(const PromptImages& images, int64_t frame) const;  // of text
  std::vector<SquareGrid> grids(const PromptImages& images) const;   // of a rotary tower
  // Writes the rows of a frame, and waits for them.
  void run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows, Arena& scratch,
           Arena& saved);

 private:
  void forward(Stream& stream, const RowCounts& rows, Arena& scratch, Arena& saved);
  ImageInputs inputs_in(const Tensor& patches, const Tensor& indices, const RowCounts& rows) const;

  ModelWeights& weights_;
  VisionConfig vision_;
  DType dtype_;
  RowCounts most_;
  Tensor x_, y_;                   // with room for the output of any of the layers
  Tensor patches_, host_patches_;  // (patches, width) f32
  Tensor indices_, host_indices_;  // i32: positions, boundaries of the frame, moves
};

}  // namespace flatshard
