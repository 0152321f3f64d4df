#include "tools/inference/image_pass.h"

#include <utility>

#include "runtime/memory.h"

namespace flatshard {

void ImagePass::allocate(Arena& memory, Arena& host) {
  const Model& model = weights_.model();
  inputs_ = FrameInputs(vision(), tokens_, memory, host);
  const Shape largest = model.largest_output(0, model.embedding_layer(), inputs_.rows());
  x_ = memory.alloc(dtype_, largest);
  y_ = memory.alloc(dtype_, largest);
}

void ImagePass::run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows,
                    Arena& scratch, Arena& saved) {
  inputs_.write(images, frame);
  forward(stream, scratch, saved);
  copy(stream, rows, x_.beginning(rows.shape));
  stream.sync();
}

// Leaves the output of the last layer in x_.
void ImagePass::forward(Stream& stream, Arena& scratch, Arena& saved) {
  inputs_.upload(stream);
  const RowCounts& rows = inputs_.rows();
  Context c{.stream = stream,
            .scratch = scratch,
            .saved = saved,
            .tokens = {},
            .positions = {},
            .boundaries = {},
            .targets = {},
            .target_weights = {},
            .losses = {},
            .images = inputs_.on_device(),
            .dtype = dtype_};
  Model& model = weights_.model();
  const int end = model.embedding_layer();
  Tensor x;
  for (int i = 0; i < end; ++i) {
    const ArenaScope scope(saved);
    const int next = i + 1 < end ? i + 1 : kNoLayer;
    const Tensor y = y_.beginning(model.output(i, rows));
    model.layer(i).forward(c, weights_.acquire(i, next, stream), y, x);
    weights_.release(i, next, stream);
    std::swap(x_, y_);
    x = y;
  }
}

}  // namespace flatshard
